"""Define the plan and the refusal that result from selecting a build."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

from gpuinstall.base.advice import Advice, Hint, list_commands
from gpuinstall.base.codec import write
from gpuinstall.base.errors import GpuInstallError
from gpuinstall.base.finding import Finding, Reason, Rejection
from gpuinstall.base.machine import Machine
from gpuinstall.base.request import Request
from gpuinstall.base.requirement import Requirement, is_http_url
from gpuinstall.base.values import Value
from gpuinstall.catalog.catalog import Build, Catalog

RejectedBuild = Rejection[Build]
SortKey = tuple[object, ...]

PLAN_DOCUMENT = "gpuinstall.plan/1"
Printer = Callable[[Hint], str]
"""A function that formats a command for the user's shell."""
HELD_BACK = "held-back"
"""Reason code for a build that is newer than other packages allow."""
PROGRAM_HELD_BACK = "program-held-back"
GPU_BUILD_FOR_CPU = "cuda-build-without-gpu"
"""Warning code for a GPU build on the CPU if no index has a CPU build."""
PREFERRED_BACKEND_REJECTED = "backend-passed-over"
"""Reason code for a preferred build that lacks a requested companion."""
WITHOUT_GPU = "no-gpu"
"""Reason code for a CPU build that is selected because no GPU was found."""
NEWEST_BUT = "newest-but-"
"""Prefix of reason codes for a newer torch that is rejected."""
TORCH_HELD = "torch-held"
"""Reason code for a better torch that only ``--upgrade`` selects."""
TORCH_LIMITED = "torch-limited"
"""Reason code for a newer torch that a lock or a requirement excludes."""
INSTALL_REASONS = frozenset(
    {
        TORCH_HELD,
        HELD_BACK,
        PROGRAM_HELD_BACK,
        PREFERRED_BACKEND_REJECTED,
        WITHOUT_GPU,
        "other-choice",
    }
)
"""Codes of the selection reasons that ``install`` prints."""

PlanStatus = Literal["ok", "partial", "cpu"]


class PlanInput(Value):
    """A machine, the request for it, and the catalog of builds."""

    machine: Machine
    request: Request
    catalog: Catalog


class GpuSupport(Value):
    """The code in the selected build that a particular GPU runs."""

    index: int
    runs: str | None = None
    """The architecture of the GPU code, such as ``sm_86``."""

    how: str = "none"
    """The kind of GPU code: ``sass``, ``ptx``, or ``none``."""


class Choice(Value):
    """The selected build, its Python version, and its requirements."""

    build: Build
    python: str
    index: str | None
    """The URL or folder of the torch index; None for the default index."""

    requirements: tuple[Requirement, ...]
    """The requirements to install, with torch and known companions pinned."""

    @property
    def command(self) -> Advice:
        """The command with which uv installs the requirements."""
        place: tuple[str, ...] = ()
        if self.index:
            place = (
                "--index" if is_http_url(self.index) else "--find-links",
                self.index,
            )
        words = []
        for one in self.requirements:
            words += ["-e", one.url or ""] if one.editable else [str(one)]
        return Advice("uv", ("pip", "install", *words, *place))


class ProgramConstraints(Value):
    """The build that resolving other packages selects, and the reasons."""

    build: Build
    why: str
    """The reason why torch is not newer, or empty if no newer torch runs."""

    unserved: Mapping[str, str] = {}
    """Conflicts between packages and builds of this torch, by backend tag."""

    held_back: tuple[str, ...] = ()
    """The reasons why other packages are not at their latest versions."""


class Plan(Value):
    """The selected torch build, and the reasons for selecting it."""

    status: PlanStatus
    choice: Choice
    gpus: tuple[GpuSupport, ...] = ()
    reasons: tuple[Reason, ...] = ()
    rejected: tuple[RejectedBuild, ...] = ()
    warnings: tuple[Reason, ...] = ()
    runnable: tuple[Build, ...] = ()
    """All builds that run on the selected GPUs, best first."""

    # Plan and Rejected have the same attributes for API users.
    exit_code: ClassVar[int] = 0
    fixes: ClassVar[tuple[Hint, ...]] = ()
    changes: ClassVar[tuple[Hint, ...]] = ()
    fix: ClassVar[None] = None

    @property
    def covered_gpus(self) -> frozenset[int]:
        """The indices of the GPUs on which the build runs."""
        return frozenset(gpu.index for gpu in self.gpus if gpu.how != "none")

    def to_dict(self, print_hint: Printer = str) -> dict[str, Any]:
        """Return the plan as a JSON-compatible dictionary."""
        return _create_document(self, print_hint)


class Rejected(Value):
    """The refusal of a request, with reasons and without a selected build."""

    error_class: type[GpuInstallError]
    """The exception class that reports the refusal."""

    reasons: tuple[Reason, ...]
    fixes: tuple[Hint, ...] = ()
    """The changes of the machine that make a build selectable."""

    changes: tuple[Hint, ...] = ()
    """The changes of the request, if the machine stays as it is."""

    gpus: tuple[GpuSupport, ...] = ()
    rejected: tuple[RejectedBuild, ...] = ()

    # Plan and Rejected have the same attributes for API users.
    status: ClassVar[Literal["refused"]] = "refused"
    choice: ClassVar[None] = None
    warnings: ClassVar[tuple[Reason, ...]] = ()

    @property
    def fix(self) -> str | None:
        """The fixes and changes as text, one in each line, or None."""
        return "\n".join(map(str, (*self.fixes, *self.changes))) or None

    @property
    def exit_code(self) -> int:
        """The exit status of a command whose request is refused."""
        return self.error_class.exit_code

    def to_dict(self, print_hint: Printer = str) -> dict[str, Any]:
        """Return the refusal as a JSON-compatible dictionary."""
        return _create_document(self, print_hint)

    def error(self, machine: Machine) -> GpuInstallError:
        """Create an exception from the first reason for the refusal."""
        reason = self.reasons[0]
        same = (problem for problem in machine.problems if problem.code == reason.code)
        finding = next(same, Finding(reason.code, reason.message))
        return self.error_class(
            reason.code,
            reason.message,
            hint=(*self.fixes, *self.changes),
            why=finding.why,
            evidence=finding.evidence,
            id=finding.id,
            data={"plan": self.to_dict()},
        )


def _create_document(outcome: Plan | Rejected, print_hint: Printer) -> dict[str, Any]:
    choice = outcome.choice
    build = None
    if choice:
        build = {
            **_describe_build(choice.build),
            "index": choice.index,
            "python": choice.python,
            "requirements": list(map(str, choice.requirements)),
            "command": str(choice.command),
        }
    return {
        "schema": PLAN_DOCUMENT,
        "status": outcome.status,
        "build": build,
        "gpus": write(outcome.gpus),
        "reasons": [one.to_dict() for one in outcome.reasons],
        "rejected": [
            _describe_build(each.candidate) | each.reason.to_dict()
            for each in outcome.rejected
        ],
        "warnings": [
            {
                **one.to_dict(),
                "why": (one.why or "").splitlines(),
                "do": list_commands(one.fixes, print_hint),
            }
            for one in outcome.warnings
        ],
    }


def _describe_build(build: Build) -> dict[str, str]:
    return {"torch": str(build.torch), "backend": build.backend.tag}
