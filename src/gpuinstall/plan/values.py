"""Outcomes of the selection: the plan or refusal, reasons, rejected builds."""

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
"""The reason against a build that is newer than the programs allow."""
PROGRAM_HELD_BACK = "program-held-back"
GPU_BUILD_FOR_CPU = "cuda-build-without-gpu"
"""The warning about a GPU build if no source has a CPU build."""
PREFERRED_BACKEND_REJECTED = "backend-passed-over"
"""The reason against a preferred build that lacks a requested companion."""
WITHOUT_GPU = "no-gpu"
"""The reason for a CPU build that was not requested."""
NEWEST_BUT = "newest-but-"
"""The prefix of the reasons against a newer torch, before the cause."""
INSTALL_REASONS = frozenset(
    {
        HELD_BACK,
        PROGRAM_HELD_BACK,
        PREFERRED_BACKEND_REJECTED,
        WITHOUT_GPU,
        "newest-for-driver",
        "newest-with-code",
    }
)
"""The codes of reasons that ``install`` prints, too."""

PlanStatus = Literal["ok", "partial", "cpu"]


class GpuSupport(Value):
    """The code of the selected build that one GPU runs."""

    index: int
    runs: str | None = None
    """The name of the code, such as ``sm_86``."""

    how: str = "none"
    """``sass``, ``ptx``, or ``none``."""


class Choice(Value):
    """Selected build with its Python and requirements."""

    build: Build
    python: str
    index: str | None
    """The URL or folder of the torch family; None for the default index."""

    requirements: tuple[Requirement, ...]
    """The packages to install. The torch family is pinned."""


class ProgramConstraints(Value):
    """Result of resolving the programs: the torch that they allow."""

    torch: Version
    why: str
    """The reason why torch is not newer; empty if it is the newest."""

    without: Version | None = None
    """The newest torch that would run here without ``limited_by``."""

    unserved: Mapping[str, str] = {}
    """The conflicts with certain builds of that torch, by backend tag."""

    held_back: tuple[str, ...] = ()
    """The reasons why programs are not at their latest versions."""

    limited_by: str = ""
    """The package, constraint, or target that excludes a newer torch."""

    def allow(self, build: Build) -> bool:
        """Return whether the programs are compatible with a build."""
        return build.torch == self.torch and build.backend.tag not in self.unserved


class Plan(Value):
    """Selected build with its reasons."""

    status: PlanStatus
    choice: Choice
    gpus: tuple[GpuSupport, ...] = ()
    reasons: tuple[Reason, ...] = ()
    rejected: tuple[RejectedBuild, ...] = ()
    warnings: tuple[Reason, ...] = ()
    runnable: tuple[Build, ...] = ()
    """The builds that run on the same GPUs, best first."""

    # Plan and Rejected have the same attributes for API users.
    exit_code: ClassVar[int] = 0
    fix: ClassVar[None] = None

    def to_dict(self) -> dict[str, Any]:
        """Return the Plan document."""
        return _create_document(self)


class Rejected(Value):
    """Refused request with its reasons. Its ``choice`` is None."""

    error_class: type[GpuInstallError]
    """InstallationError, MachineError, or NoBuildError."""

    reasons: tuple[Reason, ...]
    fix: str | None = None
    gpus: tuple[GpuSupport, ...] = ()
    rejected: tuple[RejectedBuild, ...] = ()

    # Plan and Rejected have the same attributes for API users.
    status: ClassVar[Literal["refused"]] = "refused"
    choice: ClassVar[None] = None
    warnings: ClassVar[tuple[Reason, ...]] = ()

    @property
    def exit_code(self) -> int:
        """The exit status of a command that reports it."""
        return self.error_class.exit_code

    def to_dict(self) -> dict[str, Any]:
        """Return the Plan document of a refusal."""
        return _create_document(self)

    def error(self, machine: Machine) -> GpuInstallError:
        """Return the first reason as an error, with the machine's evidence."""
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


def _create_document(outcome: Plan | Rejected) -> dict[str, Any]:
    choice = outcome.choice
    build = None
    if choice:
        build = {
            **_describe_build(choice.build),
            "index": choice.index,
            "python": choice.python,
            "requirements": list(map(str, choice.requirements)),
        }
    return {
        "schema": PLAN_DOCUMENT,
        "status": outcome.status,
        "build": build,
        "gpus": write(outcome.gpus),
        "reasons": write(outcome.reasons),
        "rejected": [
            _describe_build(each.candidate) | each.reason._asdict()
            for each in outcome.rejected
        ],
        "warnings": write(outcome.warnings),
    }


def _describe_build(build: Build) -> dict[str, str]:
    return {"torch": str(build.torch), "backend": build.backend.tag}
