"""Run a command line, import its command lazily, and report all errors.

``bootstrap.py`` passes its own arguments, which are a command line or package names.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from contextvars import copy_context
from pathlib import Path
from typing import Any

import click

from gpuinstall.base.advice import (
    PROGRAM,
    Advice,
    Hint,
    make_change,
    make_command,
    make_shell_line,
)
from gpuinstall.base.errors import (
    GpuInstallError,
    InstallationError,
    InternalError,
    InterruptedByUserError,
    UsageError,
)
from gpuinstall.base.files import (
    make_diagnostic_hint,
    real_path,
    tighten_umask,
    use_private_tmpdir,
)
from gpuinstall.base.interruption import TransferInterrupted, is_interrupted
from gpuinstall.base.version import __version__
from gpuinstall.cli.commands import (
    COMMAND_GROUPS,
    COMMANDS,
    load_command,
    split_command,
)
from gpuinstall.cli.options import OPTIONS_WITH_VALUES
from gpuinstall.cli.outcome import print_error
from gpuinstall.cli.terminal import CURRENT_TERMINAL, Terminal

ALIASES = {"add": "install", "uninstall": "remove"}
"""Commands of gpuinstall by the equivalent command of pip and uv."""
_SAME_OPTIONS = {
    "--torch-backend": "--backend",
    "--index-url": "--default-index",
    "--extra-index-url": "--index",
}
"""Options of gpuinstall by the equivalent option of pip and uv."""
FIRST_BOOTSTRAP = "bootstrap"
"""The first argument of a command line after bootstrap.py created the tool."""
BOOTSTRAP_ARGUMENTS = {FIRST_BOOTSTRAP, "bootstrap-again"}
"""The first arguments of command lines from bootstrap.py."""
_MACHINE_ERRORS = """
EACCES EBUSY EDQUOT EFBIG EIO EISDIR ELOOP EMFILE EMLINK ENAMETOOLONG ENOLCK ENOMEM ENOSPC ENOTDIR
EPERM EROFS ESTALE
"""
"""OSError codes that the machine, not a bug, causes."""
_EXHAUSTION_PATTERN = "can't start new thread|No usable temporary directory"
_RESOURCE_HINT: tuple[Hint, ...] = ("Set TMPDIR to a folder on another disk",)
if os.name == "posix":
    _RESOURCE_HINT = (
        make_shell_line("df -h; df -i; ulimit -a", "shows the exhausted resource"),
        *_RESOURCE_HINT,
    )
HELP: dict[str, Any] = {"help_option_names": ["-h", "--help"]}
"""Settings of every click context, so that click adds one help option."""


class LazyCommandGroup(click.Group):
    """Command group that imports the module of each command on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of all commands, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import the command with a name, or return None if it is unknown."""
        return load_command(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002
        formatter: click.HelpFormatter,
    ) -> None:
        """Write the list of commands into the help without importing them."""
        # One width aligns the descriptions of all groups.
        width = max(map(len, COMMANDS))
        for heading, commands in COMMAND_GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl(
                    [(f"{name:<{width}}", text) for name, text in commands.items()]
                )


@click.command(
    cls=LazyCommandGroup, commands=dict.fromkeys(COMMANDS), context_settings=HELP
)
@click.version_option(__version__, "-V", "--version", prog_name="gpuinstall")
def main_command() -> None:
    """Install the newest PyTorch build that runs on this machine's GPUs.

    Verify it with kernels, and write lock files that reproduce it on other machines.
    """


def run_command_line(arguments: list[str]) -> int:
    """Run a command line and return the exit status."""
    tighten_umask()
    _allow_long_paths()
    use_private_tmpdir()
    if arguments[:1] == [FIRST_BOOTSTRAP]:
        _print_path_command(arguments)
    # Other commands in this process must not use the terminal of this command.
    return copy_context().run(_run_and_report, arguments)


def _allow_long_paths() -> None:
    """Allow paths of 260 characters and more on Windows, as uv does."""
    if sys.platform == "win32":
        if sys.getwindowsversion().platform_version < (10, 0, 15063):
            return
        import ctypes

        find_block = ctypes.windll.ntdll.RtlGetCurrentPeb
        find_block.restype = ctypes.c_void_p
        flags = ctypes.c_ubyte.from_address(find_block() + 3)
        # IsLongPathAwareProcess is not documented. Go's runtime also sets it. Otherwise,
        # Python needs LongPathsEnabled in the registry.
        flags.value |= 0x80


def _run_and_report(arguments: list[str]) -> int:
    """Run a command line, report its error, and return the exit status."""
    fault: GpuInstallError
    try:
        if BOOTSTRAP_ARGUMENTS.intersection(arguments[:1]):
            arguments = convert_bootstrap_arguments(arguments[1:])
        return _run_command(arguments)
    except GpuInstallError as error:
        fault = error
    except click.ClickException as error:
        fault = _convert_usage_error(error, arguments)
    except (click.Abort, KeyboardInterrupt) as stop:
        fault = InterruptedByUserError("interrupted", "interrupted")
        # click raises Abort from a KeyboardInterrupt.
        interrupt = stop.__cause__ or stop
        if isinstance(interrupt, TransferInterrupted):
            fault.why = interrupt.kept
            fault.fixes = ("Run it again",)
    except Exception as error:
        known: GpuInstallError | None = _find_missing_folder(
            error
        ) or _find_machine_error(error)
        # An interrupted import can raise another exception.
        if is_interrupted():
            known = InterruptedByUserError("interrupted", "interrupted")
        if known is None and _get_terminal(arguments).verbose:
            raise
        message = f"a bug in gpuinstall: {type(error).__name__}: {error}"
        hint = make_change("--verbose", note="prints a traceback for the report")
        fault = known or InternalError("internal", message, hint=hint)
    _, command, _ = split_command_line(arguments)
    name = command if command in COMMANDS else PROGRAM
    return print_error(_get_terminal(arguments), name, fault)


def _get_terminal(arguments: list[str]) -> Terminal:
    """Return the command's terminal, or a new one if parsing failed."""
    return CURRENT_TERMINAL.get() or Terminal(
        as_json="--json" in arguments,
        as_events="--json-events" in arguments,
        quiet=bool(
            {"--quiet", "-q"} & {*arguments} or os.environ.get("GPUINSTALL_QUIET")
        ),
        verbose=bool({"--verbose", "-v"} & {*arguments}),
    )


