"""What is wrong, as a short ordered list: each finding with the commands that the table of failures has for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from gpuinstall.failures.problems import fix_of
from gpuinstall.failures.table import load_problems

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuinstall.failures.problems import FixContext
    from gpuinstall.machine import Machine, Problem

Where = Literal["machine", "environment", "project"]

ORDER: tuple[Where, ...] = ("machine", "environment", "project")


@dataclass(frozen=True)
class Finding:
    """One fault; ``id`` is its entry in the failure catalogue, ``blocking`` says that torch cannot work with it."""

    where: Where
    code: str
    title: str
    why: str | None
    fix: str | None
    id: str | None = None
    blocking: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Write the finding as the doctor's document holds it."""
        return {
            "id": self.id,
            "code": self.code,
            "title": self.title,
            "why": self.why,
            "fix": self.fix,
            "blocking": self.blocking,
        }


def finding(
    where: Where,
    code: str,
    title: str,
    why: str,
    context: FixContext,
    *,
    entry: str | None = None,
    blocking: bool = False,
) -> Finding:
    """Make a finding of the table's entry, or of the code where the table has a fix for the code itself."""
    kind = load_problems().get(code)
    of = code if kind else entry
    known = entry or (kind.id if kind else None)
    return Finding(where, code, title, why, fix_of(of, context) if of else None, known, blocking)


def of_problem(problem: Problem) -> Finding:
    """Read a problem of the machine as a finding."""
    return Finding(
        "machine", problem.code, problem.message, problem.why or problem.seen, problem.fix, problem.id, problem.blocking
    )


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Put first what has to be fixed first: what blocks before what does not, the machine before what it carries."""
    once = {(finding.where, finding.code, finding.title): finding for finding in findings}
    return tuple(sorted(once.values(), key=lambda finding: (not finding.blocking, ORDER.index(finding.where))))


def exit_code(findings: Iterable[Finding], machine: Machine) -> int:
    """8 where nothing of the machine can be used, 5 where only the environment is at fault, else 0."""
    if machine.refusing:
        return 8
    return 5 if any(finding.blocking and finding.where != "machine" for finding in findings) else 0
