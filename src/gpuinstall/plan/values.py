"""The decision, as frozen values: what was chosen, why, what each GPU runs, and all that was passed over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from gpuinstall.base.codec import write
from gpuinstall.base.errors import GpuInstallError
from gpuinstall.base.finding import Finding, Reason, Rejection
from gpuinstall.base.machine import Machine
from gpuinstall.base.requirement import Requirement
from gpuinstall.base.values import Value
from gpuinstall.catalog.catalog import Build

if TYPE_CHECKING:
    from packaging.version import Version

RejectedBuild = Rejection[Build]
SortKey = tuple[object, ...]

PLAN_DOCUMENT = "gpuinstall.plan/1"
HELD_BACK = "held-back"
"""The code of a build that would run, but is newer than the torch that the programs want."""
PROGRAM_HELD_BACK = "program-held-back"
UNASKED = "cuda-build-without-gpu"
"""The code of a build for GPUs on a machine without any: no source has a CPU build."""
BACKEND_PASSED_OVER = "backend-passed-over"
"""The code of a build that is preferred, and for which a requested companion of torch has no file."""
WITHOUT_GPU = "no-gpu"
"""The code of a CPU build that was not asked for."""
NEWEST_BUT = "newest-but-"
"""How the code begins of what keeps a newer torch away; what follows is the code of that."""
REMARKS = frozenset(
    {
        HELD_BACK,
        PROGRAM_HELD_BACK,
        BACKEND_PASSED_OVER,
        WITHOUT_GPU,
        "newest-for-driver",
        "newest-with-code",
    }
)
"""The codes of what an installation says too: why something is not the newest, and that there is no GPU."""

PlanStatus = Literal["ok", "partial", "cpu"]


class Run(Value):
    """What one GPU runs of the build."""

    index: int
    runs: str | None = None
    """The name of the code."""

    how: str = "none"
    """``sass``, ``ptx`` or ``none``."""


class Choice(Value):
    """The chosen build for one Python."""

    build: Build
    python: str
    index: str | None
    """The address or the folder that its family comes from; None: the default index."""

    requirements: tuple[Requirement, ...]
    """What to install, the family pinned."""


class ProgramConstraints(Value):
    """What the programs of a request came to: the one torch that they require."""

    torch: Version
    why: str
    """Why it is not a newer torch; empty if it is the newest."""

    without: Version | None = None
    """The newest torch that would run without that."""

    unserved: Mapping[str, str] = {}
    """Why they cannot be had with a build of that torch, by its backend's tag."""

    held_back: tuple[str, ...] = ()
    """What could not be the newest."""


class Plan(Value):
    """The build that was chosen, and why."""

    status: PlanStatus
    choice: Choice
    gpus: tuple[Run, ...] = ()
    reasons: tuple[Reason, ...] = ()
    rejected: tuple[RejectedBuild, ...] = ()
    warnings: tuple[Reason, ...] = ()
    runnable: tuple[Build, ...] = ()
    """All builds that run on the GPUs that the choice serves, the best first: requested programs choose among them."""

    # Users of the API read a plan and a refusal alike.
    exit_code: ClassVar[int] = 0
    fix: ClassVar[None] = None

    def to_dict(self) -> dict[str, Any]:
        """Return the Plan document."""
        return _document(self)


class Rejected(Value):
    """A request that no build serves, and why; it is read like a Plan, whose ``choice`` is None."""

    error_class: type[GpuInstallError]
    """What it is raised as: NoBuildError; InstallationError if no source answers; MachineError if only repair helps."""

    reasons: tuple[Reason, ...]
    fix: str | None = None
    gpus: tuple[Run, ...] = ()
    rejected: tuple[RejectedBuild, ...] = ()

    # Users of the API read a plan and a refusal alike.
    status: ClassVar[Literal["refused"]] = "refused"
    choice: ClassVar[None] = None
    warnings: ClassVar[tuple[Reason, ...]] = ()

    @property
    def exit_code(self) -> int:
        """The exit status of the command that refuses it."""
        return self.error_class.exit_code

    def to_dict(self) -> dict[str, Any]:
        """Return the Plan document of a refused request."""
        return _document(self)

    def error(self, machine: Machine) -> GpuInstallError:
        """Return the error of its first reason, with what the machine's own problem adds; its data is the plan."""
        reason = self.reasons[0]
        same = (problem for problem in machine.problems if problem.code == reason.code)
        finding = next(same, Finding(*reason))
        return self.error_class(
            reason.code,
            reason.message,
            hint=self.fix,
            why=finding.why,
            evidence=finding.evidence,
            id=finding.id,
            data={"plan": self.to_dict()},
        )


def _document(outcome: Plan | Rejected) -> dict[str, Any]:
    choice = outcome.choice
    build = None
    if choice:
        build = {
            "torch": str(choice.build.torch),
            "backend": choice.build.backend.tag,
            "index": choice.index,
            "python": choice.python,
            "requirements": list(map(str, choice.requirements)),
        }
    rejected = []
    for each in outcome.rejected:
        candidate = each.candidate
        names = {"torch": str(candidate.torch), "backend": candidate.backend.tag}
        rejected.append(names | each.reason._asdict())
    return {
        "schema": PLAN_DOCUMENT,
        "status": outcome.status,
        "build": build,
        "gpus": write(outcome.gpus),
        "reasons": write(outcome.reasons),
        "rejected": rejected,
        "warnings": write(outcome.warnings),
    }
