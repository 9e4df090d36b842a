"""The command line's entrance: one lazily imported module a command, and nothing but our own errors leaves it.

What bootstrap.py was given is read here too: a command of ours with its options, or what is to be installed.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import Any

import click

from gpuinstall.base.errors import (
    GpuInstallError,
    InstallationError,
    InternalError,
    InterruptedByUserError,
    UsageError,
)
from gpuinstall.base.files import (
    close_umask,
    keep_temporary_files_apart,
    look_at,
    real_path,
)
from gpuinstall.base.interruption import TransferInterrupted, interrupted
from gpuinstall.base.shell import joined
from gpuinstall.base.version import __version__
from gpuinstall.cli.outcome import fail
from gpuinstall.cli.terminal import CURRENT, Terminal

COMMAND_GROUPS: dict[str, dict[str, str]] = {
    "Every day": {
        "install": "Install PyTorch and other packages for this machine's GPUs, and verify them.",
        "remove": "Remove packages, and dependencies that nothing else requires.",
        "run": "Run a command in the environment without activating it.",
        "doctor": "Find problems in machine, environment, and project; print commands that fix them.",
        "explain": "Look up an error message.",
        "verify": "Run kernels on every GPU, in any environment with PyTorch.",
        "plan": "Show which build a machine gets, and why; change nothing.",
    },
    "Teams": {
        "lock": "Write a lock file for each kind of machine.",
        "sync": "Install exactly the lock file that fits this machine.",
        "export": "Convert lock files for pip, uv, conda, and Docker.",
        "hook": "Make plain pip or uv select builds that run on this machine.",
    },
    "More": {
        "probe": "Show GPUs, driver, system, and their problems.",
        "report": "Summarize results recorded by cluster nodes.",
        "env": "List, roll back, and remove environments.",
        "self": "Remove gpuinstall itself.",
    },
}
"""What each command does, in the order and under the headings of ``gpuinstall --help``."""
COMMANDS: dict[str, str] = {}
for _commands in COMMAND_GROUPS.values():
    COMMANDS.update(_commands)
_MODULES = {
    "remove": "install",
    "sync": "install",
    "report": "probe",
}
"""Whose module a command has, if it has none of its own."""
ALIASES = {"add": "install", "uninstall": "remove"}
"""Commands of pip and uv that work here too."""
HANDED_OVER = "bootstrap"
"""The first word of a command line that comes from bootstrap.py."""
_MACHINE_ERRORS = """
EACCES EDQUOT EFBIG EISDIR ELOOP EMFILE ENAMETOOLONG ENOMEM ENOSPC ENOTDIR EPERM EROFS
"""
"""What is the matter with a file, a disk or a limit, and not with the code that meets it."""
_EXHAUSTED = "can't start new thread|No usable temporary directory"
_RESOURCES = (
    "df -h; df -i; ulimit -a   # what has run out\n"
    "Set TMPDIR to a folder on another disk"
)
HELP: dict[str, Any] = {"help_option_names": ["-h", "--help"]}
"""How help is asked for; click makes the option of a command once, as the first who reads the command says."""


def load_command(name: str) -> click.Command:
    """Import one command."""
    module = import_module(f"gpuinstall.cli.{_MODULES.get(name, name)}")
    attribute = f"{name}_command" if name in _MODULES else "command"
    command: click.Command = getattr(module, attribute)
    return command


class Commands(click.Group):
    """Commands whose modules are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Name the commands in the order of use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import one command."""
        return load_command(cmd_name) if cmd_name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that a line begins with.

        Raises:
            NoSuchCommand: The word is no command.
        """
        word = args[0]
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand:
            # click would guess "remove" for "tree".
            alike = [_nearest_command(word)]
            raise click.exceptions.NoSuchCommand(word, possibilities=alike) from None

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        """List the commands without importing them."""
        # All groups together, so that the descriptions stand below each other throughout.
        width = max(map(len, COMMANDS))
        for heading, commands in COMMAND_GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [(f"{name:<{width}}", text) for name, text in commands.items()]
                )


