"""The decision, as frozen values: what was chosen, why, what each GPU runs, and all that was passed over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from gpuinstall.errors import GpuInstallError, InstallationError, MachineError, NoBuildError
from gpuinstall.vendors.protocol import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from packaging.version import Version

    from gpuinstall.catalog import Build
    from gpuinstall.machine import Machine

__all__ = ["Choice", "Plan", "PlanStatus", "Reason", "Refusal", "Rejection", "Run", "Settled"]

PLAN_DOCUMENT = "gpuinstall.plan/1"
HELD_BACK = "held-back"
"""The code of a build that would run, but is newer than the torch that the programs want."""
PROGRAM_HELD_BACK = "program-held-back"
UNASKED = "cuda-build-without-gpu"
"""The code of a build for GPUs where there is none: no source has a CPU build."""
PROGRAM_REASONS = frozenset({HELD_BACK, PROGRAM_HELD_BACK})
"""The codes of what is to be said of the programs that were asked for."""

PlanStatus = Literal["ok", "partial", "cpu"]


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
    """The build that was chosen, and why.

    ``runnable`` are all builds that run on the GPUs that the choice serves, the best first: what the programs that
    are asked for may choose from.
    """

    status: PlanStatus
    choice: Choice
    gpus: tuple[Run, ...] = ()
    reasons: tuple[Reason, ...] = ()
    rejected: tuple[Rejection, ...] = ()
    warnings: tuple[Reason, ...] = ()
    runnable: tuple[Build, ...] = ()
    exit_code: ClassVar[int] = 0
    fix: ClassVar[None] = None

    def to_dict(self) -> dict[str, Any]:
        """Write the Plan document."""
        choice = {
            "torch": str(self.choice.build.torch),
            "backend": self.choice.build.backend.tag,
            "index": self.choice.index,
            "python": self.choice.python,
            "requirements": list(self.choice.requirements),
        }
        return _document(self, choice)


@dataclass(frozen=True)
class Refusal:
    """Why no build was chosen; ``exit_code`` is 3, 4 or 8, ``fix`` what to do."""

    exit_code: int
    reasons: tuple[Reason, ...]
    fix: str | None = None
    gpus: tuple[Run, ...] = ()
    rejected: tuple[Rejection, ...] = ()
    status: ClassVar[Literal["refused"]] = "refused"
    choice: ClassVar[None] = None
    warnings: ClassVar[tuple[Reason, ...]] = ()
    runnable: ClassVar[tuple[Build, ...]] = ()

    def to_dict(self) -> dict[str, Any]:
        """Write the Plan document."""
        return _document(self, None)

    def error(self, machine: Machine) -> GpuInstallError:
        """The error of its first reason, with what the machine's own problem adds; its data is the plan."""
        kinds: dict[int, type[GpuInstallError]] = {kind.exit_code: kind for kind in (InstallationError, MachineError)}
        reason = self.reasons[0]
        problem = next((problem for problem in machine.problems if problem.code == reason.code), None)
        return kinds.get(self.exit_code, NoBuildError)(
            reason.code,
            reason.message,
            hint=self.fix,
            why=problem.why if problem else None,
            evidence=problem.evidence if problem else None,
            id=problem.id if problem else None,
            data={"plan": self.to_dict()},
        )


def _document(plan: Plan | Refusal, build: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "schema": PLAN_DOCUMENT,
        "status": plan.status,
        "build": build,
        "gpus": [{"index": run.index, "runs": run.runs, "how": run.how} for run in plan.gpus],
        "reasons": [reason._asdict() for reason in plan.reasons],
        "rejected": [
            {"torch": str(rejection.build.torch), "backend": rejection.build.backend.tag}
            | {"code": rejection.code, "message": rejection.message}
            for rejection in plan.rejected
        ],
        "warnings": [warning._asdict() for warning in plan.warnings],
    }
