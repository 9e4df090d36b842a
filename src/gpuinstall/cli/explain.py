"""``gpuinstall explain``: the causes that an error's text shows, why, and what repairs them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuinstall.cli.explained_text import ExplainedText, read_text
from gpuinstall.cli.options import read_machine_document
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.cli.terminal import DOCS, Terminal, page_of
from gpuinstall.errors import UsageError
from gpuinstall.failures.classify import RecognisedCause, advised, classify, in_time, lookalikes
from gpuinstall.failures.table import Lookalike, RefutedAdvice, load_failures
from gpuinstall.failures.transcript import Transcript
from gpuinstall.machine import Environment, Machine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpuinstall.learned.row import LearnedRow

    Headed = Sequence[tuple[str, RecognisedCause]]
    Lookalikes = tuple[tuple[Lookalike, str], ...]
    Advices = tuple[RefutedAdvice, ...]

SURE = 0.75
LABEL = len("one of")
LIKELIEST = 5
_ABOUT_CODE = re.compile(r"kernel image|compute capability|\bsm_\d\d|\bPTX\b", re.IGNORECASE)


@click.command("explain")
@click.argument("text", required=False)
@click.option("--machine", metavar="FILE", help="The machine the text comes from (probe --json).")
@click.option("--venv", metavar="DIR", envvar="GPUINSTALL_VENV", help="The environment to repair.")
@framed("explain")
def command(_terminal: Terminal, *, text: str | None, machine: str | None, venv: str | None) -> Outcome:
    """Find the cause in an error message: TEXT itself, a file (a log, a notebook) or stdin."""
    if machine == "-" and text in (None, "-"):
        raise UsageError("usage", "the text and the machine cannot both come from stdin")
    words = _words(Path(venv).absolute()) if venv else {}
    source = read_text(text)
    transcript = Transcript(source.text)
    origin = read_machine_document(machine) if machine else None
    causes = classify(transcript, origin, here=_here(), words=words)
    others = lookalikes(transcript)
    advice = advised(transcript, causes)
    code = _code_beside_torch(source.text, origin, venv)
    data = explanation(source, causes, others, advice) | ({"code": code} if code else {})

    def shown(screen: Terminal) -> None:
        _show_causes(screen, list(_headed(source, causes)), others, advice, words)
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
        "causes": [cause.to_dict() | source.position(cause.line) | {"page": page_of(cause.id)} for cause in causes]
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
    terminal: Terminal, causes: Headed, others: Lookalikes, advice: Advices, words: Mapping[str, str]
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
        terminal.line(f"{terminal.style(other.title, 'bold')}: no fault of driver or build")
        terminal.rows([("seen", evidence), ("why", other.why), ("do", "\n".join(other.fix))], LABEL)
    if not causes and not others:
        terminal.prose("gpuinstall does not recognise a failure in this text.")
        terminal.rows(
            [
                ("do", "<command> 2>&1 | gpuinstall explain   # the whole output, from the command to its last line"),
                ("or", f"gpuinstall doctor{words.get('at', '')} --report report.md   # on the machine itself"),
            ],
            LABEL,
        )
    if advice and not causes:
        terminal.line()
        terminal.line("The usual advice for this is wrong:")
        terminal.rows(_refuted(advice), LABEL)


def _headed(source: ExplainedText, causes: tuple[RecognisedCause, ...]) -> Iterator[tuple[str, RecognisedCause]]:
    """Order causes for reading: several failures of one log as they came, what each may be of by how likely it is."""
    failures = [group for group in in_time(causes) if max(cause.confidence for cause in group) >= SURE]
    several = len(failures) > 1
    for number, group in enumerate(failures if several else [causes]):
        for rank, cause in enumerate(sorted(group, key=lambda cause: -cause.confidence)):
            position = [f"{name} {value}" for name, value in source.position(cause.line).items() if value]
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
    return Machine(os=host.os, arch=host.arch, environment=environment, distribution=host.distribution)


def _code_beside_torch(text: str, machine: Machine | None, venv: str | None) -> list[dict[str, Any]]:
    """Say what was learned of the packages that a text names or that are installed, and that lack code for a GPU."""
    if not _ABOUT_CODE.search(text):
        return []
    from gpuinstall.learned.store import learned_store

    rows = (row for row in learned_store().companions() if row.architectures)
    concerned = {row.package: (row, _without(row, machine)) for row in _concerned(rows, text, venv)}
    return [
        {"package": row.package, "version": row.version, "architectures": list(row.architectures), "without": without}
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
    return [row for row in by_day if row.version == installed.get(row.package, "").partition("+")[0]]


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


def _show_cause(terminal: Terminal, cause: RecognisedCause, advice: tuple[RefutedAdvice, ...]) -> None:
    failure = load_failures()[cause.id]
    surety = f"{cause.confidence:.0%} sure"
    terminal.prose(f"{cause.title}   [{cause.id}, {surety}]".replace(cause.title, terminal.style(cause.title, "bold")))
    rows: list[tuple[str, str | None]] = [("seen", cause.evidence), ("why", failure.cause)]
    rows += [("one of", "\n".join(f"{load_failures()[key].title} [{key}]" for key in failure.narrows[:LIKELIEST]))]
    rows += [("apart", failure.apart)] if cause.confidence < SURE else []
    rows += [("do", "\n".join(cause.fix))]
    page = page_of(cause.id) if os.environ.get(DOCS) else None
    terminal.rows([*rows, *_refuted(advice), ("page", page)], LABEL)


def _refuted(advice: Iterable[RefutedAdvice]) -> list[tuple[str, str]]:
    return [("not", f"{each.told}: {each.why}") for each in advice]
