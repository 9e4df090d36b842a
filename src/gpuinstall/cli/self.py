"""``gpuinstall self``: the tool itself: how it is called, and how it goes."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

import click

from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.files import display_path
from gpuinstall.base.shell import on_path, parent_program, quoted, this_shell
from gpuinstall.base.text import some
from gpuinstall.cli.options import CommandOptions
from gpuinstall.cli.outcome import Outcome, confirm, framed
from gpuinstall.cli.terminal import Terminal
from gpuinstall.environments.launcher import command_file, tool_home

_TOOL = re.compile(r"\d[\w.]*-[0-9a-f]{12}")
_LEFTOVER = re.compile(r"\.new-\w{8}")
"""The folders that bootstrap.py makes: the tool's environments, and what a killed run left."""


@click.group("self", help="Remove gpuinstall itself.")
def command() -> None:
    """Manage the tool."""


def path_line() -> str | None:
    """Return the line that puts the command on PATH; None if it is there."""
    folder = str(command_file().parent)
    if folder in os.environ.get("PATH", "").split(os.pathsep):
        return None
    return on_path(folder, this_shell(os.environ, parent_program()))


def program_name() -> str:
    """Return the word by which this shell calls the command."""
    return quoted(command_file()) if path_line() else "gpuinstall"


@command.command(
    "uninstall", help="Remove gpuinstall and its caches; keep environments and locks."
)
@framed("self", "yes")
def _uninstall(_terminal: Terminal, options: CommandOptions) -> Outcome:
    home = tool_home()
    # Windows does not let go of a program that runs.
    if home is None or os.name == "nt":
        hint = "uv tool uninstall gpuinstall\npipx uninstall gpuinstall   # if pipx installed it"
        if home:
            hint = f'rmdir /s /q "{home}"'
        raise UsageError(
            "uninstall-elsewhere", "this gpuinstall cannot remove itself", hint=hint
        )
    from gpuinstall.base.files import own_cache_folder, remove_path
    from gpuinstall.environments.records import remembered

    place = display_path(home)
    # Environments of scripts lie in the cache.
    cache = own_cache_folder()
    removed = [place]
    if cache.exists():
        removed.append(display_path(cache))
    if not options.yes:
        confirm(f"Remove {', '.join(removed)}?", "nothing was removed")
    environments = [
        display_path(venv) for venv in remembered() if cache not in venv.parents
    ]
    remove_tool(home)
    remove_path(cache)
    rows = [("Removed", ", ".join(removed))]
    if environments:
        rows.append(("Kept", f"{', '.join(sorted(environments))} and their locks"))
    return Outcome({"removed": str(home)}, rows)


def remove_tool(home: Path) -> None:
    """Remove what bootstrap.py made in its folder.

    Raises:
        InstallationError: if something cannot be removed: a disk is read-only, or the folder is another user's.
    """
    from gpuinstall.base.files import is_folder, remove_file, remove_path
    from gpuinstall.environments.ownership import user_paths

    folders = []
    for entry in filter(is_folder, home.iterdir()):
        is_tool = _TOOL.fullmatch(entry.name) and not user_paths(entry)
        if is_tool or _LEFTOVER.fullmatch(entry.name):
            folders.append(entry)
    files = [home / "bin" / "gpuinstall", home / "share"]
    for folder in folders:
        remove_path(folder)
    for file in files:
        remove_file(file)
    remaining = [path for path in (*folders, *files) if os.path.lexists(path)]
    if remaining:
        names = some([str(path.relative_to(home)) for path in remaining])
        raise InstallationError(
            "not-writable",
            f"{names} in {home} cannot be removed",
            hint=f"ls -ld {quoted(home)}; df -h {quoted(home)}",
        )
    for folder in (home / "bin", home):
        with suppress(OSError):  # what else lies there stays
            folder.rmdir()