def _convert_usage_error(
    error: click.ClickException, arguments: list[str]
) -> UsageError:
    _, path, _ = split_command(_move_command_first(arguments))
    hint = make_command(" ".join(path), "--help")
    message = error.format_message()
    unknown = error.option_name if isinstance(error, click.NoSuchOption) else ""
    if unknown in _SAME_OPTIONS:
        message = error.message  # without similar options
        same = re.compile(f"^{unknown}(?==|$)")
        own = (same.sub(_SAME_OPTIONS[unknown], word) for word in arguments)
        hint = Advice(PROGRAM, tuple(own))
    if path == ["sync"]:
        from gpuinstall.lock.request.declaration import make_sync_command

        for word in arguments:
            hint = make_sync_command(Path(word)) or hint
    # click lists choices in lines.
    return UsageError("usage", " ".join(message.split()), hint=hint)


def _run_command(arguments: list[str]) -> int:
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    try:
        words = _move_command_first(arguments)
        status = main_command.main(
            words, prog_name="gpuinstall", standalone_mode=False, obj=words
        )
        return int(status or 0)
    except click.exceptions.Exit as request:
        return request.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help())
        # "gpuinstall" alone requests help, but "gpuinstall export" lacks a command.
        return 0 if error.ctx.parent is None else UsageError.exit_code


def split_command_line(arguments: list[str]) -> tuple[list[str], str, list[str]]:
    """Split a command line into leading options, command, and other words.

    uv and pip allow options before the command. The command can be unknown.
    """
    words = list(arguments)
    options: list[str] = []
    while words and words[0].startswith("-") and words[0] != "--":
        has_value = words[0] in OPTIONS_WITH_VALUES
        options += words[: 1 + has_value]
        del words[: 1 + has_value]
    command, *rest = words or [""]
    return options, ALIASES.get(command, command), rest


