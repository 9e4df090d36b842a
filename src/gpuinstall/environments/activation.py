"""Make the ``activate`` script of an environment determine its own path.

uv's relocatable scripts do, except ``activate`` in dash.
"""

from __future__ import annotations

import re
from os.path import isfile
from pathlib import Path

from gpuinstall.base.files import read_document, write_atomically

_SH = r"(?s)(?<=\ndeactivate nondestructive\n).*?(?=\nif \(\[)"
"""The lines of uv's ``activate`` that set VIRTUAL_ENV."""


def relocate_activation(venv: Path) -> None:
    """Make the ``activate`` script of an environment find its path.

    Raises:
        InstallationError: The script cannot be written.
    """
    script = venv / "bin" / "activate"
    # Scripts on Windows determine their own path.
    if isfile(script):
        text = read_document(script, venv)
        write_atomically(script, re.sub(_SH, lambda _: _FIND_PATH, text, count=1))


_FIND_PATH = """
if [ -n "${BASH_VERSION:+x}${ZSH_VERSION:+x}${KSH_VERSION:+x}" ]; then
    VIRTUAL_ENV="$(dirname -- "$(dirname -- "$(realpath -- "$SCRIPT_PATH")")")"
elif [ -r /proc/self/stat ]; then
    read -r SCRIPT_PATH _ < /proc/self/stat
    SCRIPT_PATH="$(readlink /proc/"$SCRIPT_PATH"/fd/* 2>/dev/null | grep '/bin/activate$' | tail -n 1)"
    VIRTUAL_ENV="${SCRIPT_PATH%/bin/activate}"
fi
if [ ! -f "${VIRTUAL_ENV:-}/bin/activate" ]; then
    echo "activate: this shell does not report the path of this script; use bash or zsh" >&2
    return 1
fi"""
"""The lines that set VIRTUAL_ENV.

bash, zsh, and ksh report the script's path. dash and ash keep the script open.
"""
