"""What is wrong with what was resolved, by rules: what the code of wheels needs, and no METADATA says.

What was requested, and what the catalogue calls its core, is read for it, each wheel once; of a dependency the CUDA major
alone counts, by its name, its METADATA or the catalogue, so that nobody waits for its wheel.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from gpuinstall.base.errors import InstallationError, NoBuildError
from gpuinstall.base.finding import Reason
from gpuinstall.base.requirement import parse_requirement, requirement_names
from gpuinstall.base.threads import side_by_side
from gpuinstall.base.units import readable
from gpuinstall.base.values import dataclass
from gpuinstall.base.versions import ComputeCapability
from gpuinstall.catalog import Wheel
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.catalog.listing import family_wheels
from gpuinstall.catalog.pages import parse_page
from gpuinstall.lock.resolver import MISSING_EXTRAS
from gpuinstall.lock.source_builds import SDIST, source_builds
from gpuinstall.lock.target import best_by_tags
from gpuinstall.lock.uv_failure import Conflict
from gpuinstall.machine.vendors import rules_for
from gpuinstall.plan.companions import PAIRED
from gpuinstall.wheels.companions import load_members
from gpuinstall.wheels.learned.reader import Reader
from gpuinstall.wheels.learned.row import Depth, as_build, made_with, misfit, refused_by_driver
from gpuinstall.wheels.learned.store import learned_store
from gpuinstall.wheels.needs import load_libraries, pinned_cuda

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from packaging.tags import Tag

    from gpuinstall.base.backend import Backend
    from gpuinstall.base.machine import Gpu
    from gpuinstall.catalog import Build
    from gpuinstall.lock.lock import LockedFile
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.machine.protocol import Rules
    from gpuinstall.plan import Plan, Rejected
    from gpuinstall.sources.session import Session
    from gpuinstall.wheels.learned.row import LearnedRow
    from gpuinstall.wheels.needs import TorchNeeds

NO_CODE = "no-code-in-package"
PART = "part-without-code"
"""The code of what does not run and excludes nothing: what has a fallback, or was read in part."""
LIBRARY_MISSING = "library-missing"
WOULD_BE_COMPILED = "would-be-compiled"

_WITHOUT_CUDA = re.compile(r"-cu(da)?\d+x?$", re.ASCII)
_BY_NAME = (
    "by its name alone: import torch before it, or put the library's folder into LD_LIBRARY_PATH"
)

_OF_ANOTHER_ABI = {("2.6", "cu126")}
"""Builds with the strings of C++11, where the others of the same release have those before it: nobody measured them.

