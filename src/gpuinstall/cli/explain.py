"""``gpuinstall explain``: the causes that an error's text shows, why, and what repairs them."""

from __future__ import annotations

import codecs
import os
import re
import select
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import click

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import open_regular, parse_json
from gpuinstall.base.machine import Environment, Machine
from gpuinstall.base.uv import uv_in_words
from gpuinstall.catalog.failures.classify import (
    APART,
    SURE_CONFIDENCE,
    UNSURE_BELOW,
    RecognisedCause,
    advised,
    classify,
    groups_in_time,
    is_of_an_unknown_system,
    lookalikes,
    requested_failure,
)
from gpuinstall.catalog.failures.table import Lookalike, RefutedAdvice, load_failures
from gpuinstall.catalog.failures.transcript import LONGEST, Transcript
from gpuinstall.cli.options import read_machine_file
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.cli.terminal import DOCS, Terminal, page_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    Lookalikes = tuple[tuple[Lookalike, str], ...]

LABEL = len("one of")
LIKELIEST = 5
# One word that can only mean a file: a path, or a name that ends as logs do.
_PATH = re.compile(r"(?!\S*://)[\w.~:-]*[/\\]\S*[^:\s]|\S+\.(log|txt|out|err|ipynb|json|md)")
NOTEBOOK_BYTES = 50_000_000
BLOCK = 1 << 20
"""Bytes of a log that are read at once: its first block is kept, and its last ones."""
LAST_BLOCKS = 2
PASTE_SECONDS = 0.2
"""How long after an empty line the rest of a paste may take to come."""


class ExplainedText(NamedTuple):
    """What to explain."""

    text: str
    is_whole: bool = True
    """Whether nothing is left out of it."""
    cells: tuple[tuple[int, int], ...] = ()
    """Of a notebook, the line on which each cell begins and the number of its execution."""

    def position(self, line: int) -> dict[str, int | None]:
        """Return where a line is: its number, or in a notebook its cell; None in a log that was shortened."""
        if not self.cells:
            return {"line": line if self.is_whole else None}
        position: dict[str, int | None] = {}
        for start, cell in self.cells:
            if start <= line:
                position = {"cell": cell, "line": line - start + 1}
        return position


@click.command("explain")
@click.argument("text", required=False)
@click.option("--machine", metavar="FILE", help="The machine the text comes from (probe --json).")
@click.option("--venv", metavar="DIR", envvar="GPUINSTALL_VENV", help="The environment to repair.")
@framed("explain")
def command(
    _terminal: Terminal,
    *,
    text: str | None,
    machine: str | None,
    venv: str | None,
) -> Outcome:
    """Find the cause in an error message: TEXT itself or its number (F38), a file (a log, a notebook) or stdin."""
    if machine == "-" and text in (None, "-"):
        raise UsageError("usage", "the text and the machine cannot both come from stdin")
    words = _words(Path(venv).absolute()) if venv else _words_of_folder()
    source = _read_text(text)
    transcript = Transcript(source.text)
    origin = read_machine_file(machine) if machine else None
    here = _here()
    requested = requested_failure(source.text, origin, here=here, placeholders=words)
    if requested:
        causes: tuple[RecognisedCause, ...] = (requested,)
    else:
        causes = classify(transcript, origin, here=here, placeholders=words)
        if (
            origin is None
            and 0 < max((cause.confidence for cause in causes), default=0) < UNSURE_BELOW
        ):
            causes = _by_the_cards_here(causes, transcript, words)
    explanation = Explanation(source, causes, lookalikes(transcript), advised(transcript, causes))
    data = explanation.to_dict()

    def show(screen: Terminal) -> None:
        explanation.show(screen, words)
        if origin is None and is_of_an_unknown_system(transcript, causes):
            place = here.distribution or here.os
            screen.line()
            screen.line(f"The commands are for {place}: the text does not say where it is from.")

    return Outcome(data, show)


