"""``gpuinstall explain``: find the cause of an error message."""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from os.path import exists
from pathlib import Path
from typing import IO

import click

from gpuinstall.base.advice import PROGRAM, make_shell_line
from gpuinstall.base.environment_paths import interpreter
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import decode_text, open_regular
from gpuinstall.base.shell import quote_word
from gpuinstall.catalog.failures.classify import RecognizedCause
from gpuinstall.catalog.failures.table import load_failures
from gpuinstall.cli.active import find_environment
from gpuinstall.cli.commands import format_hint
from gpuinstall.cli.machine_text import format_machine
from gpuinstall.cli.options import CommandOptions
from gpuinstall.cli.outcome import Outcome, define_command
from gpuinstall.cli.terminal import Terminal
from gpuinstall.diagnose.explanation import Explanation, explain_text
from gpuinstall.diagnose.predicates import LocalFact
from gpuinstall.diagnose.reading import read_environment
from gpuinstall.environments.environment import create_hint_placeholders, is_virtual
from gpuinstall.machine.probe import read_machine

LABEL_WIDTH = len("one of")
MAX_LISTED_FAILURES = 5
# A single word that is a path or has the suffix of a log file.
_PATH_PATTERN = r"(?!\S*://)[\w.~:-]*[/\\]\S*[^:\s]|\S+\.(log|txt|out|err|json|md)"
_NUMBER_PATTERN = r"[Ff]?\d{1,4}"
_USAGE = "Append 2>&1 | gpuinstall explain to the command that fails"
MAX_BYTES = 64 << 20
"""The maximum number of bytes to read from each end of a log."""
_BLOCK_BYTES = 1 << 20


@define_command(
    "venv",
    uses_project=False,
    help="Look up an error message: TEXT, a failure number (F38), a file, or stdin.",
)
@click.argument("text", nargs=-1)
def explain_command(options: CommandOptions, *, text: tuple[str, ...]) -> Outcome:
    """Explain an error message, and compare it with this machine."""
    venv = find_environment(options)
    words = _read_placeholders(venv)
    document = _read_text(" ".join(text))
    if not document.strip():
        raise UsageError("text-empty", "there is no text to explain", hint=_USAGE)
    reading = read_environment(venv, read_machine())
    explanation = explain_text(document, reading, words)

    def show(screen: Terminal) -> None:
        for number, cause in enumerate(explanation.causes):
            if number:
                screen.print_line()
            _show_cause(screen, cause, explanation.facts.get(cause.id))
        if not explanation.causes and not explanation.refuted:
            screen.print_line("gpuinstall does not recognize a failure in this text.")
            usage = f"{_USAGE}, to pass its whole output"
            # A file or the standard input would have the same text again.
            is_argument = document == " ".join(text)
            screen.print_rows([("do", usage if is_argument else None)], LABEL_WIDTH)
        _show_ruled_out_causes(screen, explanation)
        torch = f"torch {reading.torch.version}" if reading.torch else "no torch"
        here = f"{torch} in {reading.venv.name} · {format_machine(reading.machine)}"
        other = "the text mentions another torch, GPU, or system"
        rows = [("here", here), ("", other if explanation.is_elsewhere else None)]
        screen.print_line()
        screen.print_rows(rows, LABEL_WIDTH)
        screen.print_line()
        doctor = make_shell_line(
            f"{PROGRAM} doctor{words.get('at', '')}", "checks this machine"
        )
        screen.print_rows([("next", format_hint(doctor))], LABEL_WIDTH)

    return Outcome(explanation.to_dict(), show)


