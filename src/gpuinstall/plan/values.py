"""The decision, as frozen values: what was chosen, why, what each GPU runs, and all that was passed over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from gpuinstall.errors import GpuInstallError, InstallationError, MachineError, NoBuildError
from gpuinstall.vendors.protocol import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from packaging.version import Version

    from gpuinstall.catalog.build import Build
    from gpuinstall.machine import Machine

__all__ = ["Choice", "Plan", "PlanStatus", "Reason", "Rejection", "Run", "Settled", "error_of"]

PLAN_DOCUMENT = "gpuinstall.plan/1"
HELD_BACK = "held-back"
"""The code of a build that would run, but is newer than the torch that the programs want."""
PROGRAM_HELD_BACK = "program-held-back"
PROGRAM_REASONS = frozenset({HELD_BACK, PROGRAM_HELD_BACK})
"""The codes of what is to be said of the programs that were asked for."""

PlanStatus = Literal["ok", "partial", "cpu", "refused"]


class Rejection(NamedTuple):
    """A build that was passed over, and why."""

    build: Build
    code: str
    message: str


@dataclass(frozen=True)
class Run:
    """What one GPU runs of the build: the name of the code, and how, ``sass``, ``ptx`` or ``none``."""

    index: int
    runs: str | None
    how: str


@dataclass(frozen=True)
class Choice:
    """The chosen build for one Python; ``index`` is the address (or folder) that its family comes from.

    ``index`` None means the default index. ``requirements`` are what to install, the family pinned.
    """

    build: Build
    python: str
    index: str | None
    requirements: tuple[str, ...]


@dataclass(frozen=True)
class Settled:
    """What the programs of a request came to: the one torch that they want, and who wants it.

    ``unserved`` says by backend's tag why they cannot be had with it; ``held_back`` is what could not be the newest.
    """

    torch: Version
    why: str
    unserved: Mapping[str, str] = field(default_factory=dict)
    held_back: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """The outcome of ``choose``. ``exit_code`` is 0, or 3, 4 or 8 when refused; ``fix`` is then what to do.

    ``runnable`` are all builds that run on the GPUs that the choice serves, the best first: what the programs that
    are asked for may choose from.
    """

    status: PlanStatus
    choice: Choice | None
    gpus: tuple[Run, ...] = ()
    reasons: tuple[Reason, ...] = ()
    rejected: tuple[Rejection, ...] = ()
    warnings: tuple[Reason, ...] = ()
    exit_code: int = 0
    fix: str | None = None
    runnable: tuple[Build, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Write the Plan document."""
        return {
            "schema": PLAN_DOCUMENT,
            "status": self.status,
            "build": _written_choice(self.choice),
            "gpus": [{"index": run.index, "runs": run.runs, "how": run.how} for run in self.gpus],
            "reasons": [reason._asdict() for reason in self.reasons],
            "rejected": [_written_rejection(rejection) for rejection in self.rejected],
            "warnings": [warning._asdict() for warning in self.warnings],
        }


def error_of(plan: Plan, machine: Machine) -> GpuInstallError | None:
    """Make the error of a refusal, with what the machine's own problem adds; None where a build was chosen."""
    if plan.choice is not None:
        return None
    kinds: dict[int, type[GpuInstallError]] = {kind.exit_code: kind for kind in (InstallationError, MachineError)}
    kind = kinds.get(plan.exit_code, NoBuildError)
    reason = plan.reasons[0]
    problem = next((problem for problem in machine.problems if problem.code == reason.code), None)
    return kind(
        reason.code,
        reason.message,
        hint=plan.fix,
        why=problem.why if problem else None,
        evidence=problem.evidence if problem else None,
        id=problem.id if problem else None,
    )


def _written_choice(choice: Choice | None) -> dict[str, Any] | None:
    if choice is None:
        return None
    return {
        "torch": str(choice.build.torch),
        "backend": choice.build.backend.tag,
        "index": choice.index,
        "python": choice.python,
        "requirements": list(choice.requirements),
    }


def _written_rejection(rejection: Rejection) -> dict[str, Any]:
    return {
        "torch": str(rejection.build.torch),
        "backend": rejection.build.backend.tag,
        "code": rejection.code,
        "message": rejection.message,
    }
