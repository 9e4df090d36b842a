"""``gpuinstall explain``: the causes that an error's text shows, why, and what repairs them."""

from __future__ import annotations

import codecs
import os
import re
import select
import sys
from bisect import bisect_right
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import click

from gpuinstall.cli.options import read_machine_document
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.cli.terminal import DOCS, Terminal, page_of
from gpuinstall.errors import UsageError
from gpuinstall.failures.classify import (
    APART,
    PERHAPS,
    SURE,
    RecognisedCause,
    advised,
    classify,
    deciding_command,
    in_time,
    is_of_an_unknown_place,
    lookalikes,
    requested_failure,
)
from gpuinstall.failures.excerpt import BLOCK, excerpt_of
from gpuinstall.failures.table import Lookalike, RefutedAdvice, load_failures
from gpuinstall.failures.transcript import Transcript
from gpuinstall.files import open_regular, parse_json
from gpuinstall.machine import Environment, Machine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpuinstall.learned.row import LearnedRow

    Headed = Sequence[tuple[str, RecognisedCause]]
    Lookalikes = tuple[tuple[Lookalike, str], ...]
    Advices = tuple[RefutedAdvice, ...]

LABEL = len("one of")
LIKELIEST = 5
_ABOUT_CODE = re.compile(r"kernel image|compute capability|\bsm_\d\d|\bPTX\b", re.IGNORECASE)
# One word that can only mean a file: a path, or a name that ends as logs do.
_PATH = re.compile(r"(?!\S*://)[\w.~:-]*[/\\]\S*[^:\s]|\S+\.(log|txt|out|err|ipynb|json|md)")
NOTEBOOK_BYTES = 50_000_000
PASTE_SECONDS = 0.2
"""How long after an empty line the rest of a paste may take to come."""


class ExplainedText(NamedTuple):
    """A text, whether it is ``whole``, and where each cell of a notebook begins: its line and execution count."""

    text: str
    whole: bool = True
    cells: tuple[tuple[int, int], ...] = ()

    def position(self, line: int) -> dict[str, int | None]:
        """Say where a line is: by its number, in a notebook by its cell; None in a log that was shortened."""
        if not self.cells:
            return {"line": line if self.whole else None}
        start, cell = self.cells[bisect_right([start for start, _ in self.cells], line) - 1]
        return {"cell": cell, "line": line - start + 1}


@click.command("explain")
@click.argument("text", required=False)
@click.option("--machine", metavar="FILE", help="The machine the text comes from (probe --json).")
@click.option("--venv", metavar="DIR", envvar="GPUINSTALL_VENV", help="The environment to repair.")
@framed("explain")
def command(
    _terminal: Terminal, *, text: str | None, machine: str | None, venv: str | None
) -> Outcome:
    """Find the cause in an error message: TEXT itself or its number (F38), a file (a log, a notebook) or stdin."""
    if machine == "-" and text in (None, "-"):
        raise UsageError("usage", "the text and the machine cannot both come from stdin")
    words = _words(Path(venv).absolute()) if venv else {}
    source = _read_text(text)
    transcript = Transcript(source.text)
    origin = read_machine_document(machine) if machine else None
    here = _here()
    requested = requested_failure(source.text, origin, here=here, words=words)
    causes = (requested,) if requested else classify(transcript, origin, here=here, words=words)
    others = lookalikes(transcript)
    advice = advised(transcript, causes)
    code = _code_beside_torch(source.text, origin, venv)
    data = explanation(source, causes, others, advice) | ({"code": code} if code else {})

    def shown(screen: Terminal) -> None:
        _show_causes(screen, list(_headed(source, causes)), others, advice, words)
        if origin is None and is_of_an_unknown_place(transcript, causes):
            screen.line()
            screen.line(
                f"The commands are for {here.distribution or here.os}: the text does not say where it is from."
            )
        if command := deciding_command(transcript, causes, origin):
            screen.line()
            screen.line(f"What would decide: {command.format_map({'python': 'python'} | words)}")
        for row in code:
            none = f"none for {' and '.join(row['without'])}: " if row["without"] else ""
            screen.line()
            names = f"{none}{' '.join(row['architectures'])}"
            screen.line(f"{row['package']} {row['version']} has code of its own, {names}")

    return Outcome(data, shown)


def explanation(
    source: ExplainedText, causes: tuple[RecognisedCause, ...], others: Lookalikes, advice: Advices
) -> dict[str, Any]:
    """Write the Explanation document; what only looks like a GPU problem and wrong advice only where there is any."""
    data: dict[str, Any] = {
        "causes": [
            cause.to_dict() | source.position(cause.line) | {"page": page_of(cause.id)}
            for cause in causes
        ]
    }
    if others:
        data["lookalikes"] = [
            {"id": other.id, "title": other.title, "evidence": evidence, "fix": list(other.fix)}
            for other, evidence in others
        ]
    if advice:
        data["advice"] = [{"told": each.told, "why": each.why} for each in advice]
    return data


