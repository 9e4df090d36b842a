"""Make the ``activate`` script of an environment determine its own path.

uv's relocatable scripts do, except ``activate`` in dash.
"""

from __future__ import annotations

import re
from os.path import isfile
from pathlib import Path

from gpuinstall.base.files import read_document, write_atomically
from gpuinstall.base.shell import quote_literal

_SH = r"(?s)(?<=\ndeactivate nondestructive\n).*?(?=\nif \(\[)"
"""The lines of uv's ``activate`` that set VIRTUAL_ENV."""


def relocate_activation(built: Path, final: Path) -> None:
    """Make an ``activate`` script find its path, or else use the final one.

    Raises:
        InstallationError: The script cannot be written.
    """
    script = built / "bin" / "activate"
    # Scripts on Windows determine their own path.
    if isfile(script):
        text = read_document(script, built)
        lines = _format_activation_lines(final)
        write_atomically(script, re.sub(_SH, lambda _: lines, text, count=1))


def _format_activation_lines(folder: Path) -> str:
    """Return the shell lines that set VIRTUAL_ENV in ``activate``.

    bash, zsh, and ksh report the script's path. dash and ash keep the script open. Other
    shells use a fixed path.
    """
    fixed = quote_literal(folder, "sh")
    script = quote_literal(folder / "bin" / "activate", "sh")
    return f"""
VIRTUAL_ENV={fixed}
if [ -n "${{BASH_VERSION:+x}}${{ZSH_VERSION:+x}}${{KSH_VERSION:+x}}" ]; then
    VIRTUAL_ENV="$(dirname -- "$(dirname -- "$(realpath -- "$SCRIPT_PATH" 2>/dev/null || printf %s {script})")")"
elif [ -r /proc/self/stat ]; then
    read -r SCRIPT_PATH _ < /proc/self/stat
    SCRIPT_PATH="$(readlink /proc/"$SCRIPT_PATH"/fd/* 2>/dev/null | grep '/bin/activate$' | tail -n 1)"
    if [ -f "$SCRIPT_PATH" ]; then
        VIRTUAL_ENV="${{SCRIPT_PATH%/bin/activate}}"
    fi
fi"""
