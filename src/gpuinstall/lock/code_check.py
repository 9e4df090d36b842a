"""What is wrong with what was resolved, by the code of its wheels, which no METADATA tells.

What was requested, and what the catalogue calls its core, is read, each wheel once. Of a dependency the CUDA major alone
counts, by its name, its METADATA or the catalogue, so that nobody waits for its wheel. What is certain refuses, what is
unknown warns.
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
from gpuinstall.base.requirement import requirement_names
from gpuinstall.base.text import readable
from gpuinstall.base.threads import side_by_side
from gpuinstall.catalog import Wheel
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.catalog.listing import family_wheels
from gpuinstall.catalog.pages import parse_page
from gpuinstall.lock.programs import prereleases
from gpuinstall.lock.resolver import MISSING_EXTRAS
from gpuinstall.lock.source_builds import SDIST, source_builds
from gpuinstall.lock.target import best_by_tags
from gpuinstall.lock.uv_failure import Conflict
from gpuinstall.machine.vendors import rules_for
from gpuinstall.plan.companions import PAIRED
from gpuinstall.wheels.companions import load_members
from gpuinstall.wheels.learned.reader import Reader
from gpuinstall.wheels.learned.row import (
    Depth,
    as_build,
    made_with,
    misfit,
    refused_by_driver,
)
from gpuinstall.wheels.learned.store import learned_store
from gpuinstall.wheels.needs import load_libraries, pinned_cuda

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuinstall.base.machine import Gpu
    from gpuinstall.base.versions import Backend
    from gpuinstall.catalog import Build
    from gpuinstall.lock.lock import LockedFile
    from gpuinstall.lock.request.lock_request import LockRequest
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.machine.protocol import Rules
    from gpuinstall.plan import Plan, Rejected
    from gpuinstall.sources.session import Session
    from gpuinstall.wheels.learned.row import LearnedRow

NO_CODE = "no-code-in-package"
PART = "part-without-code"
"""The code of what does not run and excludes nothing: what has a fallback, or was read in part."""
LIBRARY_MISSING = "library-missing"
WOULD_BE_COMPILED = "would-be-compiled"

_WITHOUT_CUDA = re.compile(r"-cu(da)?\d+x?$", re.ASCII)
_BY_NAME = "by its name alone: import torch before it, or put the library's folder into LD_LIBRARY_PATH"

_OF_ANOTHER_ABI = {("2.6", "cu126")}
"""Builds with the strings of C++11, where the others of the same release have those before it: nobody measured them.

https://github.com/pytorch/pytorch/releases/tag/v2.6.0
"""

WHEELS_AT_ONCE = 32
"""How many wheels of a lock are looked at side by side: of nearly all of them METADATA alone, a way to an index and back."""


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
        return self.package in self.check.requested

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells whether it is the same as one that was found before a remedy."""
        return self.code, self.package, self.message

    def refusal(self, message: str, why: str) -> Conflict:
        """Return it as what refuses the requests."""
        command = f"gpuinstall run python -m pip install {self.package}"
        hint = f"{command}   # installs it anyway, beside torch"
        return Conflict(NoBuildError(NO_CODE, message, why=why, hint=hint))


