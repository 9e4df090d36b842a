"""The commands of gpuinstall, and commands in hints."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from os.path import isdir
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.base.advice import PROGRAM, Advice
from gpuinstall.base.text import sanitize
from gpuinstall.base.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import click

    from gpuinstall.base.advice import Hint
    from gpuinstall.base.shell import ShellName

_WINDOWS_SHELLS: Mapping[str, ShellName] = {
    "cmd.exe": "cmd",
    "powershell.exe": "powershell",
    "pwsh.exe": "powershell",
}
"""The shells of Windows by the names of their programs."""
COMMAND_GROUPS = {
    "Every day": {
        "install": "Install PyTorch and other packages for this machine's GPUs, and verify them.",
        "remove": "Remove packages, and dependencies that nothing else requires.",
        "run": "Run a command in the environment without activating it.",
        "doctor": "Find problems with the machine, environment, and project, and print commands that fix them.",
        "explain": "Look up an error message.",
        "verify": "Run kernels on every GPU, in any environment with PyTorch.",
        "plan": "Show which build a machine gets and why, without changing anything.",
    },
    "Teams": {
        "lock": "Write a lock file for each target, or for this machine.",
        "sync": "Install exactly the lock file that fits this machine.",
        "export": "Convert lock files for pip, uv, conda, and Docker.",
        "hook": "Configure pip or uv to select builds that run on this machine.",
    },
    "More": {
        "probe": "Show the GPUs, driver, and system, and their problems.",
        "report": "Summarize the results that cluster nodes recorded.",
        "env": "List, roll back, and remove environments.",
        "self": "Remove gpuinstall itself.",
    },
}
"""The help text of each command, in the order of ``--help``.

The function of a command is named ``<command>_command``.
"""
_MODULES = {
    "remove": "install",
    "sync": "install",
    "probe": "machine",
    "report": "machine",
}
"""The modules of commands that do not have the name of their module."""
COMMANDS: dict[str, str] = {}
for _commands in COMMAND_GROUPS.values():
    COMMANDS.update(_commands)


def load_command(name: str) -> click.Command:
    """Import the click command with a name from its module."""
    module = _MODULES.get(name, name)
    command: click.Command = getattr(
        import_module(f"gpuinstall.cli.{module}"), f"{name}_command"
    )
    return command


def split_command(
    words: Sequence[str],
) -> tuple[click.Command | None, list[str], list[str]]:
    """Split words into a command or subcommand, its name, and its arguments.

    Returns:
        The click command, or None if no command has the name.
    """
    name, subname = [*words, "", ""][:2]
    command = load_command(name) if name in COMMANDS else None
    subcommand = getattr(command, "commands", {}).get(subname)
    depth = bool(command) + bool(subcommand)
    return subcommand or command, [*words[:depth]], [*words[depth:]]


def format_hint(hint: Hint) -> str:
    """Format a hint for the user's shell, with paths of programs off PATH."""
    if isinstance(hint, Advice) and hint.program:
        hint = hint.format(detect_shell(), _locate_program)
    return sanitize(str(hint))


def _locate_program(name: str) -> str:
    from shutil import which  # slow to import: it loads decompressors

    if name not in {PROGRAM, "uv"} or which(name):
        return name
    if name == PROGRAM:
        return str(find_command_file())
    from gpuinstall.base.uv import uv

    return str(uv())


def find_command_file() -> Path:
    """Return the path of the gpuinstall command that updates preserve."""
    home = find_tool_folder()
    name = "gpuinstall.exe" if os.name == "nt" else "gpuinstall"
    return home / "bin" / name if home else Path(sys.executable).with_name("gpuinstall")


def find_tool_folder() -> Path | None:
    """Return the folder where bootstrap.py installed gpuinstall, or None."""
    environment = Path(sys.prefix)
    is_from_bootstrap = environment.name.startswith(f"{__version__}-")
    home = environment.parent
    return home if is_from_bootstrap and isdir(home / "bin") else None


def detect_shell() -> ShellName:
    """Return the user's shell.

    On Windows, the nearest parent process that is a shell decides. Elsewhere, the shell is
    PowerShell if PSModulePath is set.
    """
    if os.name == "nt":
        from gpuinstall.base.windows import list_parent_programs

        shells = (_WINDOWS_SHELLS.get(name) for name in list_parent_programs())
        return next(filter(None, shells), "powershell")
    return "powershell" if "PSModulePath" in os.environ else "sh"
