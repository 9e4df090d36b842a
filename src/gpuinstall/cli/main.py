"""The command line's entrance: one lazily imported module a command, and nothing but our own errors leaves it.

What bootstrap.py was given is read here too: a command of ours with its options, or what is to be installed.
"""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import click

from gpuinstall import __version__
from gpuinstall.cli.outcome import fail, terminal_class
from gpuinstall.errors import (
    GpuInstallError,
    InstallationError,
    InternalError,
    InterruptedByUserError,
    UsageError,
)
from gpuinstall.files import close_umask, keep_temporary_files_apart
from gpuinstall.interruption import TransferInterrupted
from gpuinstall.shell import joined, quoted

COMMAND_GROUPS: dict[str, dict[str, str]] = {
    "Every day": {
        "install": "Install PyTorch and other packages, built for your GPUs and proven on them.",
        "remove": "Remove packages, and what only they needed.",
        "run": "Run a command in the environment, without activating it.",
        "doctor": "Find what is wrong with this machine and its PyTorch, and how to fix it.",
        "explain": "Find the cause of an error message.",
        "verify": "Prove that a PyTorch works on every GPU here, whoever installed it.",
        "plan": "Show which build you would get, and why; change nothing.",
    },
    "Teams": {
        "lock": "Lock the exact files for each kind of machine.",
        "sync": "Install exactly the lock that fits this machine.",
        "export": "Write a lock for other tools: pip, conda, uv projects, Docker.",
        "hook": "Make plain uv and pip install builds that run here, everywhere or in one folder.",
        "shellenv": "Make plain uv and pip in this shell keep the same build.",
    },
    "Fleets": {
        "fleet": "Install and verify on every node of a cluster, through Slurm or Ray.",
        "node": "Run one step of a fleet on this node.",
    },
    "More": {
        "probe": "Show your GPUs, driver and system.",
        "table": "Show which PyTorch runs on which GPU and driver.",
        "extensions": "Show which prebuilt files of flash-attn and others load here.",
        "page": "Write an HTML page that shows which PyTorch runs on which GPU.",
        "catalog": "Show the known builds, and read unknown ones from their wheels.",
        "env": "List and remove the environments made by gpuinstall.",
        "self": "Show, update or remove gpuinstall itself.",
        "completion": "Set up TAB completion in your shell.",
    },
}
"""What each command does, in the order and under the headings of ``gpuinstall --help``."""
COMMANDS = dict(chain.from_iterable(commands.items() for commands in COMMAND_GROUPS.values()))
HANDED_OVER = "bootstrap"
"""The first word of a command line that comes from bootstrap.py."""
_OF_FILES = frozenset(
    {
        errno.EACCES,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOTDIR,
        errno.EPERM,
        errno.EROFS,
    }
)
"""What is the matter with a file or a folder, and not with the code that uses it."""
_LONG_PATH = 255
HELP: dict[str, Any] = {"help_option_names": ["-h", "--help"]}
"""How help is asked for; click makes the option of a command once, as the first who reads the command says."""


class Commands(click.Group):
    """Commands whose modules are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Name the commands in the order of use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"gpuinstall.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; raise UsageError with the one that was meant, as far as that can be told."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            meant = suggestion(args[0])
            hint = f"gpuinstall {joined([meant, *args[1:]])}" if meant else "gpuinstall help"
            raise UsageError("usage", f"no such command: {args[0]!r}", hint=hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        # All groups together, so that the descriptions stand below each other throughout.
        width = max(map(len, COMMANDS))
        for heading, commands in COMMAND_GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(f"{name:<{width}}", text) for name, text in commands.items()])


@click.command(cls=Commands, context_settings=HELP)
@click.version_option(__version__, "-V", "--version", prog_name="gpuinstall")
def entrance() -> None:
    """Install the PyTorch build that runs on this machine's GPUs, lock it, and prove it with kernels."""


