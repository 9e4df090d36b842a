"""The command line's entrance: one lazily imported module a command, and nothing but our own errors leaves it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from shlex import join

import click

from gpuinstall import __version__
from gpuinstall.cli.handover import HANDED_OVER, handed_over
from gpuinstall.cli.outcome import fail
from gpuinstall.cli.spelling import suggestion
from gpuinstall.cli.terminal import Terminal
from gpuinstall.errors import GpuInstallError, InternalError, InterruptedByUserError, UsageError

COMMANDS = {
    "probe": "Say what this machine is, where each fact was found, what is wrong with it.",
    "plan": "Choose the build, with reasons; change nothing.",
    "install": "Plan, preflight, lock, install, verify, swap.",
    "lock": "Write pylock.<target>.toml for each kind of machine.",
    "sync": "Install exactly the lock that fits this machine.",
    "env": "List and remove the environments that gpuinstall made.",
    "verify": "Run kernels on every GPU of any environment.",
    "doctor": "Find what is wrong with machine, environment and project, and what to do first.",
    "explain": "Find the cause in an error message.",
    "table": "Show which build runs where.",
    "export": "Write the lock in the formats that other tools read.",
    "catalog": "Say what is known of builds, shipped and learned; read wheels that are not known.",
    "node": "Take one step of a fleet's work on this node.",
    "fleet": "The same on every node of a cluster, by Slurm or Ray.",
    "shellenv": "Print what plain uv has to know, for a shell to evaluate.",
}


class Commands(click.Group):
    """Commands whose modules are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Name the commands in the order of use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import one command."""
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = import_module(f"gpuinstall.cli.{cmd_name}").command
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; raise UsageError with the one that was meant, as far as that can be told."""
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            meant = suggestion(args[0], COMMANDS)
            hint = f"gpuinstall {join([meant, *args[1:]])}" if meant else "gpuinstall help"
            raise UsageError("usage", f"there is no command {args[0]!r}", hint=hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="gpuinstall")
def entrance() -> None:
    """Install the PyTorch build that runs on this machine's GPUs, lock it, and prove it with kernels."""


def run(arguments: list[str]) -> int:
    """Run a command line; return the exit status."""
    try:
        return _run(_understood(arguments))
    except click.ClickException as error:
        return _fail(arguments, UsageError("usage", error.format_message(), hint=f"{_named(arguments)} --help"))
    except (click.Abort, KeyboardInterrupt):
        return _fail(arguments, InterruptedByUserError("interrupted", "interrupted"))
    except GpuInstallError as error:
        return _fail(arguments, error)
    except Exception as error:
        if _is_nowhere():
            return _fail(arguments, UsageError("folder-missing", "the working folder was removed", hint="cd"))
        if "--verbose" in arguments or "-v" in arguments:
            raise
        message = f"a fault of gpuinstall: {type(error).__name__}: {error}"
        hint = f"{_named(arguments)} --verbose shows where; please report it"
        return _fail(arguments, InternalError("internal", message, hint=hint))


def _understood(arguments: list[str]) -> list[str]:
    """The same in the words of click: what bootstrap.py handed over, and ``help COMMAND``."""
    if arguments[:1] == [HANDED_OVER]:
        arguments = handed_over(arguments[1:], COMMANDS)
    return [*arguments[1:], "--help"] if arguments[:1] == ["help"] else arguments


def _run(arguments: list[str]) -> int:
    try:
        return int(entrance.main(arguments, prog_name="gpuinstall", standalone_mode=False) or 0)
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except click.exceptions.NoArgsIsHelpError as wanted:
        click.echo(wanted.ctx.get_help())
        return UsageError.exit_code


def _is_nowhere() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _fail(arguments: list[str], error: GpuInstallError) -> int:
    return fail(Terminal(json="--json" in arguments), _command(arguments), error)


def _command(arguments: list[str]) -> str:
    return next((argument for argument in arguments if argument in COMMANDS), "gpuinstall")


def _named(arguments: list[str]) -> str:
    command = _command(arguments)
    return command if command == "gpuinstall" else f"gpuinstall {command}"
