"""What a command comes to, and the frame around each command: errors become exit statuses and JSON documents."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, NamedTuple, ParamSpec

import click

from gpuinstall.cli.run_log import LOGGED, RunLog
from gpuinstall.cli.terminal import OutputError, Terminal, hint_of, page_of
from gpuinstall.errors import GpuInstallError
from gpuinstall.text import MOST_NAMES

P = ParamSpec("P")
Status = Literal["success", "partial", "error"]

VERSION = 1
_OUTPUT_OPTIONS = (
    click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout."),
    click.option(
        "--json-events", is_flag=True, help="Print progress as JSON lines, with the document last."
    ),
    click.option(
        "-q", "--quiet", is_flag=True, envvar="GPUINSTALL_QUIET", help="Print only errors."
    ),
    click.option(
        "-v", "--verbose", is_flag=True, help="Print the commands that run, and lists in full."
    ),
    click.option(
        "--progress/--no-progress",
        default=True,
        envvar="GPUINSTALL_PROGRESS",
        help="Show progress bars.",
    ),
    click.option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        envvar="GPUINSTALL_COLOR",
        help="When to use colour.",
    ),
)


class Outcome(NamedTuple):
    """What a command came to: its document, its exit status, and how a person reads it."""

    data: dict[str, Any]
    show: Callable[[Terminal], None]
    status: Status = "success"
    exit_code: int = 0
    errors: tuple[dict[str, Any], ...] = ()


def framed(name: str) -> Callable[[Callable[P, Outcome]], Callable[..., int]]:
    """Frame a command: give it a Terminal as first argument, print what it comes to, return its exit status.

    Used below ``@click.command(name)`` and its options; the function returns an Outcome or raises our errors.
    """

    def decorate(function: Callable[..., Outcome]) -> Callable[..., int]:
        @functools.wraps(function)
        def call(
            *args: Any,
            as_json: bool,
            json_events: bool,
            quiet: bool,
            verbose: bool,
            progress: bool,
            color: Any,
            **kwargs: Any,
        ) -> int:
            log = RunLog(name, sys.argv[1:]) if name in LOGGED else None
            kind = terminal_class(events=json_events)
            terminal = kind(as_json or json_events, quiet, verbose, progress, color, log=log)
            MOST_NAMES.set(sys.maxsize if verbose else MOST_NAMES.get())
            with _followed(terminal):
                try:
                    return present(terminal, name, function(terminal, *args, **kwargs))
                except GpuInstallError as error:
                    return fail(terminal, name, error)
                except Exception:
                    import traceback

                    terminal.record(traceback.format_exc())
                    raise

        for option in reversed(_OUTPUT_OPTIONS):
            call = option(call)
        return call

    return decorate


def terminal_class(*, events: bool) -> type[Terminal]:
    """The terminal for people, and for programs that want one document; or that for programs that follow a run."""
    if not events:
        return Terminal
    from gpuinstall.cli.events import EventTerminal

    return EventTerminal


def _followed(terminal: Terminal) -> AbstractContextManager[None]:
    """Have the programs that are run shown, or kept, where that is wanted."""
    if not (terminal.verbose or terminal.log):
        return nullcontext()
    from gpuinstall.process import heard_by

    return heard_by(terminal)


def present(terminal: Terminal, name: str, outcome: Outcome) -> int:
    """Print what a command came to, as a document or for a person; return its exit status."""
    if terminal.as_json:
        document = {**_head(name, outcome.status, outcome.exit_code), "data": outcome.data}
        terminal.document({**document, "errors": list(outcome.errors)})
    elif not terminal.quiet or name not in LOGGED or outcome.exit_code:
        outcome.show(terminal)
    return outcome.exit_code


def fail(terminal: Terminal, name: str, error: GpuInstallError) -> int:
    """Print an error, as a document or for a person; ``data`` is there whenever it could be made."""
    if terminal.as_json and not isinstance(error, OutputError):
        document = _head(name, "error", error.exit_code) | (
            {"data": error.data} if error.data is not None else {}
        )
        terminal.document({**document, "errors": [error_entry(error)]})
    else:
        terminal.fault(error)
    return error.exit_code


def error_entry(error: GpuInstallError) -> dict[str, Any]:
    """Write one error as documents hold it."""
    page = {"page": page_of(error.id)} if error.id else {}
    return {"code": error.code, "message": error.message, "hint": hint_of(error), **page}


def _head(name: str, status: Status, exit_code: int) -> dict[str, Any]:
    return {"gpuinstall": VERSION, "command": name, "status": status, "exit_code": exit_code}