def run_command_line(arguments: list[str]) -> int:
    """Run a command line; return the exit status."""
    close_umask()
    keep_temporary_files_apart()
    words = arguments
    try:
        if arguments[:1] == [HANDED_OVER]:
            sys.argv[1:] = words = handed_over(arguments[1:])
        status = _run([*words[1:], "--help"] if words[:1] == ["help"] else words)
        if words is not arguments and status == 0:
            _say_where(words)
        return status  # noqa: TRY300  what is said of where it lies may fail too
    except click.ClickException as error:
        return _fail(
            arguments,
            UsageError("usage", error.format_message(), hint=f"{_named(arguments)} --help"),
        )
    except (click.Abort, KeyboardInterrupt) as stop:
        interrupted = InterruptedByUserError("interrupted", "interrupted")
        interrupt = stop.__cause__ or stop  # click makes an Abort of each KeyboardInterrupt
        if isinstance(interrupt, TransferInterrupted):
            interrupted.why, interrupted.hint = interrupt.kept, "the same again"
        return _fail(arguments, interrupted)
    except GpuInstallError as error:
        return _fail(arguments, error)
    except Exception as error:
        if lack := _missing_folder(error) or _exhausted(error) or _unusable(error):
            return _fail(arguments, lack)
        if "--verbose" in arguments or "-v" in arguments:
            raise
        message = f"a bug in gpuinstall: {type(error).__name__}: {error}"
        hint = "the same with --verbose   # shows where; please report it"
        return _fail(arguments, InternalError("internal", message, hint=hint))


def handed_over(arguments: list[str]) -> list[str]:
    """Make a command line of what bootstrap.py was given: one of ours, else ``install``.

    Raise UsageError for a bare word that is a command in the wrong place, or looks like one that was mistyped: it is
    never taken for a package.
    """
    if arguments[:1] and arguments[0] in {*COMMANDS, "help", "-V", "--version"}:
        return arguments
    for word in _requirements(arguments):
        if command := likely_command(word):
            return _decided(word, command, arguments)
    return ["install", *arguments]


def likely_command(word: str) -> str | None:
    """The command that a bare word is, or is one letter away from: changed, left out, added, or two exchanged."""
    word = word.lower()
    return (
        word
        if word in COMMANDS
        else next((command for command in COMMANDS if _is_near(word, command)), None)
    )