class Explanation(NamedTuple):
    """What a text shows."""

    source: ExplainedText
    causes: tuple[RecognisedCause, ...]
    others: Lookalikes
    """What only looks like a GPU problem, each with its evidence."""
    advice: tuple[RefutedAdvice, ...]
    """The wrong advice that is usual for it."""

    def to_dict(self) -> dict[str, Any]:
        """Return the document."""
        causes = []
        for cause in self.causes:
            position = self.source.position(cause.line)
            causes.append(
                {
                    **cause.to_dict(),
                    **position,
                    "page": page_of(cause.id),
                }
            )
        data: dict[str, Any] = {"causes": causes}
        if self.others:
            data["lookalikes"] = [
                {
                    "id": other.id,
                    "title": other.title,
                    "evidence": evidence,
                    "fix": list(other.fix),
                }
                for other, evidence in self.others
            ]
        if self.advice:
            data["advice"] = [{"told": each.told, "why": each.why} for each in self.advice]
        return data

    def show(self, terminal: Terminal, words: Mapping[str, str]) -> None:
        """Write it for a person; ``words`` name the environment in commands."""
        likeliest = max((cause.confidence for cause in self.causes), default=0)
        for number, (heading, cause) in enumerate(self._headed_causes()):
            if heading and number:
                terminal.line()
            if heading:
                terminal.line(heading)
            _show_cause(terminal, cause, self.advice if cause.confidence == likeliest else ())
        for other, evidence in self.others:
            title = terminal.style(other.title, "bold")
            terminal.line()
            terminal.line(f"{title}: not caused by the driver or the build")
            rows = [("seen", evidence), ("why", other.why), ("do", "\n".join(other.fix))]
            terminal.rows(rows, LABEL)
        if self.causes:
            return
        if not self.others:
            _show_what_to_do_instead(terminal, words)
        if self.advice:
            terminal.line()
            terminal.line("The usual advice for this is wrong:")
            terminal.rows(_refuted(self.advice), LABEL)

    def _headed_causes(self) -> Iterator[tuple[str, RecognisedCause]]:
        """Yield the causes for reading, each with its heading.

        Several failures of one log come in their order; what each may be caused by, the likeliest first.
        """
        groups = map(_by_confidence, groups_in_time(self.causes))
        failures = [group for group in groups if group[0].confidence >= SURE_CONFIDENCE]
        if len(failures) < 2:
            for rank, cause in enumerate(_by_confidence(self.causes)):
                yield "or, less likely:" if rank else "", cause
            return
        word = "first"
        for group in failures:
            best, *others = group
            heading = [word]
            for name, value in self.source.position(best.line).items():
                if value:
                    heading.append(f"{name} {value}")
            yield f"{', '.join(heading)}:", best
            for cause in others:
                yield "or, less likely:", cause
            word = "then"


def _by_confidence(causes: Iterable[RecognisedCause]) -> list[RecognisedCause]:
    return sorted(causes, key=lambda cause: -cause.confidence)


def _show_cause(
    terminal: Terminal,
    cause: RecognisedCause,
    advice: Sequence[RefutedAdvice],
) -> None:
    failures = load_failures()
    failure = failures[cause.id]
    perhaps = "perhaps: " if cause.confidence < UNSURE_BELOW else ""
    surety = f", {cause.confidence:.0%} sure" if cause.confidence < 1 else ""
    title = terminal.style(cause.title, "bold")
    terminal.line(f"{perhaps}{title}   [{cause.id}{surety}]")
    narrower = [f"{failures[key].title} [{key}]" for key in failure.narrows[:LIKELIEST]]
    rows = [
        ("seen", cause.evidence),
        ("why", failure.cause),
        ("one of", "\n".join(narrower)),
        ("apart", failure.apart if cause.confidence < SURE_CONFIDENCE else None),
        ("do", "\n".join(cause.fix)),
        *_refuted(advice),
        ("page", page_of(cause.id) if os.environ.get(DOCS) else None),
    ]
    terminal.rows(rows, LABEL)


def _refuted(advice: Iterable[RefutedAdvice]) -> list[tuple[str, str]]:
    return [("not", f"{each.told}: {each.why}") for each in advice]


def _show_what_to_do_instead(terminal: Terminal, words: Mapping[str, str]) -> None:
    whole = "# the whole output, from the command to its last line"
    doctor = f"gpuinstall doctor{words.get('at', '')} --report report.md"
    terminal.line("gpuinstall does not recognise a failure in this text.")
    rows = [
        ("do", f"<command> 2>&1 | gpuinstall explain   {whole}"),
        ("or", f"{doctor}   # on the machine itself"),
    ]
    terminal.rows(rows, LABEL)


