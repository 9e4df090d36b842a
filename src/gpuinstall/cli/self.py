"""``gpuinstall self``: the tool itself: where it is, and how it goes."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

import click

from gpuinstall import __version__
from gpuinstall.cli.outcome import Outcome, framed, is_confirmed
from gpuinstall.cli.terminal import Terminal
from gpuinstall.errors import InstallationError, UsageError
from gpuinstall.files import rewrite
from gpuinstall.launcher import command_file, tool_home
from gpuinstall.shell import on_path, parent_program, quoted, start_files, this_shell
from gpuinstall.text import some
from gpuinstall.units import display_path

_WRITTEN = "  # written by gpuinstall self path"
_TOOL = re.compile(r"\d[\w.]*-[0-9a-f]{12}")
_UV = re.compile(r"uv-\d+\.\d+\.\d+")
_LEFTOVER = re.compile(r"\.new-\w{8}")
"""The folders that bootstrap.py makes: the tool's environments, uv, and what a killed run left."""

_INSTALLERS = {
    "uv/tools": "uv tool uninstall gpuinstall",
    "pipx/venvs": "pipx uninstall gpuinstall",
}


@click.group("self", help="Show or remove gpuinstall itself.")
def command() -> None:
    """Manage the tool."""


@command.command("path", help="Show where gpuinstall is, and the line that puts it on PATH.")
@click.option("--write", is_flag=True, help="Write that line into your shell's start file.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@framed("self")
def _path(terminal: Terminal, *, write: bool, yes: bool) -> Outcome:
    program = command_file()
    line = path_line()
    if write and (line or tool_home()):
        # Also if this shell has it on PATH, perhaps by the line that was printed before this command.
        file = _put_on_path(line or _path_line(), yes=yes)
        terminal.step("Written", display_path(file))
    data = {
        "path": str(program),
        "version": __version__,
        "on_path": line is None,
        "line": line,
    }

    def show(screen: Terminal) -> None:
        screen.line(str(program))
        if line:
            screen.line(line)

    return Outcome(data, show)


def path_line() -> str | None:
    """Return the line that puts the command on PATH; None if it is there."""
    folder = str(command_file().parent)
    if folder in os.environ.get("PATH", "").split(os.pathsep):
        return None
    return _path_line()


def _path_line() -> str:
    return on_path(str(command_file().parent), this_shell(os.environ, parent_program()))


def program_name() -> str:
    """Return the word by which this shell calls the command."""
    return quoted(command_file()) if path_line() else "gpuinstall"


def _put_on_path(line: str, *, yes: bool) -> Path:
    """Add the line to the start file of the shell that we were called from, once; return the file.

    Raises:
        UsageError: if there is no such file, or the user does not confirm.
    """
    shell = this_shell(os.environ, parent_program())
    file = start_files(Path.home()).get(shell)
    if file is None:
        raise UsageError("no-start-file", "only bash, zsh, fish and sh are supported", hint=line)
    if not yes and not is_confirmed(f"Add to {display_path(file)}: {line}?"):
        raise UsageError(
            "not-confirmed",
            "nothing was changed",
            hint=f"{program_name()} self path --write --yes",
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists() or _WRITTEN not in file.read_text(encoding="utf-8", errors="replace"):
        with file.open("a", encoding="utf-8") as opened:
            opened.write(f"\n{line}{_WRITTEN}\n")
    return file


@command.command("uninstall", help="Remove gpuinstall; keep environments and locks.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@framed("self")
def _uninstall(_terminal: Terminal, *, yes: bool) -> Outcome:
    home = tool_home()
    # Windows does not let go of a program that runs.
    if home is None or os.name == "nt":
        hint = f'rmdir /s /q "{home}"' if home else _removal()
        raise UsageError("uninstall-elsewhere", "this gpuinstall cannot remove itself", hint=hint)
    place = display_path(home)
    if not yes and not is_confirmed(f"Remove {place}?"):
        raise UsageError(
            "not-confirmed",
            "nothing was removed",
            hint="gpuinstall self uninstall --yes",
        )
    others = remove_tool(home)
    for file in start_files(Path.home()).values():
        with suppress(OSError, InstallationError):
            rewrite(file, without_own_line)

    def show(screen: Terminal) -> None:
        screen.field("Removed", place)
        if others:
            screen.field("Kept", f"{some(others)}, which bootstrap.py did not make: in {place}")

    return Outcome({"removed": str(home)}, show)


def _removal() -> str:
    """Return how the program that installed this one removes it."""
    place = Path(sys.prefix).as_posix()
    for folder, line in _INSTALLERS.items():
        if folder in place:
            return line
    return f"Delete {sys.prefix}"


def without_own_line(text: bytes | None) -> bytes | None:
    """Return a start file of the user's without the line that ``self path --write`` put there."""
    if text is None:
        return None
    lines = text.splitlines(keepends=True)
    return b"".join(line for line in lines if _WRITTEN.encode() not in line)


def remove_tool(home: Path) -> list[str]:
    """Remove what bootstrap.py made in its folder; return the names of what else lies there.

    Raises:
        InstallationError: if something cannot be removed: a disk is read-only, or the folder is another user's.
    """
    from gpuinstall.environments.ownership import user_paths
    from gpuinstall.files import is_folder, remove_file, remove_path

    folders = []
    uvs = []
    for entry in filter(is_folder, home.iterdir()):
        is_tool = _TOOL.fullmatch(entry.name) and not user_paths(entry)
        if is_tool or _LEFTOVER.fullmatch(entry.name):
            folders.append(entry)
        elif _UV.fullmatch(entry.name):
            uvs.append(entry)
    files = [home / "bin" / "gpuinstall", home / "share"]
    files += [folder / "uv" for folder in uvs]
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
    for folder in (home / "bin", *uvs, home):
        with suppress(OSError):  # what else lies there stays
            folder.rmdir()
    if not home.exists():
        return []
    return sorted(entry.name for entry in home.iterdir())
