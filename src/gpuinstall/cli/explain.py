"""``gpuinstall explain``: the causes that an error's text shows, why, and what repairs them."""

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
# One word that can only mean a file: a path, or a name that ends as logs do.
_PATH = r"(?!\S*://)[\w.~:-]*[/\\]\S*[^:\s]|\S+\.(log|txt|out|err|json|md)"
_NUMBER = r"[Ff]?\d{1,4}"
MOST_BYTES = 64 << 20
"""Of a longer log so much of its beginning and as much of its end are read."""
_BLOCK = 1 << 20


@framed(
    "explain",
    "Look up an error message: TEXT, a failure's number (F38), a file, or stdin.",
    "venv",
    serves_folder=False,
)
@click.argument("text", nargs=-1)
def command(options: CommandOptions, *, text: tuple[str, ...]) -> Outcome:
    """Find the cause in an error message: TEXT itself or its number (F38), a file or stdin."""
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
            _show_what_would_tell(screen, words.get("python", "python"), doctor)
        if explanation.unread:
            screen.line()
            count = number_of(explanation.unread, "line")
            screen.line(
                f"{count} were not read: they are like others, or lie between the beginning and the end."
            )

    return Outcome(explanation.to_dict(), show, is_news=True)


def _show_here(terminal: Terminal, explanation: Explanation) -> None:
    """Show what was found on this machine, apart from what the text says."""
    view = explanation.here
    if view is None:
        return
    machine = view.machine
    torch = f"torch {machine.torch.version}" if machine.torch else "no torch"
    here = f"{torch} in {machine.venv.name} · {machine_line(machine.machine)}"
    rows: list[tuple[str, str | None]] = [("here", here)]
    rows += [("fits", fault.message) for fault in view.fitting]
    # A library that the text misses and that is here is found by another path than the loader's.
    rows += [("there", path) for path in view.libraries.values() if path]
    if view.is_elsewhere:
        rows.append(("", "the text names another torch or another card than these"))
    elif not view.fitting:
        rows.append(("", "nothing that is wrong here fits the text"))
    terminal.line()
    terminal.rows(rows, LABEL)


def _show_what_would_tell(terminal: Terminal, python: str, doctor: str) -> None:
    whole = "# from the command to its last line: the line after 'Traceback' and the last one tell most"
    rows = [
        ("do", f"<command> 2>&1 | gpuinstall explain   {whole}"),
        (
            "or",
            f"{python} -m torch.utils.collect_env | gpuinstall explain   # versions, driver and card",
        ),
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
            rows.append(("apart", failure.apart if cause.is_unsure else None))
        terminal.rows([*rows, ("do", "\n".join(cause.fix))], LABEL)


def _words(venv: Path) -> dict[str, str]:
    """Return the words for an environment in the commands of a fix; if there is none, commands make it."""
    words = {"uv": quoted(uv_program())}
    if exists(interpreter(venv)) or is_virtual(venv):
        words = advice_words(interpreter(venv))
    for shadow in (Path("torch").absolute(), Path("torch.py").absolute()):
        if exists(shadow):
            words["path"] = quoted(shadow)
            words["moved"] = quoted(f"{shadow}.away")
    return words


def _here() -> Machine:
    """Return the platform of this process: enough to choose commands, nothing about GPUs."""
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
    """Return what to explain: the file that ``text`` names, ``text`` itself, or stdin.

    Raises:
        UsageError: if it cannot be read, or is the number of no failure.
    """
    if text in {"", "-"}:
        # Whoever started us may have closed it.
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
            # CUDA's own.
            return f"error {text}"
        message = (
            f"there is no failure {text}: they go from F01 to {[*load_failures()][-1]}"
        )
        raise UsageError("failure-unknown", message, hint="gpuinstall explain F38")
    return text


def _read(file: IO[bytes]) -> str:
    """Return a log; of a very long one its beginning and its end. What cannot be read in it is replaced."""
    start = file.read(MOST_BYTES)
    end: deque[bytes] = deque(maxlen=MOST_BYTES // _BLOCK)
    # A terminal would be asked for more after its end: it is read again only if it may have more.
    if len(start) == MOST_BYTES:
        end.extend(iter(lambda: file.read(_BLOCK), b""))
    return decoded(b"".join((start, *end)), "replace")
