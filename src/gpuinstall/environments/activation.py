"""Scripts of an environment: make them right for the folder that it is in.

uv's relocatable scripts find their own place, except ``activate`` in plain sh. Those that pip writes have the path of
the environment.
"""

from __future__ import annotations

import re
from contextlib import suppress
from os.path import isdir
from pathlib import Path

from gpuinstall.base.files import read_document, write_atomically
from gpuinstall.base.removal import is_link
from gpuinstall.base.shell import literal

_SH = re.compile(r"(?s)(?<=\ndeactivate nondestructive\n).*?(?=\nif \(\[)")
"""What sets the variable, in uv's ``activate``."""

_START = re.compile(
    r"#!(?!/bin/sh\n)(?P<path>[^\n]+)\n"
    r"""|#!/bin/sh\n'''exec' "?(?P<quoted>[^\n"]+)"? "\$0" "\$@"\n' '''\n"""
)
"""How pip has a script start its Python; the second if the path is long, or has a blank."""
_OWN_START = """#!/bin/sh
'''exec' "$(dirname -- "$(realpath -- "$0")")"/{program} "$0" "$@"
' '''
"""
"""How uv has the script of an environment that can be moved start the Python beside it: for Python this is a text."""
_SCRIPT = 65_536
"""The bytes that a script has at most."""


def relocate_activation(built: Path, final: Path) -> None:
    """Make ``activate`` at ``built`` right for the folder ``final``.

    A link is the user's, and is kept.

    Raises:
        InstallationError: one cannot be written.
    """
    scripts = built / "bin"
    if not isdir(scripts):
        return  # on Windows each finds its own place
    _replace(scripts / "activate", _SH, _sh_lines(final))


def _text_of(script: Path) -> str:
    """Return the text of a script; empty if it is the user's, as a link is, or a program, which is no text."""
    with suppress(OSError, ValueError):
        if not is_link(script) and script.stat().st_size <= _SCRIPT:
            return read_document(script, script.parents[1])
    return ""


def _replace(script: Path, pattern: re.Pattern[str], text: str) -> None:
    before = _text_of(script)
    after = pattern.sub(lambda _: text, before, count=1)
    if after != before:
        write_atomically(script, after)


def _sh_lines(folder: Path) -> str:
    """Return the lines that set VIRTUAL_ENV: by the script's own place in the shells that tell it."""
    fixed = literal(folder, "sh")
    script = literal(folder / "bin" / "activate", "sh")
    return f"""
VIRTUAL_ENV={fixed}
if [ -n "${{BASH_VERSION:+x}}${{ZSH_VERSION:+x}}${{KSH_VERSION:+x}}" ]; then
    VIRTUAL_ENV="$(dirname -- "$(dirname -- "$(realpath -- "$SCRIPT_PATH" 2>/dev/null || printf %s {script})")")"
fi"""


def relocate_scripts(venv: Path, before: Path) -> None:
    """Have the scripts that pip wrote in an environment at ``before``, now at ``venv``, start the Python beside them.

    Raises:
        InstallationError: one cannot be written.
    """
    for script in (venv / "bin").glob("*"):
        text = _text_of(script)
        start = _START.match(text)
        if start is None:
            continue
        folder, _, program = (start["path"] or start["quoted"]).rpartition("/")
        if folder == f"{before}/bin":
            own = _OWN_START.format(program=program)
            write_atomically(script, f"{own}{text[start.end() :]}")