@click.command(cls=Commands, context_settings=HELP)
@click.version_option(__version__, "-V", "--version", prog_name="gpuinstall")
def entrance() -> None:
    """Install the newest PyTorch build that runs on this machine's GPUs.

    Verify it with kernels, and write lock files that reproduce it on other machines.
    """


def run_command_line(arguments: list[str]) -> int:
    """Run a command line; return the exit status."""
    close_umask()
    keep_temporary_files_apart()
    status = _run_to_the_end(arguments)
    if arguments[:1] == [HANDED_OVER]:
        # What an error advises needs it as well.
        _show_path(arguments)
    return status


def _run_to_the_end(arguments: list[str]) -> int:
    """Run a command line; return the exit status, of an error that is written."""
    fault: GpuInstallError
    CURRENT.set(None)
    try:
        if arguments[:1] == [HANDED_OVER]:
            arguments = handed_over(arguments[1:])
            # What an error advises to run again is made of these words, not of what bootstrap.py was given.
            sys.argv[1:] = arguments
        return _run(arguments)
    except GpuInstallError as error:
        fault = error
    except click.ClickException as error:
        fault = _usage_error(error, arguments)
    except (click.Abort, KeyboardInterrupt) as stop:
        fault = InterruptedByUserError("interrupted", "interrupted")
        # click makes an Abort of each KeyboardInterrupt.
        interrupt = stop.__cause__ or stop
        if isinstance(interrupt, TransferInterrupted):
            fault.why = interrupt.kept
            fault.hint = "Run it again"
    except Exception as error:
        known: GpuInstallError | None = _missing_folder(error) or _known(error)
        # A module that was being loaded makes another exception of it.
        if interrupted():
            known = InterruptedByUserError("interrupted", "interrupted")
        if known is None and _terminal(arguments).verbose:
            raise
        message = f"a bug in gpuinstall: {type(error).__name__}: {error}"
        hint = "Run it again with --verbose: shows where; please report it"
        fault = known or InternalError("internal", message, hint=hint)
    return fail(_terminal(arguments), _command_of(arguments) or "gpuinstall", fault)


def _terminal(arguments: list[str]) -> Terminal:
    """Return the terminal of the command that ran, or for a line that could not be parsed what its words ask for."""
    return CURRENT.get() or Terminal(
        as_json="--json" in arguments,
        as_events="--json-events" in arguments,
        quiet=bool(
            {"--quiet", "-q"} & {*arguments} or os.environ.get("GPUINSTALL_QUIET")
        ),
        verbose=bool({"--verbose", "-v"} & {*arguments}),
    )


def _usage_error(error: click.ClickException, arguments: list[str]) -> UsageError:
    command = _command_of(arguments)
    words = filter(None, ("gpuinstall", command, "--help"))
    hint = " ".join(words)
    if isinstance(error, click.NoSuchOption):
        name = error.option_name
        # click also finds --relax similar to --pre.
        alike = [one for one in error.possibilities or () if one[:4] == name[:4]]
        error = click.NoSuchOption(name, possibilities=alike)
    if command == "sync":
        from gpuinstall.lock.request.declaration import advise_lock

        for word in arguments:
            hint = advise_lock(Path(word)) or hint
    return UsageError("usage", error.format_message(), hint=hint)


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    try:
        return int(
            entrance.main(
                _command_first(arguments), prog_name="gpuinstall", standalone_mode=False
            )
            or 0
        )
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help())
        # The program by itself asks what it can do; a group such as "export" lacks its command.
        return 0 if error.ctx.parent is None else UsageError.exit_code


