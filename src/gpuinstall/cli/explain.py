"""``gpuinstall explain``: find the causes of an error message."""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Sequence
from functools import partial
from os.path import exists
from pathlib import Path
from typing import IO

import click

from gpuinstall.base.advice import uv_program
from gpuinstall.base.environment_paths import interpreter
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import decoded
from gpuinstall.base.machine import Environment, Machine
from gpuinstall.base.shell import quoted
from gpuinstall.base.text import number_of
from gpuinstall.catalog.failures.classify import RecognisedCause
from gpuinstall.catalog.failures.table import load_failures
from gpuinstall.cli.active import environment_to_read
from gpuinstall.cli.machine_text import machine_line
from gpuinstall.cli.options import CommandOptions
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.cli.terminal import Terminal
from gpuinstall.diagnose.explanation import Explanation, explain_text
from gpuinstall.diagnose.this_machine import read_this_machine
from gpuinstall.environments.environment import advice_words, is_virtual
from gpuinstall.machine.container import read_container, read_wsl
from gpuinstall.machine.host import read_host
from gpuinstall.machine.source import Source

LABEL = len("one of")
LIKELIEST = 5
# A single word that is a path, or has a suffix of a log.
_PATH = r"(?!\S*://)[\w.~:-]*[/\\]\S*[^:\s]|\S+\.(log|txt|out|err|json|md)"
_NUMBER = r"[Ff]?\d{1,4}"
MOST_BYTES = 64 << 20
"""The bytes read from the start of a log, and from its end."""
_BLOCK = 1 << 20


@framed(
    "explain",
    "Look up an error message: TEXT, a failure's number (F38), a file, or stdin.",
    "venv",
    serves_folder=False,
)
@click.argument("text", nargs=-1)
def command(options: CommandOptions, *, text: tuple[str, ...]) -> Outcome:
    """Explain a text, and compare it with this machine."""
    venv = environment_to_read(options)
    words = _words(venv)
    document = _read_text(" ".join(text))
    explanation = explain_text(
        document,
        partial(read_this_machine, venv),
        here=_here(),
        placeholders=words,
    )

    is_recognised = explanation.causes or explanation.lookalikes
    doctor = f"gpuinstall doctor{words.get('at', '')}"

    def show(screen: Terminal) -> None:
        if not document.strip():
            screen.line("the text is empty: there is nothing to explain")
            return
        _show_causes(screen, (*explanation.causes, *explanation.lookalikes))
        if not is_recognised:
            screen.line("gpuinstall does not recognise a failure in this text.")
        unsure = [cause for cause in explanation.causes if cause.is_unsure]
        if len(unsure) > 1:
            screen.line()
            screen.rows([("tell", f"{doctor}   # which of them it is")], LABEL)
        _show_here(screen, explanation)
        if not is_recognised:
            _show_next_steps(screen, words.get("python", "python"), doctor)
        if explanation.unread:
            screen.line()
            count = number_of(explanation.unread, "line")
            screen.line(
                f"{count} not read: repeated, or between the start and the end of a long text."
            )

    return Outcome(explanation.to_dict(), show, is_news=True)


def _show_here(terminal: Terminal, explanation: Explanation) -> None:
    """Print what this machine has, and the problems that match the text."""
    view = explanation.here
    if view is None:
        return
    machine = view.machine
    torch = f"torch {machine.torch.version}" if machine.torch else "no torch"
    here = f"{torch} in {machine.venv.name} · {machine_line(machine.machine)}"
    rows: list[tuple[str, str | None]] = [("here", here)]
    rows += [("fits", fault.message) for fault in view.fitting]
    # The loader missed these libraries: they are outside its search path.
    rows += [("found", path) for path in view.libraries.values() if path]
    if view.is_elsewhere:
        rows.append(("", "the text is about another torch or another GPU"))
    elif not view.fitting:
        rows.append(("", "no problem found on this machine matches this error"))
    terminal.line()
    terminal.rows(rows, LABEL)