def _show_cause(
    terminal: Terminal, cause: RecognizedCause, fact: LocalFact | None
) -> None:
    failures = load_failures()
    failure = failures.get(cause.id)
    rows: list[tuple[str, str | None]]
    here = fact and fact.message
    rows = [("seen", cause.evidence), ("here", here), ("why", cause.why)]
    # The user requested the failure by its number, so there is no evidence.
    head = f"{cause.certainty}: {cause.title}" if cause.evidence else cause.title
    if failure is None:
        terminal.print_line(": not caused by the driver or the build", head=head)
    else:
        terminal.print_line(f"   [{cause.id}]", head=head)
        narrower = [
            f"{failures[key].title} [{key}]"
            for key in failure.narrows[:MAX_LISTED_FAILURES]
        ]
        rows.append(("one of", "\n".join(narrower)))
        is_certain = cause.certainty == "certain"
        rows.append(("check", None if is_certain else failure.apart))
    terminal.print_rows(rows, LABEL_WIDTH)
    terminal.print_hints(cause.fix, LABEL_WIDTH)


def _show_ruled_out_causes(terminal: Terminal, explanation: Explanation) -> None:
    """Print possible causes that do not apply to this machine."""
    refuted = explanation.refuted
    if not refuted:
        return
    if explanation.causes:
        terminal.print_line()
    facts = {fact.message for fact in explanation.facts.values() if not fact.holds}
    facts -= {fact.message for fact in explanation.facts.values() if fact.holds}
    for fact in sorted(facts):
        terminal.print_line(fact)
    terminal.print_line(
        "Ruled out, unless the text is from another environment (add --venv DIR) or machine:"
    )
    for one in refuted:
        terminal.print_line(f"   {one.title} [{one.id}]")


def _read_placeholders(venv: Path) -> dict[str, str]:
    """Return values for the placeholders in suggested commands."""
    words = {}
    if exists(interpreter(venv)) or is_virtual(venv):
        words = create_hint_placeholders(interpreter(venv))
    for shadow in (Path("torch").absolute(), Path("torch.py").absolute()):
        if exists(shadow):
            words["path"] = quote_word(shadow)
            words["moved"] = quote_word(f"{shadow}.away")
    return words


def _read_text(text: str) -> str:
    """Return the text to explain, from stdin, a file, or ``text`` itself.

    Raises:
        UsageError: The file cannot be read, or the number is not in the catalog.
    """
    if text in {"", "-"}:
        # The parent process may have closed stdin.
        if sys.stdin is None:
            return ""
        if sys.stdin.isatty():
            end = "Ctrl-Z and Enter" if os.name == "nt" else "Ctrl-D"
            sys.stderr.write(
                f"Paste the error, then press {end} on a line of its own:\n"
            )
        return _read_log(sys.stdin.buffer)
    path = Path(text)
    number = re.fullmatch(_NUMBER_PATTERN, text)
    if not number and (exists(path) or re.fullmatch(_PATH_PATTERN, text)):
        # A shell passes the output of a command as a pipe in /dev.
        is_stream = text.startswith(("/dev/", "/proc/"))
        try:
            with path.open("rb") if is_stream else open_regular(path) as file:
                return _read_log(file)
        except OSError as error:
            message = f"{path} cannot be read: {error.strerror}"
            raise UsageError(
                "file-unreadable", message, hint="Check the path"
            ) from None
    if number and f"F{text.lstrip('Ff'):0>2}" not in load_failures():
        if text.isdigit():
            # The number may be a CUDA error code.
            return f"CUDA error {text}"
        message = f"failure {text} is not in the catalog"
        raise UsageError("failure-unknown", message, hint=_USAGE)
    return text


def _read_log(file: IO[bytes]) -> str:
    """Read a log file, but only the start and end of a long file."""
    start = file.read(MAX_BYTES)
    end: deque[bytes] = deque(maxlen=MAX_BYTES // _BLOCK_BYTES)
    # Another read after end-of-file would wait for input on a terminal.
    if len(start) == MAX_BYTES:
        if file.seekable():
            file.seek(max(MAX_BYTES, file.seek(0, os.SEEK_END) - MAX_BYTES))
        end.extend(iter(lambda: file.read(_BLOCK_BYTES), b""))
    return decode_text(b"".join((start, *end)), "replace")