def suggestion(word: str) -> str | None:
    """The command that somebody who typed ``word`` is likely to have meant."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, COMMANDS, 1)), None)


def _requirements(arguments: list[str]) -> list[str]:
    """The words that ``install`` would take for packages; none where it would not take the line at all."""
    from gpuinstall.cli.install import command

    with suppress(click.ClickException, click.exceptions.Exit):
        context = command.make_context("install", list(arguments), resilient_parsing=True, **HELP)
        return [str(word) for word in context.params.get("requirements") or ()]
    return []


def _decided(word: str, command: str, arguments: list[str]) -> list[str]:
    """Ask where somebody can answer; else raise UsageError with both lines."""
    from gpuinstall.cli.self import path_line
    from gpuinstall.launcher import command_file

    rest = list(arguments)
    rest.remove(word)
    likeness = "is a command" if word == command else f"looks like the command {command}"
    there = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    if there and click.confirm(
        f"{word} {likeness}. Run gpuinstall {joined([command, *rest])}?", default=True, err=True
    ):
        return [command, *rest]
    ours = quoted(command_file()) if path_line(os.environ) else "gpuinstall"
    lines = f"{ours} {joined([command, *rest])}", f"{ours} {joined(['install', *arguments])}"
    hint = f"{lines[0]}   # the command\n{lines[1]}   # a package of that name"
    raise UsageError(
        "command-or-package", f"{word} {likeness}: no package of that name is installed", hint=hint
    )


def _is_near(word: str, command: str) -> bool:
    """Say whether two words are one stroke apart."""
    shorter, longer = sorted((word, command), key=len)
    if len(longer) - len(shorter) > 1:
        return False
    start = next(
        (at for at, pair in enumerate(zip(shorter, longer, strict=False)) if pair[0] != pair[1]),
        len(shorter),
    )
    rest, more = shorter[start:], longer[start:]
    exchanged = len(rest) > 1 and rest[:2] == more[1::-1] and rest[2:] == more[2:]
    return exchanged or rest == more[1:] or (len(rest) == len(more) and rest[1:] == more[1:])


def _say_where(arguments: list[str]) -> None:
    """Say where bootstrap.py has put the command, and how it comes onto PATH, while it is not there."""
    from gpuinstall.cli.self import path_line
    from gpuinstall.launcher import command_file

    quiet = {"-q", "--quiet", "--json", "--json-events"} & set(arguments) or os.environ.get(
        "GPUINSTALL_QUIET"
    )
    if not quiet and (line := path_line(os.environ)):
        screen, program = terminal_class(events=False)(), command_file()
        screen.step("PATH", line)
        screen.step("", f"{quoted(program)} self path --write   # for every new shell")


def _run(arguments: list[str]) -> int:
    try:
        return int(entrance.main(arguments, prog_name="gpuinstall", standalone_mode=False) or 0)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.exceptions.NoArgsIsHelpError as wanted:
        click.echo(wanted.ctx.get_help())
        # The program by itself asks what it can do; a group such as "export" lacks its command.
        return 0 if wanted.ctx.parent is None else UsageError.exit_code


def _missing_folder(error: Exception) -> UsageError | None:
    """The folder that a command ended for want of: the one that it works in, or a home; None where it is neither."""
    try:
        Path.cwd()
        Path.home()
    except FileNotFoundError:
        return UsageError("folder-missing", "the working folder no longer exists", hint="cd")
    except RuntimeError:
        message, hint = "this user has no home folder", "export HOME=/path/to/folder"
        return (
            UsageError("home-missing", message, hint=hint)
            if isinstance(error, RuntimeError)
            else None
        )
    return None


def _exhausted(error: Exception) -> InstallationError | None:
    """What of the machine a command ran out of, or may have no more of: no fault of ours; None where it is neither."""
    if isinstance(error, MemoryError) or "can't start new thread" in str(error):
        message = "out of memory, or at this shell's memory limit"
        return InstallationError("no-memory", message, hint="free -h; ulimit -v; ulimit -u")
    number = error.errno if isinstance(error, OSError) else None
    if number == errno.EFBIG:
        message = "a file is larger than this shell's limit allows"
        return InstallationError("file-limit", message, hint="ulimit -f unlimited")
    if number in {errno.EMFILE, errno.ENFILE}:
        message = "too many files are open for this shell's limit"
        return InstallationError("open-files", message, hint="ulimit -n 1024")
    where = getattr(error, "filename", None) or os.environ.get("TMPDIR") or "/tmp"  # noqa: S108  named alone
    if number in {errno.ENOSPC, errno.EDQUOT} or "No usable temporary directory" in str(error):
        hint = (
            "df -h; df -i   # or another folder for temporary files: export TMPDIR=/path/to/folder"
        )
        return InstallationError("no-space", f"no space left for {where}", hint=hint)
    return None


def _unusable(error: Exception) -> GpuInstallError | None:
    """Return what of the user's files or settings ended a command; None if it is none of these."""
    if isinstance(error, RecursionError):
        message = "a file or a requirement is nested deeper than gpuinstall reads"
        return UsageError("nested-too-deep", message)
    if (
        isinstance(error, OSError)
        and error.errno in _OF_FILES
        and isinstance(error.filename, (str, bytes))
    ):
        path = os.fsdecode(error.filename)
        message = f"{path} cannot be used: {error.strerror}"
        hint = f"ls -ld {quoted(path)}" if len(path) < _LONG_PATH else None
        return InstallationError("file-unusable", message, hint=hint)
    return None


def _fail(arguments: list[str], error: GpuInstallError) -> int:
    events = "--json-events" in arguments
    return fail(
        terminal_class(events=events)(events or "--json" in arguments), _command(arguments), error
    )


def _command(arguments: list[str]) -> str:
    return next((argument for argument in arguments if argument in COMMANDS), "gpuinstall")


def _named(arguments: list[str]) -> str:
    command = _command(arguments)
    return command if command == "gpuinstall" else f"gpuinstall {command}"
