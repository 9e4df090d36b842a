"""``gpuinstall explain``: the causes that an error's text shows, why, and what repairs them."""

from __future__ import annotations

import codecs
import re
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

import click

from gpuinstall.base.environment_paths import interpreter
from gpuinstall.base.errors import UsageError
from gpuinstall.base.machine import Environment, Machine
from gpuinstall.base.shell import quoted
from gpuinstall.base.uv import uv_in_words
from gpuinstall.catalog.failures.classify import (
    UNSURE_BELOW,
    RecognisedCause,
    classify,
    lookalikes,
)
from gpuinstall.catalog.failures.table import load_failures, load_lookalikes
from gpuinstall.catalog.failures.transcript import Transcript
from gpuinstall.cli.options import CommandOptions
from gpuinstall.cli.outcome import Outcome, framed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuinstall.cli.terminal import Terminal

LABEL = len("one of")
LIKELIEST = 5
# One word that can only mean a file: a path, or a name that ends as logs do.
_PATH = re.compile(r"(?!\S*://)[\w.~:-]*[/\\]\S*[^:\s]|\S+\.(log|txt|out|err|json|md)")
BLOCK = 1 << 20
"""Bytes of a log that are read at once: its first block is kept, and its last ones."""
LAST_BLOCKS = 2


@framed(
    "explain",
    "Find the cause in an error message: TEXT itself or its number (F38), a file or stdin.",
    "venv",
)
@click.argument("text", required=False)
def command(options: CommandOptions, *, text: str | None) -> Outcome:
    """Find the cause in an error message: TEXT itself or its number (F38), a file or stdin."""
    words = _words(options.environment.absolute())
    transcript = Transcript(_read_text(text))
    causes = classify(transcript, here=_here(), placeholders=words)
    likeliest = max((cause.confidence for cause in causes), default=0)
    if 0 < likeliest < UNSURE_BELOW:
        causes = _by_the_cards_here(causes, transcript, words)
    others = lookalikes(transcript, here=_here(), placeholders=words)
    data = {
        "causes": [cause.to_dict() for cause in causes],
        "lookalikes": [other.to_dict() for other in others],
    }

    def show(screen: Terminal) -> None:
        _show_causes(screen, causes)
        _show_lookalikes(screen, others)
        if not (causes or others):
            screen.line("gpuinstall does not recognise a failure in this text.")
            whole = "# the whole output, from the command to its last line"
            doctor = f"gpuinstall doctor{words.get('at', '')}"
            rows = [
                ("do", f"<command> 2>&1 | gpuinstall explain   {whole}"),
                ("or", f"{doctor}   # on the machine itself"),
            ]
            screen.rows(rows, LABEL)

    return Outcome(data, show)


def _show_causes(terminal: Terminal, causes: Sequence[RecognisedCause]) -> None:
    failures = load_failures()
    for number, cause in enumerate(causes):
        failure = failures[cause.id]
        is_unsure = cause.confidence < UNSURE_BELOW
        if number:
            terminal.line()
            terminal.line("or, less likely:" if is_unsure else "then:")
        surety = f", {cause.confidence:.0%} sure" if cause.confidence < 1 else ""
        head = f"perhaps: {cause.title}" if is_unsure else cause.title
        terminal.line(f"   [{cause.id}{surety}]", head=head)
        narrower = [
            f"{failures[key].title} [{key}]" for key in failure.narrows[:LIKELIEST]
        ]
        rows = [
            ("seen", cause.evidence),
            ("why", failure.cause),
            ("one of", "\n".join(narrower)),
            ("apart", failure.apart if is_unsure else None),
            ("do", "\n".join(cause.fix)),
        ]
        terminal.rows(rows, LABEL)


def _show_lookalikes(terminal: Terminal, others: Sequence[RecognisedCause]) -> None:
    for other in others:
        terminal.line()
        terminal.line(": not caused by the driver or the build", head=other.title)
        rows = [
            ("seen", other.evidence),
            ("why", load_lookalikes()[other.id].cause),
            ("do", "\n".join(other.fix)),
        ]
        terminal.rows(rows, LABEL)


def _words(venv: Path) -> dict[str, str]:
    """Return the words for an environment in the commands of a fix; if there is none, commands make it."""
    from gpuinstall.environments.environment import advice_words

    words = {"uv": uv_in_words()}
    if interpreter(venv).exists() or (venv / "pyvenv.cfg").is_file():
        words = advice_words(interpreter(venv))
    for shadow in (Path("torch").absolute(), Path("torch.py").absolute()):
        if shadow.exists():
            words["path"] = quoted(shadow)
            words["moved"] = quoted(f"{shadow}.away")
    return words


def _by_the_cards_here(
    causes: tuple[RecognisedCause, ...],
    text: Transcript,
    words: Mapping[str, str],
) -> tuple[RecognisedCause, ...]:
    """Return the causes as the GPUs of this machine decide between them; as they were if it has none, or has another."""
    from gpuinstall.machine.probe import read_machine

    machine = read_machine()
    if not machine.gpus:
        return causes
    decided = classify(text, machine, placeholders=words)
    known = {cause.id for cause in causes}
    return decided if decided and decided[0].id in known else causes


def _here() -> Machine:
    """Return the platform of this process: enough to choose commands, nothing about GPUs."""
    from gpuinstall.machine.container import read_container, read_wsl
    from gpuinstall.machine.host import read_host
    from gpuinstall.machine.source import Source

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


def _read_text(text: str | None) -> str:
    """Return what to explain: the file that ``text`` names, ``text`` itself, or stdin.

    Raises:
        UsageError: if it cannot be read.
    """
    if text is None or text == "-":
        if sys.stdin.isatty():
            sys.stderr.write(
                "Paste the error, then press Ctrl-D on a line of its own:\n"
            )
        return _read(sys.stdin.buffer)
    path = Path(text)
    is_file = False
    # A long text is no path at all.
    with suppress(OSError, ValueError):
        is_file = path.is_file()
    if is_file:
        try:
            with path.open("rb") as file:
                return _read(file)
        except OSError as error:
            message = f"{path} cannot be read: {error.strerror}"
            raise UsageError("file-unreadable", message) from None
    if _PATH.fullmatch(text):
        raise UsageError(
            "file-missing", f"no such file: {path}", hint="gpuinstall explain FILE"
        )
    return text


def _read(file: IO[bytes]) -> str:
    """Return a log; of a long one its beginning and its end. What cannot be read in it is replaced."""
    start = file.read(BLOCK)
    end: deque[bytes] = deque(maxlen=LAST_BLOCKS)
    # A terminal would be asked for more after its end.
    if len(start) == BLOCK:
        end.extend(iter(lambda: file.read(BLOCK), b""))
    is_utf16 = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    document = b"".join((start, *end))
    return document.decode("utf-16" if is_utf16 else "utf-8-sig", "replace")
