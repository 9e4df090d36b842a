"""``gpuinstall self``: locate and uninstall gpuinstall itself."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from os.path import exists
from pathlib import Path

from gpuinstall.base.advice import (
    NOTE,
    PROGRAM,
    Advice,
    ShellText,
    make_shell_line,
)
from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.files import (
    display_path,
    make_diagnostic_hint,
    own_cache_folder,
)
from gpuinstall.base.removal import is_folder, remove_path
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.shell import format_path_command
from gpuinstall.base.text import format_size, join_names
from gpuinstall.cli.commands import detect_shell, find_command_file, find_tool_folder
from gpuinstall.cli.options import CommandOptions
from gpuinstall.cli.outcome import Outcome, confirm, define_group

_TOOL_PATTERN = r"\d[\w.]*-[0-9a-f]{12}"
"""A pattern for the names of environments that bootstrap.py created."""
_LEFTOVER_PATTERN = r"\.new-\w{8}"
"""A pattern for folders that an interrupted bootstrap.py did not remove."""

self_command, _define_command = define_group("self")


def make_path_command() -> str | None:
    """Return a command that adds gpuinstall to PATH, if necessary."""
    folder = str(find_command_file().parent)
    if folder in os.environ.get("PATH", "").split(os.pathsep):
        return None
    shell = detect_shell()
    profiles = {"bash": "~/.bashrc", "zsh": "~/.zshrc"}
    user_shell = Path(os.environ.get("SHELL", "")).name
    line = format_path_command(folder, shell)
    if shell == "cmd":
        return line  # cmd has no comments and no profile
    profile = profiles.get(user_shell, "~/.profile") if shell == "sh" else "$PROFILE"
    return f"{line}{NOTE}also add it to {profile}"


@_define_command(
    "yes",
    uses_project=False,
)
def _uninstall(options: CommandOptions) -> Outcome:
    """Remove gpuinstall and its caches.

    Environments and lock files are kept.
    """
    from gpuinstall.install.removal import find_prunable, remove_cache

    for folder, size in find_prunable().items():
        options.terminal.notice(
            "Kept",
            f"{display_path(folder)}, {format_size(size)}; env prune removes it",
        )
    home = find_tool_folder()
    # Windows cannot remove a running program.
    if home is None or os.name == "nt":
        hint: tuple[Advice, ...] = (
            make_shell_line(f"uv tool uninstall {PROGRAM}"),
            make_shell_line(f"pipx uninstall {PROGRAM}", "if pipx installed it"),
            Advice(
                sys.executable,
                (ShellText(f"-m pip uninstall {PROGRAM}"),),
                note="if pip did",
            ),
        )
        if home:
            hint = (Advice("rmdir", ("/s", "/q", str(home))),)
            if detect_shell() == "powershell":
                remove = ("-Recurse", "-Force", str(home))
                hint = (Advice("Remove-Item", remove),)
        raise UsageError(
            "uninstall-elsewhere",
            "this installation of gpuinstall cannot remove itself",
            hint=hint,
        )
    from gpuinstall.environments.records import (
        find_recorded_environments,
        forget_environments,
    )

    cache = own_cache_folder()
    removed = display_path(home)
    if exists(cache):
        removed += f", {display_path(cache)}"
    if not options.yes:
        confirm(f"Remove {removed}?", "nothing was removed")
    # Import all modules before removing the tool's own files.
    kept = sorted(map(display_path, find_recorded_environments()))
    leftovers = remove_cache()
    remove_tool(home, options.terminal)
    rows = [("Removed", removed)]
    if kept:
        rows.append(("Kept", f"{', '.join(kept)} and their lock files"))
    records = forget_environments()
    if records:
        rows.append(("Kept", f"{display_path(records)}, the list of your environments"))
    if leftovers:
        rows.append(
            (
                "Kept",
                f"{join_names(list(map(display_path, leftovers)))}, not created by gpuinstall",
            )
        )
    return Outcome({"removed": str(home)}, rows)


def remove_tool(home: Path, reporter: Reporter) -> None:
    """Remove everything that bootstrap.py created in its folder.

    Args:
        home: The folder.
        reporter: Receives the names of the user's own files in the environments.

    Raises:
        InstallationError: A file cannot be removed.
    """
    from gpuinstall.environments.discarding import discard_folder

    others = [home / "bin" / "gpuinstall", home / "share"]
    folders = list(filter(is_folder, home.iterdir()))
    tools = [folder for folder in folders if re.fullmatch(_TOOL_PATTERN, folder.name)]
    others += [
        folder for folder in folders if re.fullmatch(_LEFTOVER_PATTERN, folder.name)
    ]
    for tool in tools:
        discard_folder(tool, home, reporter)
    for path in others:
        remove_path(path)
    remaining = [
        str(path.relative_to(home))
        for path in (*tools, *others)
        if os.path.lexists(path)
    ]
    if remaining:
        raise InstallationError(
            "not-writable",
            f"{join_names(remaining)} in {home} cannot be removed",
            hint=make_diagnostic_hint(home, None),
        )
    for folder in (home / "bin", home):
        with suppress(OSError):  # the folder contains other files
            folder.rmdir()