https://github.com/pytorch/pytorch/releases/tag/v2.6.0
"""

WHEELS_AT_ONCE = 8


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
    def rejected(self) -> dict[Wheel, Fault]:
        """The wheels whose code does not run on one of the GPUs, or not beside torch."""
        faults = {wheel: self._judge(wheel) for wheel in self.rows}
        return {wheel: fault for wheel, fault in faults.items() if fault}

    def _judge(self, wheel: Wheel) -> Fault | None:
        has_fallback = self.code.has_fallback(wheel.package)
        certain, why = self._reasons_against(wheel)
        # A refusal would rest on a part of its code.
        is_in_doubt = why and not (certain or self.rows[wheel].is_whole or has_fallback)
        if is_in_doubt and self.code.read_to_the_end(wheel):
            certain, why = self._reasons_against(wheel)
        if why is None:
            return None
        row = self.rows[wheel]
        is_single = is_for_single_chips(row)
        if is_single and not certain and self.code.has_code_elsewhere(wheel):
            return None
        lacks_code = row.is_whole and not is_single
        excludes = not has_fallback and (certain or lacks_code)
        message = f"{wheel.package} {wheel.version} {why}"
        return Fault(NO_CODE if excludes else PART, self, wheel.package, message, wheel)

    def _reasons_against(self, wheel: Wheel) -> tuple[str | None, str | None]:
        """Return what speaks against a wheel by a part of it already, and what does by all that was read."""
        row = self.rows[wheel]
        certain = certainly_against(row, self.build, self.around)
        return certain, certain or misfit(row, self.build, self.around.gpus)

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
        for fault in self.rejected.values():
            yield Reason(PART, fault.message)
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
    for fault in check.rejected.values():
        if fault.is_certain:
            yield fault


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


class CodeRows:
    """What the wheels of a resolution say of their native code."""

    def __init__(self, resolution: Resolution, session: Session) -> None:
        self._resolution = resolution
        self._session = session
        self._build = resolution.choice.build
        self._platform = f"{self._build.os}-{self._build.arch}"
        self.requested = requirement_names(resolution.choice.requirements)
        self._reader = Reader(
            session.sources,
            session.client,
            learned_store(),
            session.reporter,
            session.reading,
            session.rows,
        )

    def decides(self, package: str) -> bool:
        """Whether a package was requested or is half of one that was, or is what the catalogue calls the core of programs."""
        members = load_members()
        is_core = members.names(package) or package in members.stated
        return package in self.requested or is_core or package in self._halves

    @cached_property
    def _halves(self) -> set[str]:
        """The packages with the code of one that was requested, of its version.

        They are named after it, as libcuopt-cu12 after cuopt, or it after them: cuequivariance-ops-torch after
        cuequivariance-ops.
        """
        versions = self._resolution.versions
        halves = set[str]()
        for requested in self.requested & versions.keys():
            own = _WITHOUT_CUDA.sub("", requested)
            for name, version in versions.items():
                is_after_it = own.rpartition("-")[2] in name
                is_before_it = own.startswith(f"{_WITHOUT_CUDA.sub('', name)}-")
                if version == versions[requested] and (is_after_it or is_before_it):
                    halves.add(name)
        return halves - PAIRED

    def has_code_elsewhere(self, wheel: Wheel) -> bool:
        """Whether the wheel of another half was read that has code."""
        others = self._halves - {wheel.package}
        return any(row.architectures for row in self.by_wheel.values() if row.package in others)

    def has_fallback(self, package: str) -> bool:
        """Whether what was requested is known to do without a package."""
        row = load_extensions().rows.get(package)
        if row is None or package in self.requested:
            return False
        return bool(row.optional_for & {*self.requested, "*"})

    @cached_property
    def by_wheel(self) -> dict[Wheel, LearnedRow]:
        """What the wheels say of themselves, but for those that torch's build answers for."""
        wheels = list(filter(self._is_judged, self._wheels))
        rows = side_by_side(self._read, wheels, WHEELS_AT_ONCE)
        pairs = zip(wheels, rows, strict=True)
        return {wheel: row for wheel, row in pairs if row}

    def _is_judged(self, wheel: Wheel) -> bool:
        # The name of a file may say any platform, and have libraries for one.
        return _has_own_code(wheel, self._build) or wheel.package in self.requested

    @cached_property
    def _wheels(self) -> list[Wheel]:
        """The wheels of the resolution, without those that torch's build answers for."""
        answered = set() if self._build.learned else PAIRED
        if self.requested <= answered:
            return []
        # A torch that is not in the catalogue was read before it was chosen.
        files = [
            file for file in self._resolution.files if file.package not in {*answered, "torch"}
        ]
        resolution = self._resolution
        return installed_wheels(
            filter(None, map(_wheel, files)),
            resolution.target.tags(resolution.choice.python),
        )

    def _read(self, wheel: Wheel) -> LearnedRow | None:
        try:
            # One for any platform is judged only if it was requested.
            if not _is_for_any(wheel) or self._reader.may_have_code(wheel):
                return self.row(wheel)
        except InstallationError as error:
            package = f"{wheel.package} {wheel.version}"
            message = f"could not read whether {package} has code for these GPUs: {error.message}"
            self._session.reporter.warn(message)
        return None

    def row(
        self,
        wheel: Wheel,
        backend: Backend | None = None,
        depth: Depth = Depth.PART,
    ) -> LearnedRow:
        """Return what a wheel says, of this resolution or not; of a dependency what its name and METADATA say.

        Args:
            wheel: The wheel.
            backend: The torch that it is judged beside; None for that of the resolution.
            depth: How much of what was requested is read.

        Raises:
            InstallationError: if it cannot be read.
        """
        backend = backend or self._build.backend
        if self.decides(wheel.package):
            return self._reader.companion(wheel, backend, self._platform, depth)
        row = self._reader.companion(wheel, backend, self._platform, Depth.METADATA)
        # Its code is not read: what it requires tells its CUDA.
        return replace(row, cuda=row.cuda or pinned_cuda(row.requires))

    def has_release(self, package: str) -> bool:
        """Whether there is a wheel of a package that is no pre-release."""
        return any(not wheel.version.is_prerelease for wheel in self.usable_wheels(package))

    def usable_wheels(self, package: str) -> Iterator[Wheel]:
        """Yield the wheels of a package that its Python and platform can install, of torch's own index if that has it."""
        resolution, session = self._resolution, self._session
        wheels: Iterable[Wheel] = ()
        if package in resolution.request.catalog.family and resolution.choice.index:
            backend = self._build.backend.tag
            wheels = family_wheels(session.sources, session.client, backend, package)
        page = None if wheels else session.page_of(package)
        if page:
            wheels = parse_page(page)
        tags = set(resolution.target.tags(resolution.choice.python))
        for wheel in wheels:
            if wheel.package == package and tags & wheel.tags:
                yield wheel

    @property
    def is_spent(self) -> bool:
        """Whether as much of wheels was read as is read for one lock."""
        return self._reader.is_spent

    def read_to_the_end(self, wheel: Wheel) -> bool:
        """Read the libraries that answer for a wheel to their end; return whether that gave a new row."""
        row = None
        with suppress(InstallationError):
            row = self.row(wheel, depth=Depth.WHOLE)
        if row is None or not row.architectures:
            # It stays a part, of which nothing certain is said.
            return False
        self.by_wheel[wheel] = row
        return True


def installed_wheels(wheels: Iterable[Wheel], tags: Sequence[Tag]) -> list[Wheel]:
    """Return of several wheels of a package, which a lock has for newer glibcs, the one that is installed.

    Args:
        wheels: Those of a lock.
        tags: What fits its target, the best first.
    """
    return best_by_tags(wheels, tags, lambda wheel: (wheel.package, wheel.tags))


def _has_own_code(wheel: Wheel, build: Build) -> bool:
    """Whether a wheel is for one platform, and torch's own build does not answer for it."""
    if _is_for_any(wheel):
        return False
    members = load_members()
    if not members.with_torch.fullmatch(wheel.package):
        return True
    pinned = {number for _, number in build.libraries}
    is_pinned = not pinned or str(wheel.version) in pinned
    return not is_pinned and members.not_pinned.fullmatch(wheel.package) is not None


def _is_for_any(wheel: Wheel) -> bool:
    return all(tag.platform == "any" for tag in wheel.tags)


def _wheel(file: LockedFile) -> Wheel | None:
    """Return a resolved file as a wheel; None if it is none."""
    with suppress(InvalidWheelFilename):
        _, version, _, tags = parse_wheel_filename(file.name)
        return Wheel(file.package, version, file.name, file.url, tags, file.sha256)
    return None
