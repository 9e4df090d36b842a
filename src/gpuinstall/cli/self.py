"""``gpuinstall self``: the tool itself: where it is, and how it goes."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import click

from gpuinstall import __version__
from gpuinstall.cli.outcome import Outcome, framed
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
    program, line = command_file(), path_line(os.environ)
    if write and (line or tool_home()):
        # Also where this shell has it on PATH, perhaps by the line that was printed before this command.
        terminal.step(
            "Written", display_path(_put_on_path(line or _path_line(os.environ), yes=yes))
        )

    def show(screen: Terminal) -> None:
        screen.line(str(program))
        if line:
            screen.line(line)

    return Outcome(
        {"path": str(program), "version": __version__, "on_path": line is None, "line": line}, show
    )


@command.command("uninstall", help="Remove gpuinstall; keep environments and locks.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@framed("self")
def _uninstall(_terminal: Terminal, *, yes: bool) -> Outcome:
    home = tool_home()
    if home is None or os.name == "nt":  # Windows does not let go of a program that runs
        hint = f'rmdir /s /q "{home}"' if home else _removal()
        raise UsageError("uninstall-elsewhere", "this gpuinstall cannot remove itself", hint=hint)
    if not yes and not (
        sys.stdin.isatty() and click.confirm(f"Remove {display_path(home)}?", err=True)
    ):
        raise UsageError(
            "not-confirmed", "nothing was removed", hint="gpuinstall self uninstall --yes"
        )
    left = remove_tool(home)
    for file in start_files(Path.home()).values():
        with suppress(OSError, InstallationError):
            rewrite(file, without_own_line)

    def show(screen: Terminal) -> None:
        screen.field("Removed", display_path(home))
        if left:
            screen.field(
                "Kept", f"{some(left)}, which bootstrap.py did not make: in {display_path(home)}"
            )

    return Outcome({"removed": str(home)}, show)


def without_own_line(text: bytes | None) -> bytes | None:
    """Return a start file of the user's without the line that ``self path --write`` put there."""
    if text is None:
        return None
    lines = text.splitlines(keepends=True)
    return b"".join(line for line in lines if _WRITTEN.encode() not in line)


def remove_tool(home: Path) -> list[str]:
    """Remove what bootstrap.py made in its folder; return the names of what else lies there.

    Raise InstallationError for what cannot be removed: a disk is read-only, or the folder is another user's.
    """
    from gpuinstall.environments.ownership import user_paths
    from gpuinstall.files import is_folder, remove_file, remove_path

    folders = [entry for entry in home.iterdir() if is_folder(entry)]
    tools = [entry for entry in folders if _TOOL.fullmatch(entry.name) and not user_paths(entry)]
    leftovers = [entry for entry in folders if _LEFTOVER.fullmatch(entry.name)]
    uvs = [entry for entry in folders if _UV.fullmatch(entry.name)]
    for folder in (*tools, *leftovers):
        remove_path(folder)
    files = (home / "bin" / "gpuinstall", home / "share", *(folder / "uv" for folder in uvs))
    for file in files:
        remove_file(file)
    if resisting := [
        str(path.relative_to(home))
        for path in (*tools, *leftovers, *files)
        if os.path.lexists(path)
    ]:
        hint = f"ls -ld {quoted(home)}; df -h {quoted(home)}"
        raise InstallationError(
            "not-writable", f"{some(resisting)} in {home} cannot be removed", hint=hint
        )
    for folder in (home / "bin", *uvs, home):
        with suppress(OSError):  # what else lies there stays
            folder.rmdir()
    return sorted(entry.name for entry in home.iterdir()) if home.exists() else []


def _put_on_path(line: str, *, yes: bool) -> Path:
    """Add the line to the start file of the shell that we were called from, once; raise UsageError where it may not."""
    file = start_files(Path.home()).get(this_shell(os.environ, parent_program()))
    if file is None:
        raise UsageError("no-start-file", "only bash, zsh, fish and sh are supported", hint=line)
    if not yes and not (
        sys.stdin.isatty() and click.confirm(f"Add to {display_path(file)}: {line}?", err=True)
    ):
        program = quoted(command_file()) if path_line(os.environ) else "gpuinstall"
        raise UsageError(
            "not-confirmed", "nothing was changed", hint=f"{program} self path --write --yes"
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists() or _WRITTEN not in file.read_text(encoding="utf-8", errors="replace"):
        with file.open("a", encoding="utf-8") as opened:
            opened.write(f"\n{line}{_WRITTEN}\n")
    return file


def path_line(environ: Mapping[str, str]) -> str | None:
    """The line that puts the command on PATH; None where it is there."""
    folder = command_file().parent
    if str(folder) in environ.get("PATH", "").split(os.pathsep):
        return None
    return _path_line(environ)


def _path_line(environ: Mapping[str, str]) -> str:
    return on_path(str(command_file().parent), this_shell(environ, parent_program()))


def _removal() -> str:
    """Return how the program that installed this one removes it."""
    place = Path(sys.prefix).as_posix()
    command = next((line for sign, line in _INSTALLERS.items() if sign in place), None)
    return command or f"Delete {sys.prefix}"
