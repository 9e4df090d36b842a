"""The outcome of a command, and the frame around each: errors become exit statuses and JSON documents."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from gpuinstall.base.errors import GpuInstallError, UsageError
from gpuinstall.base.finding import Finding
from gpuinstall.base.text import MOST_NAMES, visible
from gpuinstall.base.values import Value
from gpuinstall.cli.active import served
from gpuinstall.cli.options import EVERYWHERE, CommandOptions, located, parameter
from gpuinstall.cli.terminal import CURRENT, OutputError, Terminal, advised_finding
from gpuinstall.sources.sources import SYSTEM_CERTIFICATES

Row = tuple[str, str]
"""A label and what stands behind it."""


class Outcome(Value):
    """How a command ended."""

    data: dict[str, Any] | None
    """Its part of the JSON document; None if nothing could be made of it."""
    show: Callable[[Terminal], None] | Sequence[Row]
    """The same for a person: rows, or what writes it if it is a table or a text."""
    exit_code: int = 0
    errors: tuple[Finding, ...] = ()
    is_partial: bool = False
    """Whether only a part of the machine can be used, or of what was examined is sound."""
    is_news: bool = False
    """Whether it is what was found or asked for, and is printed with ``--quiet`` too: what was done is no news."""


def framed(
    name: str,
    text: str,
    *rows: str,
    hidden: Sequence[str] = (),
    group: Any = None,
    serves_folder: bool = True,
    **settings: Any,
) -> Callable[[Callable[..., Outcome]], Any]:
    """Return a decorator that makes a click command of a function, with a Terminal, and prints its outcome.

    The function takes the values of its options, and by name what further decorators of click below this one add. It
    returns an Outcome or raises our errors; the command returns the exit status.

    Args:
        name: What it is called.
        text: Its help.
        rows: Its options, by their names in the table of options.
        hidden: Rows that count only by their variables.
        group: The group of commands that it is in, under whose name its document is.
        serves_folder: Whether it works in the nearest folder above that asks for something, not where it was typed.
        settings: Further ones of click's.
    """
    names = (*rows, *hidden, *EVERYWHERE)
    top = group.name if group else name

    def decorate(function: Callable[..., Outcome]) -> Any:
        @functools.wraps(function)
        def call(**kwargs: Any) -> int:
            terminal = Terminal(**{row: kwargs[row] for row in EVERYWHERE})
            CURRENT.set(terminal)
            with ExitStack() as stack:
                if terminal.verbose:
                    from gpuinstall.base.process import followed_by

                    stack.callback(MOST_NAMES.reset, MOST_NAMES.set(sys.maxsize))
                    stack.enter_context(followed_by(terminal.show_command))
                folder = Path()
                if serves_folder:
                    folder = stack.enter_context(
                        served(terminal, installs=top == "install")
                    )
                values = {row: located(row, kwargs.pop(row), folder) for row in names}
                options = CommandOptions(terminal, Path.cwd() / folder, **values)
                work = functools.partial(function, options, **kwargs)
                return present(terminal, top, _recorded(options, top, work))

        # click adds those of the function's own decorators.
        params = [parameter(row, is_hidden=row in hidden) for row in names]
        command = (group or click).command
        return command(name, help=text, params=params, **settings)(call)

    return decorate


def _with_certificates(work: Callable[[], Outcome], terminal: Terminal) -> Outcome:
    """Do a work; again with the system's certificates if a server's issuer is unknown, as a company's is to uv.

    Args:
        work: Is ended by an error of a server before it changes anything.
        terminal: Is told of the second attempt.
    """
    try:
        return work()
    except GpuInstallError as error:
        if not error.untrusted or SYSTEM_CERTIFICATES in os.environ:
            raise
    os.environ[SYSTEM_CERTIFICATES] = "1"
    terminal.step(
        "Certificates",
        "the system's own: the built-in ones do not know an index's issuer",
    )
    return work()


def failure(error: GpuInstallError) -> Outcome:
    """Return the outcome of a command that an error ended, with what could still be made of its data."""
    return Outcome(
        error.data,
        lambda screen: screen.fault(error),
        error.exit_code,
        errors=(advised_finding(error),),
    )


def document_of(name: str, outcome: Outcome) -> dict[str, Any]:
    """Return the JSON document of a command that ended.

    Args:
        name: What the command is called.
        outcome: How it ended.
    """
    status = "partial" if outcome.is_partial else "success"
    document: dict[str, Any] = {
        "gpuinstall": 1,
        "command": name,
        "status": "error" if outcome.exit_code else status,
        "exit_code": outcome.exit_code,
    }
    if outcome.data is not None:
        document["data"] = outcome.data
    return {**document, "errors": list(map(_entry, outcome.errors))}


def _entry(finding: Finding) -> dict[str, Any]:
    """Return what is wrong as documents hold it."""
    entry = {"code": finding.code, "message": finding.message, "hint": finding.fix}
    return entry | {"id": finding.id} if finding.id else entry


def _recorded(
    options: CommandOptions,
    name: str,
    work: Callable[[], Outcome],
) -> Outcome:
    """Return the outcome of a command, and write its record if there is a folder for it.

    Args:
        options: The folder, and the machine once the command has read it.
        name: What the command is called.
        work: Runs it.
    """
    folder = options.record
    try:
        if folder:
            from gpuinstall.base.node_records import UNENDED, this_node, write_record

            # It stays if this process is killed; and a folder that cannot be written is found now.
            write_record(folder, this_node(), name, None, UNENDED)
        outcome = _with_certificates(work, options.terminal)
    except GpuInstallError as error:
        outcome = failure(error)
    if folder:
        document = document_of(name, outcome)
        write_record(folder, this_node(), name, options.read_machine, document)
    return outcome


def present(
    terminal: Terminal,
    name: str,
    outcome: Outcome,
) -> int:
    """Print the outcome of a command, as a document or for a person; return its exit status.

    Args:
        terminal: Where, and how much.
        name: What the command is called.
        outcome: How it ended.
    """
    show = outcome.show
    if terminal.is_for_programs:
        terminal.document(document_of(name, outcome))
    elif terminal.quiet and not (outcome.exit_code or outcome.is_news):
        pass
    elif callable(show):
        show(terminal)
    else:
        for label, text in show:
            terminal.field(label, text)
    return outcome.exit_code


def fail(
    terminal: Terminal,
    name: str,
    error: GpuInstallError,
) -> int:
    """Print an error, as a document or for a person; return its exit status.

    Args:
        terminal: Where, and how much.
        name: What the command is called.
        error: What ended it.
    """
    if isinstance(error, OutputError):
        terminal.fault(error)
        return error.exit_code
    return present(terminal, name, failure(error))


def confirm(question: str, unchanged: str) -> None:
    """Ask a question.

    Raises:
        UsageError: What is ``unchanged``, as the answer is no or there is no terminal to ask in.
    """
    has_terminal = sys.stdin is not None and sys.stdin.isatty()
    if not (has_terminal and click.confirm(visible(question), err=True)):
        raise UsageError("not-confirmed", unchanged, hint="Run it again with --yes")