def _show_causes(
    terminal: Terminal,
    causes: Headed,
    others: Lookalikes,
    advice: Advices,
    words: Mapping[str, str],
) -> None:
    likeliest = max((cause.confidence for _, cause in causes), default=0)
    for number, (heading, cause) in enumerate(causes):
        if heading:
            if number:
                terminal.line()
            terminal.line(heading)
        _show_cause(terminal, cause, advice if cause.confidence == likeliest else ())
    for other, evidence in others:
        terminal.line()
        terminal.line(
            f"{terminal.style(other.title, 'bold')}: not caused by the driver or the build"
        )
        terminal.rows([("seen", evidence), ("why", other.why), ("do", "\n".join(other.fix))], LABEL)
    if not causes and not others:
        terminal.prose("gpuinstall does not recognise a failure in this text.")
        terminal.rows(
            [
                (
                    "do",
                    "<command> 2>&1 | gpuinstall explain   # the whole output, from the command to its last line",
                ),
                (
                    "or",
                    f"gpuinstall doctor{words.get('at', '')} --report report.md   # on the machine itself",
                ),
            ],
            LABEL,
        )
    if advice and not causes:
        terminal.line()
        terminal.line("The usual advice for this is wrong:")
        terminal.rows(_refuted(advice), LABEL)


def _headed(
    source: ExplainedText, causes: tuple[RecognisedCause, ...]
) -> Iterator[tuple[str, RecognisedCause]]:
    """Order causes for reading: several failures of one log as they came, what each may be of by how likely it is."""
    failures = [
        group for group in in_time(causes) if max(cause.confidence for cause in group) >= SURE
    ]
    several = len(failures) > 1
    for number, group in enumerate(failures if several else [causes]):
        for rank, cause in enumerate(sorted(group, key=lambda cause: -cause.confidence)):
            position = [
                f"{name} {value}" for name, value in source.position(cause.line).items() if value
            ]
            first = ", ".join(["then" if number else "first", *position]) + ":" if several else ""
            yield "or, less likely:" if rank else first, cause


def _words(venv: Path) -> dict[str, str]:
    """Name an environment in the commands of a fix; raise UsageError where there is none."""
    from gpuinstall.environments.environment import advice_words
    from gpuinstall.environments.paths import interpreter

    python = interpreter(venv)
    if not (python.exists() or (venv / "pyvenv.cfg").is_file()):
        message = f"there is no environment at {venv}"
        raise UsageError("environment-missing", message, hint="gpuinstall explain --venv DIR")
    return advice_words(python)


def _here() -> Machine:
    """Read the platform this process runs on: enough to choose commands, nothing about GPUs."""
    from gpuinstall.facts.container import read_container, read_wsl
    from gpuinstall.facts.host import read_host
    from gpuinstall.facts.source import ThisMachine

    source = ThisMachine()
    host, container = read_host(source), read_container(source).engine
    environment = Environment(wsl=read_wsl(source, host.release) is not None, container=container)
    return Machine(
        os=host.os, arch=host.arch, environment=environment, distribution=host.distribution
    )


def _code_beside_torch(
    text: str, machine: Machine | None, venv: str | None
) -> list[dict[str, Any]]:
    """Say what was learned of the packages that a text names or that are installed, and that lack code for a GPU."""
    if not _ABOUT_CODE.search(text):
        return []
    from gpuinstall.learned.store import learned_store

    rows = (row for row in learned_store().companions() if row.architectures)
    concerned = {row.package: (row, _without(row, machine)) for row in _concerned(rows, text, venv)}
    return [
        {
            "package": row.package,
            "version": row.version,
            "architectures": list(row.architectures),
            "without": without,
        }
        for row, without in concerned.values()
        if without or machine is None
    ]


def _concerned(rows: Iterable[LearnedRow], text: str, venv: str | None) -> Iterable[LearnedRow]:
    """Those of the versions that are installed, or, without an environment, whose name the text has; newest last."""
    by_day = sorted(rows, key=lambda row: row.learned)
    if venv is None:
        named = {word.lower().replace("_", "-") for word in re.findall(r"[\w-]+", text)}
        return [row for row in by_day if row.package in named]
    from gpuinstall.environments.environment import installed_packages

    installed = installed_packages(Path(venv))
    return [
        row for row in by_day if row.version == installed.get(row.package, "").partition("+")[0]
    ]


