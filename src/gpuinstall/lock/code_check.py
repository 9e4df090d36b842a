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
from gpuinstall.base.values import dataclass
from gpuinstall.base.versions import ComputeCapability
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.lock.code_rows import CodeRows
from gpuinstall.lock.resolver import MISSING_EXTRAS
from gpuinstall.lock.source_builds import SDIST, source_builds
from gpuinstall.lock.uv_failure import Conflict
from gpuinstall.machine.vendors import rules_for
from gpuinstall.wheels.companions import load_members
from gpuinstall.wheels.learned.row import as_build, made_with, misfit, refused_by_driver
from gpuinstall.wheels.needs import load_libraries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuinstall.base.machine import Gpu
    from gpuinstall.catalog import Build, Wheel
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.machine.protocol import Rules
    from gpuinstall.plan import Plan, Rejected
    from gpuinstall.sources.session import Session
    from gpuinstall.wheels.learned.row import LearnedRow
    from gpuinstall.wheels.needs import TorchNeeds

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


_OF_ANOTHER_ABI = {("2.6", "cu126")}
"""Builds with the strings of C++11, where the others of the same release have those before it: nobody measured them.

https://github.com/pytorch/pytorch/releases/tag/v2.6.0
"""


@dataclass(frozen=True)
class CodeSurroundings:
    """What native code meets where it is installed."""

    gpus: tuple[tuple[Rules, Gpu], ...]
    """Each with the rules of its machine."""
    versions: Mapping[str, str]
    """The packages of the same lock."""


def for_another_system(row: LearnedRow, build: Build, around: CodeSurroundings) -> str | None:  # noqa: ARG001
    """Return that all libraries of a package are for another system, although its name says any."""
    if row.system == "windows" and build.os != "windows":
        return f"has libraries for Windows alone, although its file {row.file} is for any platform"
    return None


def below_lowest(row: LearnedRow, build: Build, around: CodeSurroundings) -> str | None:  # noqa: ARG001
    """Return that a GPU is older than the makers of a package support."""
    version = Version(row.version)
    lowest = load_members().lowest_capability(row.package, version)
    if lowest is None:
        return None
    for _, gpu in around.gpus:
        capability = gpu.compute_capability
        if capability and capability < ComputeCapability.parse(lowest):
            need = f"requires compute capability {lowest} or newer"
            return f"{need}, and {gpu.label} has {capability}"
    return None


def beyond_driver(row: LearnedRow, build: Build, around: CodeSurroundings) -> str | None:
    """Return that a driver does not run the CUDA that a package is made with."""
    return refused_by_driver(row, build, around.gpus)


def without_runtime(row: LearnedRow, build: Build, around: CodeSurroundings) -> str | None:
    """Return that torch brings another CUDA than the one that a package is linked to."""
    if _may_load(row, build, around):
        return None
    software = around.gpus[0][0].software if around.gpus else "CUDA"
    made = made_with(row, as_build(row, build), software)
    return f"is incompatible with torch {build.name}: {made}"


def without_symbols(row: LearnedRow, build: Build, around: CodeSurroundings) -> str | None:  # noqa: ARG001
    """Return that a torch lacks a symbol that a package uses."""
    needs = row.of_torch
    if has_symbols(needs, build) is not False:
        return None
    return f"is incompatible with torch {build.name}: its code works with {needs.torches}"


def has_symbols(needs: TorchNeeds, build: Build) -> bool | None:
    """Whether a build of torch has the symbols that code uses; None if that is not known."""
    minor = build.minor
    if needs.kind == "ordinary" and (minor, build.backend.tag) in _OF_ANOTHER_ABI:
        return None
    return needs.verdict(minor)


CERTAIN = (for_another_system, below_lowest, beyond_driver, without_runtime, without_symbols)
"""The rules by which a part of a package suffices."""


def certainly_against(row: LearnedRow, build: Build, around: CodeSurroundings) -> str | None:
    """Return why a package does not run beside a build, whatever else it has code for."""
    reasons = (rule(row, build, around) for rule in CERTAIN)
    return next(filter(None, reasons), None)


def _may_load(row: LearnedRow, build: Build, around: CodeSurroundings) -> bool:
    """Whether the runtime that a package is made for comes with torch, or with something else in the lock."""
    if row.toolkit is None or build.toolkit is None:
        return True
    opens = row.package in load_members().must_open
    if opens and not lacking(row, around):
        return True
    if not opens and not load_libraries().names_runtime(row.needs, row.opens):
        # A runtime that is linked in, or lies in the wheel, is its own.
        return True
    majors = {build.toolkit[0]}
    if row.of_torch.kind in {"stable", "ordinary"}:
        # Torch's own libraries are in the process before it, with torch's own CUDA.
        return row.toolkit[0] in majors
    for name, version in around.versions.items():
        if load_members().runtime.fullmatch(name):
            majors.add(Version(version).major)
    return row.toolkit[0] in majors


def is_for_single_chips(row: LearnedRow) -> bool:
    """Whether all code of a package is for single chips, ``sm_90a``: such kernels stand beside what runs everywhere.

    Not of a package that is such kernels by its name.
    """
    is_single = all(name.startswith("sm_") and name.endswith("a") for name in row.architectures)
    return is_single and not load_members().is_optional_package(row.package)


def lacking(row: LearnedRow, around: CodeSurroundings) -> tuple[str, ...]:
    """Return the missing packages with libraries that a package needs or does nothing without."""
    if not row.toolkit:
        return ()
    names = list(row.needs)
    must_open = load_members().must_open.get(row.package)
    if must_open:
        names += filter(must_open.fullmatch, row.opens)
    packages = dict[str, None]()
    for name in names:
        library = load_libraries().row(name)
        if library is None:
            continue
        package = library.package_for(row.toolkit[0])
        if package and package not in around.versions:
            packages[package] = None
    return tuple(packages)
