"""Update paths in the scripts of a moved environment.

uv's relocatable scripts determine their own path, except ``activate`` in plain sh. pip's
scripts contain the path of the environment.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from gpuinstall.base.files import read_document, write_atomically
from gpuinstall.base.removal import is_link
from gpuinstall.base.shell import quote_literal

_SH = r"(?s)(?<=\ndeactivate nondestructive\n).*?(?=\nif \(\[)"
"""The lines of uv's ``activate`` that set VIRTUAL_ENV."""

_START = (
    r"#!(?!/bin/sh\n)(?P<path>[^\n]+)\n"
    r"""|#!/bin/sh\n'''exec' "?(?P<quoted>[^\n"]+)"? "\$0" "\$@"\n' '''\n"""
)
"""The start of pip's scripts. The second form allows long paths and spaces."""
_OWN_START = """#!/bin/sh
'''exec' "$(dirname -- "$(realpath -- "$0")")"/{program} "$0" "$@"
' '''
"""
"""The start of uv's relocatable scripts, which Python reads as a string."""
_SCRIPT = 65_536
"""The maximum size of a script in bytes."""


def relocate_activation(built: Path, final: Path) -> None:
    """Update ``activate`` at ``built`` for the path ``final``.

    Raises:
        InstallationError: The script cannot be written.
    """
    # Windows' scripts determine their own path.
    script = built / "bin" / "activate"
    before = _text_of(script)
    after = re.sub(_SH, lambda _: _sh_lines(final), before, count=1)
    if after != before:
        write_atomically(script, after)


def _text_of(script: Path) -> str:
    """Return the text of a script. It is empty for a link or a binary file."""
    with suppress(OSError, ValueError):
        if not is_link(script) and script.stat().st_size <= _SCRIPT:
            return read_document(script, script.parents[1])
    return ""


def _sh_lines(folder: Path) -> str:
    """Return the lines that set VIRTUAL_ENV.

    bash, zsh, and ksh report the script's path. Other shells use a fixed path.
    """
    fixed = quote_literal(folder, "sh")
    script = quote_literal(folder / "bin" / "activate", "sh")
    return f"""
VIRTUAL_ENV={fixed}
if [ -n "${{BASH_VERSION:+x}}${{ZSH_VERSION:+x}}${{KSH_VERSION:+x}}" ]; then
    VIRTUAL_ENV="$(dirname -- "$(dirname -- "$(realpath -- "$SCRIPT_PATH" 2>/dev/null || printf %s {script})")")"
fi"""


def relocate_scripts(venv: Path, before: Path) -> None:
    """Make pip's scripts relocatable after an environment was moved.

    Args:
        venv: The environment.
        before: Its previous path.

    Raises:
        InstallationError: A script cannot be written.
    """
    for script in (venv / "bin").glob("*"):
        text = _text_of(script)
        start = re.match(_START, text)
        if start is None:
            continue
        folder, _, program = (start["path"] or start["quoted"]).rpartition("/")
        if folder == f"{before}/bin":
            own = _OWN_START.format(program=program)
            write_atomically(script, f"{own}{text[start.end() :]}")