def _without(row: LearnedRow, machine: Machine | None) -> list[str]:
    from gpuinstall.learned.row import without_code
    from gpuinstall.learned.store import known_catalog
    from gpuinstall.vendors import rules_for

    if machine is None:
        return []
    build = row.build()
    rules = rules_for(machine, known_catalog(), {build.backend.kind})
    gpus = ((rules, gpu) for gpu in machine.gpus if gpu.compute_capability is not None)
    return list(dict.fromkeys(gpu.label for _, gpu in without_code(row, build, gpus)))


def _show_cause(
    terminal: Terminal, cause: RecognisedCause, advice: tuple[RefutedAdvice, ...]
) -> None:
    failure = load_failures()[cause.id]
    surety = f", {cause.confidence:.0%} sure" if cause.confidence < 1 else ""
    perhaps = "perhaps: " if cause.confidence < PERHAPS else ""
    title = terminal.style(cause.title, "bold")
    terminal.prose(f"{perhaps}{cause.title}   [{cause.id}{surety}]".replace(cause.title, title))
    rows: list[tuple[str, str | None]] = [("seen", cause.evidence), ("why", failure.cause)]
    rows += [
        (
            "one of",
            "\n".join(
                f"{load_failures()[key].title} [{key}]" for key in failure.narrows[:LIKELIEST]
            ),
        )
    ]
    rows += [("apart", failure.apart)] if cause.confidence < SURE else []
    rows += [("do", "\n".join(cause.fix))]
    page = page_of(cause.id) if os.environ.get(DOCS) else None
    terminal.rows([*rows, *_refuted(advice), ("page", page)], LABEL)


def _refuted(advice: Iterable[RefutedAdvice]) -> list[tuple[str, str]]:
    return [("not", f"{each.told}: {each.why}") for each in advice]


def _read_text(text: str | None) -> ExplainedText:
    """Read what to explain: a file where ``text`` names one, ``text`` itself, or stdin; raise UsageError."""
    if text is None or text == "-":
        return ExplainedText(_pasted()) if sys.stdin.isatty() else _read(sys.stdin.buffer)
    path = Path(text)
    with suppress(OSError, ValueError):
        if path.is_file():
            return _read_file(path)
    if _PATH.fullmatch(text):
        raise UsageError("file-missing", f"no such file: {path}", hint="gpuinstall explain FILE")
    return ExplainedText(text)


def _pasted() -> str:
    """Read a paste up to an empty line or the end of input; an empty line inside it is no end."""
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
    return os.name != "nt" and bool(select.select([sys.stdin], [], [], PASTE_SECONDS)[0])


def _read_file(path: Path) -> ExplainedText:
    try:
        with open_regular(path) as file:
            return (
                _notebook(parse_json(file.read(NOTEBOOK_BYTES)))
                if path.suffix == ".ipynb"
                else _read(file)
            )
    except OSError as error:
        raise UsageError("file-unreadable", f"{path} cannot be read: {error.strerror}") from None
    except (ArithmeticError, ValueError, TypeError, KeyError, AttributeError):
        raise UsageError("file-unreadable", f"{path} is not a Jupyter notebook") from None


def _notebook(document: Any) -> ExplainedText:
    """Write the cells that ran, each with its output, in the order in which they ran, as failures of their own."""
    ran = (cell for cell in document["cells"] if cell.get("execution_count"))
    parts, starts, line = [], [], 1
    for cell in sorted(ran, key=lambda cell: int(cell["execution_count"])):
        part = "\n".join(
            filter(None, (_joined(cell["source"]), *map(_output, cell["outputs"])))
        ) + "\n" * (APART + 1)
        starts.append((line, int(cell["execution_count"])))
        parts.append(part)
        line += part.count("\n")
    return ExplainedText("".join(parts), cells=tuple(starts))


def _output(output: Any) -> str:
    text = output.get("text") or output.get("data", {}).get("text/plain") or ""
    return "\n".join(output["traceback"]) if "traceback" in output else _joined(text)


def _joined(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)


def _read(file: IO[bytes]) -> ExplainedText:
    return ExplainedText(*excerpt_of(_decoded(iter(partial(file.read, BLOCK), b""))))


def _decoded(blocks: Iterator[bytes]) -> Iterator[str]:
    """Decode a log: UTF-8, or the UTF-16 that PowerShell writes; what cannot be read is replaced."""
    first = next(blocks, b"")
    marked = first.startswith((b"\xff\xfe", b"\xfe\xff"))
    decoder = codecs.getincrementaldecoder("utf-16" if marked else "utf-8-sig")("replace")
    yield from (decoder.decode(block) for block in chain((first,), blocks))
    yield decoder.decode(b"", final=True)
