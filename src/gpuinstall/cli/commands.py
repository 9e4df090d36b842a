"""The commands of gpuinstall, and commands in printed text."""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING

from gpuinstall.base.advice import PROGRAM, find_command_file
from gpuinstall.base.shell import detect_shell, quote_word
from gpuinstall.base.text import sanitize

if TYPE_CHECKING:
    import click

COMMAND_GROUPS = {
    "Every day": {
        "install": (
            "install",
            "Install PyTorch and other packages for this machine's GPUs, and verify them.",
        ),
        "remove": (
            "install",
            "Remove packages, and dependencies that nothing else requires.",
        ),
        "run": ("run", "Run a command in the environment without activating it."),
        "doctor": (
            "doctor",
            "Find problems with the machine, environment, and project, and print commands that fix them.",
        ),
        "explain": ("explain", "Look up an error message."),
        "verify": (
            "verify",
            "Run kernels on every GPU, in any environment with PyTorch.",
        ),
        "plan": (
            "plan",
            "Show which build a machine gets and why, without changing anything.",
        ),
    },
    "Teams": {
        "lock": ("lock", "Write a lock file for each target, or for this machine."),
        "sync": ("install", "Install exactly the lock file that fits this machine."),
        "export": ("export", "Convert lock files for pip, uv, conda, and Docker."),
        "hook": (
            "hook",
            "Configure pip or uv to select builds that run on this machine.",
        ),
    },
    "More": {
        "probe": ("machine", "Show the GPUs, driver, and system, and their problems."),
        "report": ("machine", "Summarize the results that cluster nodes recorded."),
        "env": ("env", "List, roll back, and remove environments."),
        "self": ("self", "Remove gpuinstall itself."),
    },
}
"""The module and help text of each command, in the order of ``--help``.

The function of a command is named ``<command>_command``.
"""
COMMANDS: dict[str, tuple[str, str]] = {}
for _commands in COMMAND_GROUPS.values():
    COMMANDS.update(_commands)

_CALL = (
    rf"(?<![\w./\\'-]){PROGRAM}(?= (?:--\w+|{'|'.join(COMMANDS)})\b)"
    r"|(?m:^ ?|(?<=&& )|(?<=: ))uv(?= (?:cache|pip|run|tool uninstall|venv) )"
)
"""Pattern for gpuinstall in any command, and for uv at the start of one."""
_EXPORT = r"""(?m)^export (\w+)=(['"]?)(.*?)\2(?=   # |$)"""


def load_command(name: str) -> click.Command:
    """Import the click command with a name from its module."""
    module, _ = COMMANDS[name]
    command: click.Command = getattr(
        import_module(f"gpuinstall.cli.{module}"), f"{name}_command"
    )
    return command


def format_text(text: str, keep: str = "") -> str:
    """Sanitize a text, and adapt its commands to the shell.

    A program that is not on PATH gets its path.

    Args:
        text: The text, such as a sentence or the lines of a hint.
        keep: Characters that are not escaped.
    """
    shell = detect_shell()

    def locate(call: re.Match[str]) -> str:
        from shutil import which  # slow to import: it loads decompressors

        from gpuinstall.base.uv import uv

        name = call[0].strip()
        if which(name):
            return call[0]
        path = find_command_file() if name == PROGRAM else uv()
        program = quote_word(path, shell)
        # PowerShell prints a quoted word instead of running it.
        is_quoted = shell == "powershell" and program.startswith("'")
        return call[0].replace(name, f"& {program}" if is_quoted else program)

    text = re.sub(_CALL, locate, text)
    if shell == "powershell":
        text = re.sub(_EXPORT, r"$env:\1 = '\3'", text)
    return sanitize(text, keep)
