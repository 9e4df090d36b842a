"""What is wrong with what was resolved, by rules: what the code of wheels needs, and no METADATA says."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from packaging.version import Version

from gpuinstall.base.errors import NoBuildError
from gpuinstall.base.finding import Reason
from gpuinstall.base.requirement import parse_requirement
from gpuinstall.base.units import readable
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.lock.code_rows import CodeRows
from gpuinstall.lock.code_rules import (
    CodeSurroundings,
    certainly_against,
    is_for_single_chips,
    lacking,
    without_runtime,
)
from gpuinstall.lock.resolver import MISSING_EXTRAS
from gpuinstall.lock.source_builds import SDIST, source_builds
from gpuinstall.lock.uv_failure import Conflict
from gpuinstall.machine.vendors import rules_for
from gpuinstall.wheels.companions import load_members
from gpuinstall.wheels.learned.row import misfit, refused_by_driver

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuinstall.base.machine import Gpu
    from gpuinstall.catalog import Wheel
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.machine.protocol import Rules
    from gpuinstall.plan import Plan, Rejected
    from gpuinstall.sources.session import Session
    from gpuinstall.wheels.learned.row import LearnedRow

NO_CODE = "no-code-in-package"
LIBRARY_MISSING = "library-missing"
WOULD_BE_COMPILED = "would-be-compiled"

_BY_NAME = (
    "by its name alone: import torch before it, or put the library's folder into LD_LIBRARY_PATH"
)


class Fault(NamedTuple):
    """Something that is wrong with a package of a resolution."""

    code: str
    check: CodeCheck
    package: str
    message: str
    wheel: Wheel | None = None

    @property
    def is_certain(self) -> bool:
        """Whether the package cannot stay as it is."""
        return self.code == NO_CODE

    @property
    def is_of_request(self) -> bool:
        """Whether the package was requested."""
        return self.package in self.check.code.requested

    @property
    def lasting_cause(self) -> str:
        """What holds beside every torch, if anything does: what its driver or its code says."""
        if self.wheel is None or self.check.is_refused_by_driver(self.wheel):
            return self.message
        row = self.check.rows[self.wheel]
        why = misfit(row, self.check.build, self.check.around.gpus) if row.is_whole else None
        return f"{self.package} {self.wheel.version} {why}" if why else self.message

    def is_like(self, other: Fault) -> bool:
        """Whether it is the same: a remedy of the other has not mended it."""
        return (self.code, self.package, self.message) == (other.code, other.package, other.message)

    def refusal(self, message: str, why: str) -> Conflict:
        """Return it as what refuses the requests."""
        command = f"gpuinstall run python -m pip install {self.package}"
        hint = f"{command}   # installs it anyway, beside torch"
        return Conflict(NoBuildError(NO_CODE, message, why=why, hint=hint))


class CodeVerdict(NamedTuple):
    """Why a wheel does not run."""

    message: str
    excludes: bool
    """Whether something has to give way for it; else it is only warned of."""


class CodeCheck:
    """The code of a resolution, against the GPUs that it is for."""

    def __init__(self, resolution: Resolution, session: Session) -> None:
        self.resolution = resolution
        self.session = session
        self.build = resolution.choice.build
        self.around = CodeSurroundings(
            gpus=tuple(served_gpus(resolution.request, resolution.plan)),
            versions=resolution.versions,
        )
        self.code = CodeRows(resolution, session)

    @property
    def rows(self) -> Mapping[Wheel, LearnedRow]:
        """What the wheels say of themselves; nothing if the lock is for the CPU alone."""
        is_for_cuda = self.build.backend.kind == "cuda"
        return self.code.by_wheel if self.around.gpus or is_for_cuda else {}

    @cached_property
    def rejected(self) -> dict[Wheel, CodeVerdict]:
        """The wheels whose code does not run on one of the GPUs, or not beside torch."""
        verdicts = {wheel: self._judge(wheel) for wheel in self.rows}
        return {wheel: verdict for wheel, verdict in verdicts.items() if verdict}

    def _judge(self, wheel: Wheel) -> CodeVerdict | None:
        row = self.rows[wheel]
        has_fallback = self.code.has_fallback(wheel.package)
        certain = certainly_against(row, self.build, self.around)
        why = certain or misfit(row, self.build, self.around.gpus)
        # A refusal would rest on a part of its code.
        is_in_doubt = bool(why) and not (certain or row.is_whole or has_fallback)
        if is_in_doubt and self.code.read_to_the_end(wheel):
            row = self.rows[wheel]
            certain = certainly_against(row, self.build, self.around)
            why = certain or misfit(row, self.build, self.around.gpus)
        if why is None:
            return None
        lacks_code = row.is_whole and not is_for_single_chips(row)
        excludes = not has_fallback and (certain is not None or lacks_code)
        return CodeVerdict(f"{wheel.package} {wheel.version} {why}", excludes)

    def is_refused_by_driver(self, wheel: Wheel) -> bool:
        """Whether a wheel is for a CUDA that a driver does not run."""
        return refused_by_driver(self.rows[wheel], self.build, self.around.gpus) is not None

    def is_for_another_cuda(self, wheel: Wheel) -> bool:
        """Whether a wheel is for a CUDA that a driver does not run, or that no torch here brings."""
        row = self.rows[wheel]
        builds = self.resolution.plan.runnable or (self.build,)
        return self.is_refused_by_driver(wheel) or all(
            without_runtime(row, build, self.around) for build in builds
        )

    def missing_libraries(self, wheel: Wheel) -> tuple[str, ...]:
        """Return the packages with libraries that a wheel is linked to and nothing in the lock has."""
        lacks = lacking(self.rows[wheel], self.around)
        return tuple(package for package in lacks if not self._comes_with_torch(package))

    def _comes_with_torch(self, package: str) -> bool:
        """Whether torch brings a package of libraries, in packages of their own or in its own folder."""
        members = load_members()
        if not members.with_torch.fullmatch(package):
            return False
        return not any(map(members.runtime.fullmatch, self.around.versions))

    def placeholder(self) -> str | None:
        """Return what was requested and came to a pre-release that nobody requested; None if nothing did."""
        for requirement in map(parse_requirement, self.resolution.choice.requirements):
            version = self.around.versions.get(requirement.name)
            if version is None or not Version(version).is_prerelease:
                continue
            allows_early = requirement.specifier is not None and requirement.specifier.prereleases
            if not allows_early and self.code.has_release(requirement.name):
                return f"{requirement.name} {version}"
        return None

    def remarks(self) -> Iterator[Reason]:
        """Yield warnings of what excludes nothing: what was not read, what has a fallback, what goes badly together."""
        for package, version, extra in self.resolution.document.get(MISSING_EXTRAS, ()):
            # An extra that a dependency names is its authors' affair.
            if package in self.code.requested:
                yield Reason("no-such-extra", f"{package} {version} has no extra {extra}")
        for message in load_members().clashes(self.around.versions):
            yield Reason("packages-clash", message)
        for verdict in self.rejected.values():
            yield Reason("part-without-code", verdict.message)
        for wheel, row in self.rows.items():
            if not row.architectures and not row.is_whole and wheel not in self.rejected:
                package = f"{row.package} {row.version}"
                read = f"the {readable(row.bytes)} that were read of it hold none"
                message = f"whether {package} has code for these GPUs is not known: {read}"
                yield Reason("code-unread", message)
            if row.opens and row.package in load_members().must_open:
                message = f"{row.package} loads {row.opens[0]} {_BY_NAME}"
                yield Reason("opens-libraries", message)


def code_faults(check: CodeCheck) -> Iterator[Fault]:
    """Yield what does not run on a GPU, or not beside torch."""
    for wheel, verdict in check.rejected.items():
        if verdict.excludes:
            yield Fault(NO_CODE, check, wheel.package, verdict.message, wheel)


def library_faults(check: CodeCheck) -> Iterator[Fault]:
    """Yield what is linked to libraries that nothing has."""
    for wheel, row in check.rows.items():
        if check.missing_libraries(wheel) and not misfit(row, check.build, check.around.gpus):
            message = f"{wheel.package} {wheel.version.public} is linked to libraries that nothing else has"
            yield Fault(LIBRARY_MISSING, check, wheel.package, message, wheel)


def compiled_dependencies(check: CodeCheck) -> Iterator[Fault]:
    """Yield extensions that other packages require, and that would be compiled."""
    for build in source_builds(check.resolution.document):
        if build.package in load_extensions().rows and build.origin == SDIST:
            yield Fault(WOULD_BE_COMPILED, check, build.package, f"{build} would be compiled")


FAULT_RULES = (code_faults, library_faults, compiled_dependencies)
"""The search meets every fault of the first before any of the next."""


def served_gpus(
    request: LockRequest,
    plan: Plan,
) -> Iterator[tuple[Rules, Gpu]]:
    """Yield the GPUs that a lock is for, each with the rules of its machine: a machine's own, or those of all it serves."""
    kinds = {plan.choice.build.backend.kind}
    for machine in request.serves or (request.machine,):
        outcome: Plan | Rejected = plan
        if request.serves:
            outcome = replace(request, machine=machine, serves=()).outcome
        rules = rules_for(machine, request.catalog, kinds)
        served = {run.index for run in outcome.gpus if run.how != "none"}
        for gpu in machine.gpus:
            if gpu.index in served:
                yield rules, gpu
