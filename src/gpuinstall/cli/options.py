"""Options that several commands share, and the frame around each command: errors become exit codes and documents."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click

from gpuinstall.cli.envelope import Outcome, envelope, failure
from gpuinstall.cli.terminal import OutputError, Terminal
from gpuinstall.errors import GpuInstallError

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
F = TypeVar("F", bound="Callable[..., Any]")

venv = click.option(
    "--venv", metavar="DIR", default=".venv", envvar="GPUINSTALL_VENV", help="The environment; default .venv."
)
offline = click.option("--offline", is_flag=True, envvar="GPUINSTALL_OFFLINE", help="Ask no server for anything.")
torch_index = click.option(
    "--torch-index", envvar="GPUINSTALL_TORCH_INDEX", metavar="URL", help="The base of PyTorch's index."
)

_OUTPUT = (
    click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout and nothing else there."),
    click.option("-q", "--quiet", is_flag=True, envvar="GPUINSTALL_QUIET", help="Print no progress."),
    click.option("-v", "--verbose", is_flag=True, help="Print the commands that are run."),
    click.option(
        "--progress/--no-progress", default=True, envvar="GPUINSTALL_PROGRESS", help="Draw live progress bars."
    ),
    click.option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        envvar="GPUINSTALL_COLOR",
        help="When to use colour.",
    ),
)


def command(name: str) -> Callable[[Callable[P, Outcome]], Callable[..., int]]:
    """Frame a command: give it a Terminal as first argument, print what it comes to, return its exit status.

    Used below ``@click.command(name)`` and its options; the function returns an Outcome or raises our errors.
    """

    def decorate(function: Callable[..., Outcome]) -> Callable[..., int]:
        @functools.wraps(function)
        def framed(
            *args: Any, as_json: bool, quiet: bool, verbose: bool, progress: bool, color: Any, **kwargs: Any
        ) -> int:
            terminal = Terminal(json=as_json, quiet=quiet, verbose=verbose, progress=progress, color=color)
            try:
                return present(terminal, name, function(terminal, *args, **kwargs))
            except GpuInstallError as error:
                return fail(terminal, name, error)

        for option in reversed(_OUTPUT):
            framed = option(framed)
        return framed

    return decorate


def present(terminal: Terminal, name: str, outcome: Outcome) -> int:
    """Print what a command came to, as a document or for a person; return its exit status."""
    if terminal.json:
        terminal.line(json.dumps(envelope(name, outcome), indent=2))
    else:
        outcome.show(terminal)
    return outcome.exit_code


def fail(terminal: Terminal, name: str, error: GpuInstallError) -> int:
    """Print an error, as a document or for a person; return its exit status."""
    if terminal.json and not isinstance(error, OutputError):
        terminal.line(json.dumps(failure(name, error), indent=2))
    else:
        terminal.fault(error)
    return error.exit_code