def _move_command_first(arguments: list[str]) -> list[str]:
    """Move leading options after the command."""
    options, command, words = split_command_line(arguments)
    if command not in COMMANDS or {"-V", "--version"} & {*options}:
        return arguments
    more, subcommand, rest = split_command_line(words)
    if subcommand in getattr(load_command(command), "commands", ()):
        command, options, words = f"{command} {subcommand}", [*options, *more], rest
    return [*command.split(), *options, *words]


def convert_bootstrap_arguments(arguments: list[str]) -> list[str]:
    """Convert bootstrap.py's arguments to a command line.

    Raises:
        UsageError: A command is misplaced and would be parsed as a package.
    """
    # --help lists all commands instead of the options of install.
    of_program = {"help", "-h", "--help", "-V", "--version", "version", "list"}
    if {*COMMANDS, *ALIASES, *of_program}.intersection(arguments[:1]):
        return arguments
    for word in arguments:
        command = _find_nearest_command(word)
        # A similar word after the first can be an option's value or another package.
        if command and (word == arguments[0] or word.lower() == command):
            rest = list(arguments)
            rest.remove(word)
            raise UsageError(
                "command-or-package",
                f"{word} was not installed as a package: {command} is a command and must come first",
                hint=(
                    make_command(command, *rest, note="the command"),
                    make_command("install", *arguments, note="a package of that name"),
                ),
            )
    return ["install", *arguments]


def _find_nearest_command(word: str) -> str:
    """Return the command whose name is similar to a word, or ""."""
    from difflib import get_close_matches

    word = word.lower()
    commands = [
        name
        for name in COMMANDS
        if name[0] == word[:1]
        and abs(len(name) - len(word)) < 2  # excludes the package reportlab
    ]
    return next(iter(get_close_matches(word, commands, cutoff=0.75)), "")


def _print_path_command(arguments: list[str]) -> None:
    """Print a command that adds gpuinstall to PATH, if necessary."""
    from gpuinstall.cli.self import make_path_command

    terminal, line = _get_terminal(arguments), make_path_command()
    if line and not terminal.prints_json:
        terminal.step("PATH", line)


def _find_missing_folder(error: Exception) -> UsageError | None:
    """Return an error if the working folder or home folder is missing."""
    try:
        Path.cwd()
        Path.home()
    except FileNotFoundError:
        message = "the working folder no longer exists"
        return UsageError("folder-missing", message, hint=Advice("cd"))
    except RuntimeError:
        if isinstance(error, RuntimeError):
            message = "this user has no home folder"
            variable = "USERPROFILE" if os.name == "nt" else "HOME"
            hint = f"Set {variable} to an existing folder"
            return UsageError("home-missing", message, hint=hint)
    return None


def _find_machine_error(error: Exception) -> InstallationError | None:
    """Return an error that the machine caused, or None for a bug."""
    if isinstance(error, ModuleNotFoundError):
        message = f"gpuinstall's own environment is incomplete: {error.name} is missing"
        note = "recreates it; with pip or pipx, reinstall gpuinstall"
        hint = Advice("python3", ("bootstrap.py", "--help"), note=note)
        return InstallationError("tool-incomplete", message, hint=hint)
    if isinstance(error, MemoryError) or re.search(_EXHAUSTION_PATTERN, str(error)):
        return InstallationError(
            "limit", str(error) or "out of memory", hint=_RESOURCE_HINT
        )
    if not isinstance(error, OSError):
        return None
    number = error.errno or 0
    if errno.errorcode.get(number) not in _MACHINE_ERRORS.split():
        return None
    message = os.strerror(number)
    if not error.filename or isinstance(error.filename, int):
        return InstallationError("limit", message, hint=_RESOURCE_HINT)
    path = Path(os.fsdecode(error.filename))
    message = f"{path} cannot be used: {message}"
    # An environment's Python can be a link to a file in another user's folder.
    return InstallationError(
        "file-unusable", message, hint=make_diagnostic_hint(real_path(path), error)
    )
