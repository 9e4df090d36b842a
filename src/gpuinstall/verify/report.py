"""What a child said and how it ended, read into checks: pure."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuinstall.process import Finished
    from gpuinstall.verify.verdict import CheckStatus

TIMEOUT = "Timeout ("
# What a shell adds to the number of the signal that ended its program.
SHELL = 128


@dataclass(frozen=True)
class Record:
    """One check as the child ran it; ``text`` is all it said about a failure."""

    name: str
    status: CheckStatus
    seconds: float = 0.0
    message: str | None = None
    text: str = ""


@dataclass(frozen=True)
class Report:
    """Everything from one child; ``measures`` are the numbers that it took.

    ``architectures`` are those of the build, None where torch could not be imported.
    ``unproven`` says why the device could not be tried, ``blamed`` which variables of the loader it passes without.
    """

    records: tuple[Record, ...] = ()
    measures: tuple[dict[str, Any], ...] = ()
    architectures: tuple[str, ...] | None = None
    capability: str | None = None
    unproven: str | None = None
    blamed: str | None = None
    hung: bool = False

    @property
    def failed(self) -> bool:
        """Say whether any check failed."""
        return any(record.status == "failed" for record in self.records)


def read(finished: Finished, seconds: float) -> Report:
    """Read a child's lines; a check that began and has no end is the one it crashed, hung or was killed in."""
    lines = list(filter(None, map(json_object, finished.out.splitlines())))
    records = [_record(line) for line in lines if "name" in line]
    if not finished.ok:
        records.append(Record(_last(lines), "failed", 0.0, end_of(finished, seconds), finished.err))
    architectures = next((tuple(line["architectures"]) for line in lines if "architectures" in line), None)
    capability = next((line["capability"] for line in lines if "capability" in line), None)
    return Report(
        records=tuple(records),
        measures=tuple(line for line in lines if "measure" in line),
        architectures=architectures,
        capability=".".join(map(str, capability)) if capability else None,
        hung=_hung(finished),
        unproven=next((line["message"] for line in lines if line.get("status") == "unproven"), None),
    )


def json_object(line: str) -> dict[str, Any] | None:
    """Read a line that a child of ours wrote; None where something else wrote it (a start-up file of the user's)."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _last(lines: list[dict[str, Any]]) -> str:
    """Name the check that began last and has no end; before the first it is the start, after the last the exit."""
    ended = {line["name"] for line in lines if "name" in line}
    begun = [line["begin"] for line in lines if "begin" in line]
    return next((name for name in reversed(begun) if name not in ended), "exit" if begun else "start")


def _record(line: dict[str, Any]) -> Record:
    status: CheckStatus = "skipped" if line["status"] == "unproven" else line["status"]
    return Record(line["name"], status, line["seconds"], line.get("message"), line.get("text") or "")


def end_of(finished: Finished, seconds: float) -> str:
    """Say in one line how a child ended."""
    if finished.status is None or TIMEOUT in finished.err:
        return f"no end within {seconds:.0f} s"
    if finished.status < 0 or SHELL < finished.status <= SHELL + signal.NSIG:
        return _signalled(finished.status % SHELL if finished.status > 0 else -finished.status)
    if finished.status > 0x80000000:
        return f"ended by Windows exception 0x{finished.status:08X}"
    lines = finished.err.strip().splitlines() or ["without a word"]
    return f"ended with status {finished.status}: {lines[-1]}"


def last_words(finished: Finished, seconds: float) -> str:
    """Say why a program ended: the last line that it wrote, the first of a fatal error of the interpreter's own."""
    lines = [line.strip() for line in finished.err.splitlines() if line.strip()]
    fatal = (line for line in lines if line.startswith("Fatal Python error"))
    return next(fatal, lines[-1] if lines else end_of(finished, seconds))


def _hung(finished: Finished) -> bool:
    return finished.status is None or (not finished.ok and TIMEOUT in finished.err)


def _signalled(number: int) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    reasons = {
        "SIGKILL": "the kernel does that when memory runs out, a job's limit too",
        "SIGILL": "this processor does not know an instruction of the build",
    }
    return f"killed by {name}" + (f": {reasons[name]}" if name in reasons else "")
