"""Define commands, and print their outcomes and errors."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from gpuinstall.base.advice import Hint, list_commands, make_change
from gpuinstall.base.errors import GpuInstallError, UsageError
from gpuinstall.base.finding import Finding
from gpuinstall.base.text import MAX_NAMES, sanitize
from gpuinstall.base.values import Value, replace
from gpuinstall.cli.active import enter_project_folder
from gpuinstall.cli.commands import COMMANDS, format_hint
from gpuinstall.cli.options import (
    OUTPUT_OPTIONS,
    CommandOptions,
    is_on_command_line,
    make_parameter,
    relocate_value,
)
from gpuinstall.cli.terminal import (
    CURRENT_TERMINAL,
    OutputError,
    Terminal,
    apply_hints,
)

Row = tuple[str, Hint]
"""Line of output with a label and a text."""


class Outcome(Value):
    """Result of a command, as JSON data and as text."""

    data: dict[str, Any] | None
    """The ``data`` of the JSON document. None after an early error."""
    show: Callable[[Terminal], None] | Sequence[Row]
    """The labeled lines, printed before the errors.

    Or a function that prints all text, even with ``--quiet``.
    """
    exit_code: int = 0
    errors: tuple[Finding, ...] = ()
    is_partial: bool = False
    """Whether the command succeeded with problems, such as unusable GPUs."""
    is_always_printed: bool = False
    """Whether the lines of a success are printed even with ``--quiet``."""


def define_command(
    *rows: str,
    name: str = "",
    hidden: Sequence[str] = (),
    group: Any = None,
    uses_project: bool = True,
    **settings: Any,
) -> Callable[[Callable[..., Outcome]], Any]:
    """Return a decorator that converts a function to a click command.

    The function receives its options, and the parameters of click's own decorators
    below this one as keywords. It returns an Outcome or raises a GpuInstallError. The
    command prints the outcome and returns the exit status.

    Args:
        rows: The options of the command, by name in ``CommandOptions``.
        name: The name of the command. Empty: the name of its function.
        hidden: Options that only their environment variables set.
        group: The click group of the command. Its name is in the JSON document.
        uses_project: Whether the command runs in the nearest folder with a request
            instead of the working folder.
        settings: Additional arguments of ``click.command``. The default help of a
            subcommand is the docstring of its function.
    """
    names = (*rows, *hidden, *OUTPUT_OPTIONS)

    def decorate(function: Callable[..., Outcome]) -> Any:
        own_name = name or function.__name__.strip("_").removesuffix("_command")
        top = group.name if group else own_name

        @functools.wraps(function)
        def call(**kwargs: Any) -> int:
            for row in filter(is_on_command_line, hidden):
                raise click.NoSuchOption(f"--{row.replace('_', '-')}")
            terminal = Terminal(**{row: kwargs[row] for row in OUTPUT_OPTIONS})
            CURRENT_TERMINAL.set(terminal)
            with ExitStack() as stack:
                if terminal.verbose:
                    from gpuinstall.base.process import observe_commands

                    stack.callback(MAX_NAMES.reset, MAX_NAMES.set(sys.maxsize))
                    stack.enter_context(observe_commands(terminal.show_command))
                folder = Path()
                try:
                    if uses_project:
                        entered = enter_project_folder(terminal, top == "install")
                        folder = stack.enter_context(entered)
                    values = {
                        row: relocate_value(row, kwargs.pop(row), folder)
                        for row in names
                    }
                    options = CommandOptions(terminal, Path.cwd() / folder, **values)
                    work = functools.partial(function, options, **kwargs)
                    outcome = _run_and_record(options, top, work)
                except GpuInstallError as error:
                    outcome = make_error_outcome(error)
                return print_outcome(terminal, top, outcome)

        # click adds the parameters from the function's own decorators.
        params = [make_parameter(row, is_hidden=row in hidden) for row in names]
        command = (group or click).command
        if group is None:
            settings.setdefault("help", COMMANDS[own_name])
        return command(own_name, params=params, **settings)(call)

    return decorate


def define_group(name: str) -> tuple[click.Group, Callable[..., Callable[..., Any]]]:
    """Return an empty group of commands, and the function that defines one."""
    group = click.Group(name, help=COMMANDS[name])
    return group, functools.partial(define_command, group=group)


def make_error_outcome(error: GpuInstallError) -> Outcome:
    """Convert an error to the outcome of a command."""
    return Outcome(error.data, (), error.exit_code, errors=(error.finding,))


def make_command_document(name: str, outcome: Outcome) -> dict[str, Any]:
    """Create the JSON document that a command prints."""
    status = "partial" if outcome.is_partial else "success"
    document: dict[str, Any] = {
        "gpuinstall": 1,
        "command": name,
        "status": "error" if outcome.exit_code else status,
        "exit_code": outcome.exit_code,
    }
    if outcome.data is not None:
        document["data"] = outcome.data
    document["errors"] = errors = []
    for error in outcome.errors:
        finding = replace(error, fixes=apply_hints(error.fixes))
        errors.append(
            {
                "code": finding.code,
                "message": finding.message,
                "why": (finding.why or "").splitlines(),
                "do": list_commands(finding.fixes, format_hint),
                "hint": finding.fix,
            }
        )
        if finding.id:
            errors[-1]["id"] = finding.id
    return document


def _run_and_record(
    options: CommandOptions,
    name: str,
    work: Callable[[], Outcome],
) -> Outcome:
    """Run a command, and write its node record if ``--record`` is given.

    Args:
        options: The options. The command stores its machine in ``read_machine``.
        name: The name of the command.
        work: The command.
    """
    folder = options.record
    if folder is None:
        return work()
    from gpuinstall.cli.node_records import UNFINISHED, find_node_name, write_record

    node = find_node_name()
    # Write a record early, so that a read-only folder fails before the command and a
    # killed process leaves a record.
    write_record(folder, node, name, None, UNFINISHED)
    try:
        outcome = work()
    except GpuInstallError as error:
        outcome = make_error_outcome(error)
    document = make_command_document(name, outcome)
    write_record(folder, node, name, options.read_machine, document)
    return outcome


def print_outcome(terminal: Terminal, name: str, outcome: Outcome) -> int:
    """Print the outcome of a command and return the exit status."""
    show = outcome.show
    if terminal.prints_json:
        terminal.print_document(make_command_document(name, outcome))
    elif callable(show):
        show(terminal)
    elif not terminal.quiet or outcome.exit_code or outcome.is_always_printed:
        for label, text in show:
            terminal.print_field(label, text)
        for error in outcome.errors:
            terminal.fault(error)
    return outcome.exit_code


def print_error(terminal: Terminal, name: str, error: GpuInstallError) -> int:
    """Print the error of a command and return the exit status."""
    if isinstance(error, OutputError):
        terminal.fault(error.finding)
        return error.exit_code
    return print_outcome(terminal, name, make_error_outcome(error))


def confirm(question: str, unchanged: str, details: Sequence[str] = ()) -> None:
    """Ask a yes-or-no question.

    Args:
        question: The question.
        unchanged: The message of the error.
        details: Lines to print before the question.

    Raises:
        UsageError: The user answers no, or stdin is not a terminal or has ended.
    """
    lines = [sanitize(line) for line in details]
    has_terminal = sys.stdin is not None and sys.stdin.isatty()
    if has_terminal:
        for line in lines:
            click.echo(line, err=True)
    answer = _ask(question) if has_terminal else None
    if not answer:
        raise UsageError(
            "not-confirmed",
            unchanged,
            why="stdin is not a terminal" if answer is None else None,
            evidence="\n".join(lines),
            hint=make_change("--yes"),
        )


def _ask(question: str) -> bool | None:
    """Return the user's answer, or None at the end of the input."""
    try:
        return click.confirm(sanitize(question), err=True)
    except click.Abort as error:
        # On Windows, NUL is a terminal without input.
        if isinstance(error.__context__, EOFError):
            click.echo(err=True)  # ends the line of the question
            return None
        raise
