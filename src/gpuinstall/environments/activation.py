"""The scripts of an environment: they lead to where it lies, in every shell, whatever its folder is called.

uv's relocatable ones find their own place, but for ``activate`` in plain sh, and there is none for csh; those that pip
writes have the path of the environment.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from os.path import isdir
from pathlib import Path

from gpuinstall.base.files import read_document, write_atomically
from gpuinstall.base.removal import is_link
from gpuinstall.base.shell import literal

_SH = re.compile(r"(?s)(?<=\ndeactivate nondestructive\n).*?(?=\nif \(\[)")
"""What sets the variable, in uv's ``activate``."""
_FISH = re.compile(r"(?s)(?<=\nset -gx VIRTUAL_ENV ).*?(?=\n\n|\nset -gx _OLD)")

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

_CSH = """# Use it with "source bin/activate.csh" in csh.
setenv VIRTUAL_ENV {folder}
if (! $?_OLD_VIRTUAL_PATH) set _OLD_VIRTUAL_PATH = "$PATH:q"
setenv PATH "$VIRTUAL_ENV:q/bin:$_OLD_VIRTUAL_PATH:q"
unsetenv PYTHONHOME
if ($?prompt && ! $?VIRTUAL_ENV_DISABLE_PROMPT) then
    if (! $?_OLD_VIRTUAL_PROMPT) set _OLD_VIRTUAL_PROMPT = "$prompt:q"
    set prompt = "($VIRTUAL_ENV:t:q) $_OLD_VIRTUAL_PROMPT:q"
endif
alias _venv_prompt 'test $?_OLD_VIRTUAL_PROMPT = 1 && set prompt = "$_OLD_VIRTUAL_PROMPT:q" && unset _OLD_VIRTUAL_PROMPT'
alias _venv_path 'setenv PATH "$_OLD_VIRTUAL_PATH:q"; unset _OLD_VIRTUAL_PATH; unsetenv VIRTUAL_ENV; rehash'
alias deactivate '_venv_prompt; _venv_path; unalias _venv_prompt _venv_path deactivate'
rehash
"""


def relocate_activation(built: Path, final: Path) -> None:
    """Make the scripts of activation of the environment at ``built`` right for ``final``, where it lies or will lie.

    What is a link is the user's, and stays.

    Raises:
        InstallationError: one cannot be written.
    """
    scripts = built / "bin"
    if not isdir(scripts):
        return  # on Windows each finds its own place
    _replace(scripts / "activate", _SH, _sh_lines(final))
    if "\n" in str(final):
        # fish makes several words of several lines.
        _replace(scripts / "activate.fish", _FISH, literal(final, "fish"))
    csh = scripts / "activate.csh"
    is_own = _text_of(csh).startswith(_CSH.partition("\n")[0])
    if is_own or not os.path.lexists(csh):
        write_atomically(csh, _CSH.format(folder=literal(final, "csh")))


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
