"""``gpuinstall explain``: the causes that an error's text shows, why, and what helps."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuinstall.cli import options
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.errors import UsageError
from gpuinstall.failures.classify import advised, classify, lookalikes
from gpuinstall.failures.table import load_failures
from gpuinstall.failures.transcript import Transcript

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.failures.classify import Cause
    from gpuinstall.failures.table import Advice, Lookalike

SURE = 0.75


@click.command("explain")
@click.argument("text", required=False)
@click.option("--machine", metavar="FILE", help="The machine that the text comes from, as written by probe --json.")
@framed("explain")
def command(_terminal: Terminal, *, text: str | None, machine: str | None) -> Outcome:
    """Find the cause in an error message: TEXT itself, a file, or stdin."""
    from gpuinstall.doctor.here import read_here

    if machine == "-" and text in (None, "-"):
        raise UsageError("usage", "only one of the text and the machine can come from stdin")
    said = Transcript(read_text(text))
    causes = classify(said, options.read_machine_document(machine) if machine else None, here=read_here())
    others = lookalikes(said)
    advice = advised(said, causes)
    return Outcome(document(causes, others, advice), lambda screen: show(screen, causes, others, advice))


def read_text(text: str | None) -> str:
    """Read what to explain: a file where ``text`` names one, ``text`` itself, or stdin."""
    if text is not None and text != "-":
        return _read_file(Path(text)) if _is_file(text) else text
    if sys.stdin.isatty():
        raise UsageError(
            "usage", "nothing to explain was given", hint="gpuinstall explain 'TEXT', or a file, or a pipe"
        )
    return decoded(sys.stdin.buffer.read())


def _is_file(text: str) -> bool:
    with suppress(OSError, ValueError):
        return Path(text).is_file()
    return False


def _read_file(path: Path) -> str:
    try:
        return decoded(path.read_bytes())
    except OSError as error:
        raise UsageError("file-unreadable", f"{path} cannot be read: {error.strerror}") from None


def decoded(raw: bytes) -> str:
    """Decode a log: UTF-8, or the UTF-16 that PowerShell writes; what cannot be read is replaced."""
    marked = raw.startswith((b"\xff\xfe", b"\xfe\xff"))
    return raw.decode("utf-16" if marked else "utf-8-sig", "replace")


def document(
    causes: tuple[Cause, ...], others: tuple[tuple[Lookalike, str], ...], advice: tuple[Advice, ...]
) -> dict[str, Any]:
    """Write the Explanation document; what only looks like a GPU problem and wrong advice only where there is any."""
    data: dict[str, Any] = {"causes": [cause.to_dict() for cause in causes]}
    if others:
        data["lookalikes"] = [
            {"id": other.id, "title": other.title, "evidence": evidence, "fix": list(other.fix)}
            for other, evidence in others
        ]
    if advice:
        data["advice"] = [{"told": each.told, "why": each.why} for each in advice]
    return data


def show(
    terminal: Terminal,
    causes: tuple[Cause, ...],
    others: tuple[tuple[Lookalike, str], ...],
    advice: tuple[Advice, ...],
) -> None:
    """Print the explanation for a person."""
    for index, cause in enumerate(causes):
        if index:
            terminal.line("\nor, less likely:")
        _show_cause(terminal, cause, advice if index == 0 else ())
    for other, evidence in others:
        terminal.line(f"\n{terminal.style(other.title, 'bold')}: no fault of driver or build")
        terminal.rows([("seen", evidence), ("why", other.why), ("do", "\n".join(other.fix))])
    if not causes and not others:
        terminal.line("Nothing in this text is a failure that gpuinstall knows.")
        terminal.line(
            "Give it the whole output, from the command to its last line: <command> 2>&1 | gpuinstall explain"
        )
        terminal.line("On the machine itself: gpuinstall doctor --report report.md")
    if advice and not causes:
        terminal.line("\nWhat it advises is often told, and wrong:")
        terminal.rows(_refuted(advice))


def _show_cause(terminal: Terminal, cause: Cause, advice: tuple[Advice, ...]) -> None:
    failure = load_failures()[cause.id]
    surety = f"{cause.confidence:.0%} sure"
    terminal.line(f"{terminal.style(cause.title, 'bold')}   [{cause.id}, {surety}]")
    rows = [("seen", cause.evidence), ("why", failure.cause)]
    rows += [("apart", failure.apart)] if cause.confidence < SURE else []
    rows += [("do", "\n".join(cause.fix))]
    terminal.rows([*rows, *_refuted(advice)])


def _refuted(advice: Iterable[Advice]) -> list[tuple[str, str]]:
    return [("not", f"{each.told}: {each.why}") for each in advice]