def _words(venv: Path) -> dict[str, str]:
    """Return the words for an environment in the commands of a fix.

    Raises:
        UsageError: if there is no environment.
    """
    from gpuinstall.base.environment_paths import interpreter
    from gpuinstall.environments.environment import advice_words

    python = interpreter(venv)
    if not (python.exists() or (venv / "pyvenv.cfg").is_file()):
        raise UsageError(
            "environment-missing",
            f"there is no environment at {venv}",
            hint="gpuinstall explain --venv DIR",
        )
    return advice_words(python)


def _words_of_folder() -> dict[str, str]:
    """Return the words for the environment of this folder; without one, commands make it."""
    venv = Path(".venv").absolute()
    if (venv / "pyvenv.cfg").is_file():
        return _words(venv)
    return {"uv": uv_in_words()}


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
    from gpuinstall.machine.source import ThisMachine

    source = ThisMachine()
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


def _read_text(text: str | None) -> ExplainedText:
    """Return what to explain: the file that ``text`` names, ``text`` itself, or stdin.

    Raises:
        UsageError: if it cannot be read.
    """
    if text is None or text == "-":
        if sys.stdin.isatty():
            return ExplainedText(_pasted())
        return _read(sys.stdin.buffer)
    path = Path(text)
    # A long text is no path at all.
    with suppress(OSError, ValueError):
        if path.is_file():
            return _read_file(path)
    if _PATH.fullmatch(text):
        raise UsageError("file-missing", f"no such file: {path}", hint="gpuinstall explain FILE")
    return ExplainedText(text)


def _pasted() -> str:
    """Return a paste, up to an empty line that nothing follows or the end of input."""
    sys.stderr.write("Paste the error, then press Enter twice or Ctrl-D:\n")
    lines: list[str] = []
    for line in iter(sys.stdin.readline, ""):
        if line.strip():
            lines.append(line)
        elif lines and not _more_is_there():
            break
    if not lines:
        raise UsageError("usage", "there is nothing to explain", hint="gpuinstall explain FILE")
    return "".join(lines)


def _more_is_there() -> bool:
    if os.name == "nt":  # which selects sockets alone
        return False
    ready, _, _ = select.select([sys.stdin], [], [], PASTE_SECONDS)
    return bool(ready)


def _read_file(path: Path) -> ExplainedText:
    try:
        with open_regular(path) as file:
            if path.suffix == ".ipynb":
                return _notebook(parse_json(file.read(NOTEBOOK_BYTES)))
            return _read(file)
    except OSError as error:
        raise UsageError("file-unreadable", f"{path} cannot be read: {error.strerror}") from None
    except (ArithmeticError, ValueError, TypeError, KeyError, AttributeError):
        raise UsageError("file-unreadable", f"{path} is not a Jupyter notebook") from None


def _notebook(document: Any) -> ExplainedText:
    """Return the cells that ran, each with its output, in the order in which they ran, as failures of their own."""
    cells = [cell for cell in document["cells"] if cell.get("execution_count")]
    cells.sort(key=lambda cell: int(cell["execution_count"]))
    text = ""
    starts = []
    line = 1
    for cell in cells:
        starts.append((line, int(cell["execution_count"])))
        parts = [_joined(cell["source"]), *map(_output, cell["outputs"])]
        # So many lines part two failures.
        part = "\n".join(filter(None, parts)) + "\n" * (APART + 1)
        text += part
        line += part.count("\n")
    return ExplainedText(text, cells=tuple(starts))


def _output(output: Any) -> str:
    if "traceback" in output:
        return "\n".join(output["traceback"])
    return _joined(output.get("text") or output.get("data", {}).get("text/plain") or "")


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


def _read(file: IO[bytes]) -> ExplainedText:
    """Return a log; of a long one its beginning and its end. What cannot be read in it is replaced."""
    start = file.read(BLOCK)
    blocks = 0
    end: deque[bytes] = deque(maxlen=LAST_BLOCKS)
    while block := file.read(BLOCK):
        blocks += 1
        end.append(block)
    is_utf16 = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    document = b"".join((start, *end))
    text = document.decode("utf-16" if is_utf16 else "utf-8-sig", "replace")
    return ExplainedText(text, is_whole=blocks <= LAST_BLOCKS and len(text) <= LONGEST)