def _command_first(arguments: list[str]) -> list[str]:
    """Return a line with the options before its command behind it; uv and pip take them in both places."""
    options = list(takewhile(lambda word: word.startswith("-"), arguments))
    word, *words = arguments[len(options) :] or [""]
    command = ALIASES.get(word, word)
    if command not in COMMANDS or {"-V", "--version"} & {*options}:
        return arguments
    if words and words[0] in getattr(load_command(command), "commands", ()):
        options.insert(0, words.pop(0))
    return [command, *options, *words]


def handed_over(arguments: list[str]) -> list[str]:
    """Return the command line for what bootstrap.py was given: one of ours, else ``install``.

    Raises:
        UsageError: for a bare word that is a command in the wrong place: it is never taken for a package.
    """
    # Who asks bootstrap.py for help looks for all commands, not for the options of one.
    of_program = {"help", "-h", "--help", "-V", "--version"}
    if {*COMMANDS, *ALIASES, *of_program}.intersection(arguments[:1]):
        return arguments
    for word in arguments:
        command = _nearest_command(word)
        # What is merely spelled like a command may be the value of an option, or a package beside another.
        if command and (word == arguments[0] or word.lower() == command):
            from gpuinstall.cli.self import program_name

            rest = list(arguments)
            rest.remove(word)
            program = program_name()
            raise UsageError(
                "command-or-package",
                f"no package {word} is installed: {command} is a command, and comes first",
                hint=f"{program} {joined([command, *rest])}   # the command\n"
                f"{program} {joined(['install', *arguments])}   # a package of that name",
            )
    return ["install", *arguments]


def _nearest_command(word: str) -> str:
    """Return the command that a word is, or is with a typing error; empty if there is none."""
    from difflib import get_close_matches

    word = word.lower()
    commands = [
        name
        for name in COMMANDS
        if name[0] == word[:1] and abs(len(name) - len(word)) < 2  # no reportlab
    ]
    return next(iter(get_close_matches(word, commands, cutoff=0.75)), "")


def _show_path(arguments: list[str]) -> None:
    """Write where bootstrap.py has put the command and how it comes onto PATH, if it is not there."""
    from gpuinstall.cli.self import path_line

    terminal, line = _terminal(arguments), path_line()
    if line and not terminal.is_for_programs:
        terminal.step("PATH", line)


def _missing_folder(error: Exception) -> UsageError | None:
    """Return the error for a working folder or a home that does not exist; None if both do."""
    try:
        Path.cwd()
        Path.home()
    except FileNotFoundError:
        message = "the working folder no longer exists"
        return UsageError("folder-missing", message, hint="cd")
    except RuntimeError:
        if isinstance(error, RuntimeError):
            message = "this user has no home folder"
            return UsageError("home-missing", message, hint="Set HOME to a folder")
    return None


def _known(error: Exception) -> InstallationError | None:
    """Return the error for what the machine or the user's files lack; None for a fault of ours."""
    if isinstance(error, ModuleNotFoundError):
        message = f"gpuinstall's own environment lacks {error.name}"
        remedy = "python3 bootstrap.py --help   # makes it again; pip and pipx: reinstall gpuinstall"
        return InstallationError("tool-incomplete", message, hint=remedy)
    if isinstance(error, MemoryError) or re.search(_EXHAUSTED, str(error)):
        return InstallationError("limit", str(error) or "no memory", hint=_RESOURCES)
    if not isinstance(error, OSError):
        return None
    number = error.errno or 0
    if errno.errorcode.get(number) not in _MACHINE_ERRORS.split():
        return None
    message = os.strerror(number)
    if not error.filename or isinstance(error.filename, int):
        return InstallationError("limit", message, hint=_RESOURCES)
    path = Path(os.fsdecode(error.filename))
    message = f"{path} cannot be used: {message}"
    # A link, such as an environment's Python, may lead into a folder of another user's.
    return InstallationError("file-unusable", message, hint=look_at(real_path(path)))


def _command_of(arguments: list[str]) -> str:
    """Return the name of the command in a line; empty if it has none."""
    names = (ALIASES.get(word, word) for word in arguments)
    return next((name for name in names if name in COMMANDS), "")
