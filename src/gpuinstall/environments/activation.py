"""Update paths in the scripts of a moved environment.

uv's relocatable scripts determine their own path, except ``activate`` in dash. pip's
scripts contain the path of the environment.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from gpuinstall.base.environment_paths import packages_folders
from gpuinstall.base.files import read_document, write_atomically
from gpuinstall.base.removal import is_link
from gpuinstall.base.shell import quote_literal
from gpuinstall.environments.packages import (
    compute_record_digest,
    find_written_files,
    read_packages,
)

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
    """Update the path in an ``activate`` script to the environment's new path.

    Raises:
        InstallationError: The script cannot be written.
    """
    # Scripts on Windows determine their own path.
    script = built / "bin" / "activate"
    before = _read_script(script)
    after = re.sub(_SH, lambda _: _format_activation_lines(final), before, count=1)
    if after != before:
        write_atomically(script, after)


def _read_script(script: Path) -> str:
    """Return the text of a script, or "" for a link or a binary file."""
    with suppress(OSError, ValueError):
        if not is_link(script) and script.stat().st_size <= _SCRIPT:
            return read_document(script, script.parents[1])
    return ""


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


def relocate_scripts(venv: Path, before: Path) -> None:
    """Make pip's scripts relocatable after an environment was moved.

    Scripts that no RECORD lists belong to the user and are not changed.

    Args:
        venv: The environment.
        before: The previous path of the environment.

    Raises:
        InstallationError: A script cannot be written.
    """
    for package in read_packages(packages_folders(venv)):
        relocated = {}
        for name, row in find_written_files(package, venv).items():
            if name.startswith("bin/") and _relocate_script(venv / name, before):
                relocated[row.path] = venv / name
        if relocated:
            _update_record(package.record / "RECORD", relocated)


def _relocate_script(script: Path, before: Path) -> bool:
    """Make a script relocatable if it starts the interpreter's old path.

    Returns:
        Whether the script was changed.
    """
    text = _read_script(script)
    start = re.match(_START, text)
    if start is None:
        return False
    folder, _, program = (start["path"] or start["quoted"]).rpartition("/")
    if folder != f"{before}/bin":
        return False
    own = _OWN_START.format(program=program)
    write_atomically(script, f"{own}{text[start.end() :]}")
    return True


def _update_record(record: Path, files: Mapping[str, Path]) -> None:
    """Write the digests and sizes of changed files into a RECORD.

    RECORD keeps its modification time, because newer files are checked for edits.
    """
    status = record.stat()
    updated = io.StringIO()
    writer = csv.writer(updated, lineterminator="\n")
    for row in csv.reader(record.read_text("utf-8").splitlines()):
        file = files.get(row[0]) if row else None
        if file:
            row[1:] = [
                f"sha256={compute_record_digest(file)}",
                str(file.stat().st_size),
            ]
        writer.writerow(row)
    write_atomically(record, updated.getvalue())
    os.utime(record, ns=(status.st_atime_ns, status.st_mtime_ns))