def _show_next_steps(terminal: Terminal, python: str, doctor: str) -> None:
    collect = f"{python} -m torch.utils.collect_env | gpuinstall explain"
    rows = [
        ("do", "<command> 2>&1 | gpuinstall explain   # the whole output"),
        ("or", f"{collect}   # versions, driver, and GPU"),
        ("or", f"{doctor}   # on the machine itself"),
    ]
    terminal.rows(rows, LABEL)


def _show_causes(terminal: Terminal, causes: Sequence[RecognisedCause]) -> None:
    failures = load_failures()
    for number, cause in enumerate(causes):
        if number:
            terminal.line()
        rows: list[tuple[str, str | None]]
        rows = [("seen", cause.evidence), ("why", cause.why)]
        failure = failures.get(cause.id)
        if failure is None:
            terminal.line(": not caused by the driver or the build", head=cause.title)
        else:
            if number:
                terminal.line("or, less likely:" if cause.is_unsure else "then:")
            surety = f", {cause.confidence:.0%} sure" if cause.confidence < 1 else ""
            head = f"perhaps: {cause.title}" if cause.is_unsure else cause.title
            terminal.line(f"   [{cause.id}{surety}]", head=head)
            narrower = [
                f"{failures[key].title} [{key}]" for key in failure.narrows[:LIKELIEST]
            ]
            rows.append(("one of", "\n".join(narrower)))
            rows.append(("check", failure.apart if cause.is_unsure else None))
        terminal.rows([*rows, ("do", "\n".join(cause.fix))], LABEL)


def _words(venv: Path) -> dict[str, str]:
    """Return the words for an environment in the commands of a fix."""
    words = {"uv": quoted(uv_program())}
    if exists(interpreter(venv)) or is_virtual(venv):
        words = advice_words(interpreter(venv))
    for shadow in (Path("torch").absolute(), Path("torch.py").absolute()):
        if exists(shadow):
            words["path"] = quoted(shadow)
            words["moved"] = quoted(f"{shadow}.away")
    return words


def _here() -> Machine:
    """Return this machine without its GPUs, to select commands."""
    source = Source()
    host = read_host(source)
    environment = Environment(
        wsl=read_wsl(source, host.release) is not None,
        container=read_container(source).engine,
    )
    return Machine(
        os=host.os,
        arch=host.arch,
        environment=environment,
        distribution=host.distribution,
    )


def _read_text(text: str) -> str:
    """Return the text to explain: stdin, a file, or ``text`` itself.

    Raises:
        UsageError: The file cannot be read, or the number is not in the catalog.
    """
    if text in {"", "-"}:
        # The parent process may have closed stdin.
        if sys.stdin is None:
            return ""
        if sys.stdin.isatty():
            sys.stderr.write(
                "Paste the error, then press Ctrl-D on a line of its own:\n"
            )
        return _read(sys.stdin.buffer)
    path = Path(text)
    if exists(path) or re.fullmatch(_PATH, text):
        try:
            with path.open("rb") as file:
                return _read(file)
        except OSError as error:
            message = f"{path} cannot be read: {error.strerror}"
            raise UsageError(
                "file-unreadable", message, hint="Check the path"
            ) from None
    number = re.fullmatch(_NUMBER, text)
    if number and f"F{text.lstrip('Ff'):0>2}" not in load_failures():
        if text.isdigit():
            # It may be an error number of CUDA.
            return f"error {text}"
        last = [*load_failures()][-1]
        message = f"failure {text} is not in the catalog, which has F01 to {last}"
        raise UsageError("failure-unknown", message, hint="gpuinstall explain F38")
    return text


def _read(file: IO[bytes]) -> str:
    """Read a log, or the start and the end of a very long one."""
    start = file.read(MOST_BYTES)
    end: deque[bytes] = deque(maxlen=MOST_BYTES // _BLOCK)
    # A terminal would wait for input again after its end.
    if len(start) == MOST_BYTES:
        end.extend(iter(lambda: file.read(_BLOCK), b""))
    return decoded(b"".join((start, *end)), "replace")