class CodeCheck:
    """The code of a resolution, against the GPUs that it is for."""

    def __init__(
        self,
        resolution: Resolution,
        session: Session,
    ) -> None:
        self.resolution = resolution
        self.session = session
        self.build = resolution.choice.build
        self.requested = requirement_names(resolution.choice.requirements)
        self._versions = resolution.versions
        self._gpus = tuple(served_gpus(resolution.request, resolution.plan))
        self._reader = Reader(
            session.sources,
            session.client,
            learned_store(),
            session.reporter,
            session.reading,
            session.rows,
        )

    def pairing(
        self,
        row: LearnedRow,
        build: Build | None = None,
    ) -> Pairing:
        """Return a package beside a build of torch: that of the resolution, if no other is given."""
        return Pairing(row, build or self.build, self._gpus, self._versions)

    @cached_property
    def faults(self) -> dict[Wheel, Fault]:
        """The wheels whose code does not run on one of the GPUs, or not beside torch."""
        faults = {wheel: self._judge(wheel) for wheel in self.rows}
        return {wheel: fault for wheel, fault in faults.items() if fault}

    def _judge(self, wheel: Wheel) -> Fault | None:
        pairing = self.pairing(self.rows[wheel])
        package = wheel.package
        extension = load_extensions().rows.get(package)
        # What was requested may be known to do without it.
        has_fallback = (
            extension is not None
            and package not in self.requested
            and bool(extension.optional_for & {*self.requested, "*"})
        )
        if pairing.misfit and not (
            pairing.certain_reason or pairing.row.is_whole or has_fallback
        ):
            # A refusal would rest on a part of its code.
            with suppress(InstallationError):
                row = self.row(wheel, depth=Depth.WHOLE)
                # Else it stays a part, of which nothing certain is said.
                if row.architectures:
                    self.rows[wheel] = row
                    pairing = self.pairing(row)
        why = pairing.certain_reason or pairing.misfit
        if why is None:
            return None
        lacks_code = pairing.row.is_whole and not pairing.is_for_single_chips
        excludes = not has_fallback and (pairing.certain_reason or lacks_code)
        message = f"{package} {wheel.version} {why}"
        return Fault(NO_CODE if excludes else PART, self, package, message, wheel)

    @property
    def prereleases(self) -> frozenset[str]:
        """What was requested and came to a pre-release."""
        return prereleases(self._versions) & self.requested

    def remarks(self) -> Iterator[Reason]:
        """Yield warnings of what excludes nothing: what was not read, what has a fallback, what goes badly together."""
        for package, version, extra in self.resolution.document.get(MISSING_EXTRAS, ()):
            # An extra that a dependency names is its authors' affair.
            if package in self.requested:
                yield Reason(
                    "no-such-extra", f"{package} {version} has no extra {extra}"
                )
        for message in load_members().clashes(self._versions):
            yield Reason("packages-clash", message)
        for fault in self.faults.values():
            yield Reason(PART, fault.message)
        for wheel, row in self.rows.items():
            if not row.architectures and not row.is_whole and wheel not in self.faults:
                package = f"{row.package} {row.version}"
                read = f"the {readable(row.bytes)} that were read of it hold none"
                message = (
                    f"whether {package} has code for these GPUs is not known: {read}"
                )
                yield Reason("code-unread", message)
            if row.opens and row.package in load_members().must_open:
                message = f"{row.package} loads {row.opens[0]} {_BY_NAME}"
                yield Reason("opens-libraries", message)

    @cached_property
    def rows(self) -> dict[Wheel, LearnedRow]:
        """What the wheels say of themselves, but for those that torch's build answers for; none of a lock for the CPU."""
        answered = {"torch"} if self.build.learned else PAIRED
        is_for_cpu = not self._gpus and self.build.backend.kind != "cuda"
        if is_for_cpu or self.requested <= answered:
            return {}
        # A torch that is not in the catalogue was read before it was chosen.
        files = [
            file
            for file in self.resolution.files
            if file.package not in {*answered, "torch"}
        ]
        # A lock has several wheels of a package for newer glibcs, of which one is installed.
        wheels = best_by_tags(
            filter(None, map(_wheel, files)),
            self.resolution.target.tags(self.resolution.choice.python),
            lambda wheel: (wheel.package, wheel.tags),
        )
        rows = side_by_side(self._read, wheels, WHEELS_AT_ONCE)
        return {wheel: row for wheel, row in zip(wheels, rows, strict=True) if row}

    def _read(self, wheel: Wheel) -> LearnedRow | None:
        """Return what a wheel says; None if it has no code of its own, or cannot be read."""
        is_for_any = all(tag.platform == "any" for tag in wheel.tags)
        is_answered_for = load_members().with_torch.fullmatch(wheel.package)
        # The name of a file may say any platform, and have libraries for one.
        if (is_for_any or is_answered_for) and wheel.package not in self.requested:
            return None
        try:
            if not is_for_any or self._reader.may_have_code(wheel):
                return self.row(wheel)
        except InstallationError as error:
            package = f"{wheel.package} {wheel.version}"
            message = f"could not read whether {package} has code for these GPUs: {error.message}"
            self.session.reporter.warn(message)
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
        backend = backend or self.build.backend
        platform = f"{self.build.os}-{self.build.arch}"
        if self._decides(wheel.package):
            return self._reader.companion(wheel, backend, platform, depth)
        row = self._reader.companion(wheel, backend, platform, Depth.METADATA)
        # Its code is not read: what it requires tells its CUDA.
        return replace(row, cuda=row.cuda or pinned_cuda(row.requires))

    def _decides(self, package: str) -> bool:
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
        halves = set[str]()
        for requested in self.requested & self._versions.keys():
            own = _WITHOUT_CUDA.sub("", requested)
            for name, version in self._versions.items():
                if version != self._versions[requested]:
                    continue
                is_after_it = own.rpartition("-")[2] in name
                is_before_it = own.startswith(f"{_WITHOUT_CUDA.sub('', name)}-")
                if is_after_it or is_before_it:
                    halves.add(name)
        return halves - PAIRED

    def usable_wheels(self, package: str) -> list[Wheel]:
        """Return the wheels of a package that its Python and platform can install, of torch's own index if that has it."""
        resolution, session = self.resolution, self.session
        wheels: tuple[Wheel, ...] = ()
        if package in resolution.request.catalog.family and resolution.choice.index:
            backend = self.build.backend.tag
            wheels = family_wheels(session.sources, session.client, backend, package)
        page = None if wheels else session.page_of(package)
        if page:
            wheels = parse_page(page)
        tags = set(resolution.target.tags(resolution.choice.python))
        return [
            wheel for wheel in wheels if wheel.package == package and tags & wheel.tags
        ]

    @property
    def is_spent(self) -> bool:
        """Whether as much of wheels was read as is read for one lock."""
        return self._reader.is_spent


def _wheel(file: LockedFile) -> Wheel | None:
    """Return a resolved file as a wheel; None if it is none."""
    with suppress(InvalidWheelFilename):
        _, version, _, tags = parse_wheel_filename(file.name)
        return Wheel(file.package, version, file.name, file.url, tags, file.sha256)
    return None


def code_faults(check: CodeCheck) -> Iterator[Fault]:
    """Yield what does not run on a GPU, or not beside torch."""
    for fault in check.faults.values():
        if fault.is_certain:
            yield fault


def library_faults(check: CodeCheck) -> Iterator[Fault]:
    """Yield what is linked to libraries that nothing has."""
    for wheel, row in check.rows.items():
        pairing = check.pairing(row)
        if pairing.unprovided and not pairing.misfit:
            message = f"{wheel.package} {wheel.version.public} is linked to libraries that nothing else has"
            yield Fault(LIBRARY_MISSING, check, wheel.package, message, wheel)


def compiled_dependencies(check: CodeCheck) -> Iterator[Fault]:
    """Yield extensions that other packages require, and that would be compiled."""
    for build in source_builds(check.resolution.document):
        if build.package in load_extensions().rows and build.origin == SDIST:
            yield Fault(
                WOULD_BE_COMPILED, check, build.package, f"{build} would be compiled"
            )


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


class Pairing(NamedTuple):
    """A package beside a build of torch, where both are installed."""

    row: LearnedRow
    build: Build
    gpus: tuple[tuple[Rules, Gpu], ...]
    """Each with the rules of its machine."""
    versions: Mapping[str, str]
    """The packages of the same lock."""

    @property
    def misfit(self) -> str | None:
        """Why it does not run on the GPUs, as far as it was read."""
        return misfit(self.row, self.build, self.gpus)

    @property
    def certain_reason(self) -> str | None:
        """Why it does not run, whatever else it has code for: a part of it is enough to tell."""
        return next(self._certain_reasons(), None)

    def _certain_reasons(self) -> Iterator[str]:
        row, build = self.row, self.build
        if row.system == "windows" and build.os != "windows":
            yield f"has libraries for Windows alone, although its file {row.file} is for any platform"
        refused = refused_by_driver(row, build, self.gpus)
        if refused:
            yield refused
        if not self._has_runtime:
            software = self.gpus[0][0].software if self.gpus else "CUDA"
            made = made_with(row, as_build(row, build), software)
            yield f"is incompatible with torch {build.name}: {made}"
        if self.has_symbols is False:
            works = f"its code works with {row.of_torch.torches}"
            yield f"is incompatible with torch {build.name}: {works}"

    @property
    def _has_runtime(self) -> bool:
        """Whether the runtime that it is made for comes with torch, or with something else in the lock."""
        row, build = self.row, self.build
        if row.toolkit is None or build.toolkit is None:
            return True
        if row.package in load_members().must_open:
            if not self.missing:
                return True
        elif not load_libraries().names_runtime(row.needs, row.opens):
            # A runtime that is linked in, or lies in the wheel, is its own.
            return True
        majors = {build.toolkit[0]}
        # What links torch meets its CUDA in the process: torch's libraries are loaded before it.
        if row.of_torch.kind not in {"stable", "ordinary"}:
            for name, version in self.versions.items():
                if load_members().runtime.fullmatch(name):
                    majors.add(Version(version).major)
        return row.toolkit[0] in majors

    @property
    def has_symbols(self) -> bool | None:
        """Whether torch has the symbols that the code uses; None if that is not known."""
        needs, minor = self.row.of_torch, self.build.minor
        if (
            needs.kind == "ordinary"
            and (minor, self.build.backend.tag) in _OF_ANOTHER_ABI
        ):
            return None
        return needs.verdict(minor)

    @property
    def is_for_single_chips(self) -> bool:
        """Whether all its code is for single chips, ``sm_90a``: such kernels stand beside what runs everywhere.

        Not of a package that is such kernels by its name.
        """
        names = self.row.architectures
        is_single = all(name.startswith("sm_") and name.endswith("a") for name in names)
        return is_single and not load_members().is_optional_package(self.row.package)

    @property
    def missing(self) -> tuple[str, ...]:
        """The packages, none of them in the lock, with libraries that it needs or does nothing without."""
        row = self.row
        if not row.toolkit:
            return ()
        names = list(row.needs)
        must_open = load_members().must_open.get(row.package)
        if must_open:
            names += filter(must_open.fullmatch, row.opens)
        libraries = filter(None, map(load_libraries().row, names))
        packages = [library.package_for(row.toolkit[0]) for library in libraries]
        return tuple(
            dict.fromkeys(one for one in packages if one and one not in self.versions)
        )

    @property
    def unprovided(self) -> tuple[str, ...]:
        """Those of them that torch does not bring either, in packages of their own or in its own folder."""
        members = load_members()
        # Without a runtime of its own package, torch has them all in its folder.
        if any(map(members.runtime.fullmatch, self.versions)):
            return self.missing
        return tuple(
            one for one in self.missing if not members.with_torch.fullmatch(one)
        )
