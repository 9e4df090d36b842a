"""Whether every package beside torch has code for the GPUs, and which older version has if the newest has none."""

from __future__ import annotations

from bisect import bisect_left
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from gpuinstall.catalog import Build, Wheel
from gpuinstall.catalog.listing import family_wheels
from gpuinstall.catalog.pages import parse_page
from gpuinstall.errors import InstallationError, NoBuildError, UsageError
from gpuinstall.extensions.choice import minor_of
from gpuinstall.extensions.rows import load_extensions
from gpuinstall.finding import Reason, Rejection
from gpuinstall.learned.reader import Reader
from gpuinstall.learned.row import LearnedRow, as_build, made_with, misfit, without_code
from gpuinstall.learned.store import learned_store
from gpuinstall.lock.extras import (
    MissingExtras,
    missing_extras,
    older_with_extras,
    read_metadata,
)
from gpuinstall.plan.companions import PAIRED
from gpuinstall.plan.requirement import marker_holds, parse_requirement, requirement_names
from gpuinstall.text import some
from gpuinstall.threads import side_by_side
from gpuinstall.vendors import rules_for
from gpuinstall.versions import ComputeCapability
from gpuinstall.wheels.companions import load_members
from gpuinstall.wheels.imports import Loading
from gpuinstall.wheels.needs import load_libraries

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from gpuinstall.backend import Backend
    from gpuinstall.lock.lock import LockedFile
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.machine import Gpu
    from gpuinstall.plan import Plan, Rejected
    from gpuinstall.session import Session
    from gpuinstall.vendors.protocol import Rules

WHEELS_AT_ONCE = 8
FROM_THE_NEWEST = 12
"""How many older versions at most are looked at one after the other, from 0.3 to 20 MB each.

Of more, halving reads one for each doubling, and the neighbours: 11 of 100, 14 of 1,000.
"""

NEIGHBOURS = 2
"""How many versions beside the one that halving finds are looked at too, on each side."""

_BY_NAME = (
    "by its name alone: import torch before it, or put the library's folder into LD_LIBRARY_PATH"
)
_MAY_LOAD = {
    Loading.REQUIRED: "{} needs it",
    Loading.OPTIONAL: "{} goes on without it",
    Loading.UNKNOWN: "whether {} needs it is not known",
}
NO_CODE = "no-code-in-package"
HINT = "the same with --no-code-check   # install it anyway"


class Exclusion(NamedTuple):
    """What has to give way, and what the next resolution has to keep for it."""

    package: str
    code: str
    fault: str
    """What is wrong, as a statement."""

    constraint: str
    """The versions of the package that it may take."""

    remedy: str = ""
    """What is done about it, as a statement; empty if another build of torch is taken."""

    is_older: bool = False
    """Whether an older version is taken, which takes back what was done for newer ones."""

    builds: frozenset[str] = frozenset()
    """The builds of torch that it may not take, by name; the constraint then keeps the program as new as it is."""

    program: str = ""
    """The program, with its version, that another build of torch is taken for."""

    libraries: tuple[str, ...] = ()
    """Packages to add."""

    kept: tuple[str, ...] = ()
    """The constraints that keep what was requested as new as it is, where a part of it gives way."""

    target: int = 0
    """The position of the target that it was found for."""

    def reason(self, chosen: Build) -> Reason:
        """Return what is told of it once a build of torch is chosen."""
        remedy = self.remedy or f"it runs beside torch {chosen.name}"
        return Reason(self.code, f"{self.fault}; {remedy}")

    def __str__(self) -> str:
        return f"{self.fault}; {self.remedy or 'other builds of torch are tried'}"


class CodeCheck:
    """The code of what was resolved, against the GPUs that it was resolved for."""

    def __init__(self, resolution: Resolution, session: Session) -> None:
        self._resolution = resolution
        self._session = session
        self._build = resolution.choice.build
        self._gpus = tuple(served_gpus(resolution.request, resolution.plan))
        self._requested = requirement_names(resolution.choice.requirements)
        self._reader = Reader(
            session.sources,
            session.client,
            learned_store(),
            session.reporter,
        )
        self._unread: dict[Version, str] = {}

    def exclusions(self, stuck: Collection[str] = ()) -> list[Exclusion]:
        """Return what has to give way for every package to have code.

        Args:
            stuck: The programs, with their versions, that go with no other build of torch.

        Raises:
            NoBuildError: if nothing can give way.
        """
        excluded = [wheel for wheel in self.rejected if self._excludes(wheel)]
        exclusions = [self._exclusion(wheel, stuck) for wheel in excluded]
        helping = list(filter(None, exclusions))
        certain = [wheel for wheel in excluded if self._is_certain(wheel.candidate)]
        if certain and not helping:
            raise NoBuildError(
                NO_CODE,
                certain[0].reason.message,
                why=self._why_none_older(certain[0].candidate),
                hint=HINT,
            )
        return (
            helping
            or self._missing_libraries(stuck)
            or self._missing_extras()
            or self._colliding_twins(stuck)
            or self._part_exclusions(stuck)
        )

    def remarks(self) -> list[Reason]:
        """Return warnings of parts that a program may do without on these GPUs, and of what opens libraries itself."""
        reasons = [Reason("no-such-extra", str(missing)) for missing in self._lacking_extras]
        for wheel in self.rejected:
            message = wheel.reason.message
            package = wheel.candidate.package
            if self.decides(package):
                loading = self.rows[wheel.candidate].loading
                message += f"; {_MAY_LOAD[Loading(loading)].format(package)}"
            reasons.append(Reason("part-without-code", message))
        for row in self.rows.values():
            if row.opens and row.package in load_members().must_open:
                message = f"{row.package} loads {row.opens[0]} {_BY_NAME}"
                reasons.append(Reason("opens-libraries", message))
        return reasons

    @cached_property
    def rows(self) -> dict[Wheel, LearnedRow]:
        """What the wheels with GPU code say of themselves, but for those that torch's build answers for."""
        answered = set() if self._build.learned else PAIRED
        if not self._gpus or self._session.sourcing.code_check is False:
            return {}
        if self._requested <= answered:
            return {}
        files = [file for file in self._resolution.files if file.package not in answered]
        candidates = [_wheel(file, self._build) for file in files]
        wheels = [wheel for wheel in candidates if wheel]
        rows = side_by_side(self._read, wheels, WHEELS_AT_ONCE)
        pairs = zip(wheels, rows, strict=True)
        return {wheel: row for wheel, row in pairs if row}

    def _read(self, wheel: Wheel) -> LearnedRow | None:
        try:
            # Of what was requested the glibc counts, too.
            if wheel.package in self._requested or self._reader.may_have_code(wheel):
                return self._row(wheel, self._build.backend)
        except InstallationError as error:
            package = f"{wheel.package} {wheel.version}"
            message = f"could not read whether {package} has code for these GPUs: {error.message}"
            self._session.reporter.warn(message)
        return None

    def _row(
        self,
        wheel: Wheel,
        backend: Backend,
        *,
        whole: bool = False,
    ) -> LearnedRow:
        platform = f"{self._build.os}-{self._build.arch}"
        return self._reader.companion(wheel, backend, platform, whole=whole)

    @cached_property
    def rejected(self) -> list[Rejection[Wheel]]:
        """The wheels whose native code does not run on one of the GPUs, or not beside torch."""
        rejected = []
        for wheel in self.rows:
            why = self._against(self.rows[wheel], self._build)
            if why and self._is_read_to_the_end(wheel):
                why = self._against(self.rows[wheel], self._build)
            if why:
                reason = Reason(NO_CODE, f"{wheel.package} {wheel.version} {why}")
                rejected.append(Rejection(wheel, reason))
        return rejected

    def _is_read_to_the_end(self, wheel: Wheel) -> bool:
        """Read a library to its end if a refusal would rest on a part of it; return whether that gave a new row."""
        row = self.rows[wheel]
        may_exclude = self.decides(wheel.package) and row.loading == Loading.REQUIRED.value
        is_lacking = bool(without_code(row, self._build, self._gpus))
        if row.is_whole or not may_exclude or not is_lacking:
            return False
        try:
            self.rows[wheel] = self._row(wheel, self._build.backend, whole=True)
        except InstallationError:
            # It stays a part, of which nothing certain is said.
            return False
        return True

    def decides(self, package: str) -> bool:
        """Whether a package was requested, or is the core of what was and no part that it does without."""
        if package in self._requested:
            return True
        if self._has_fallback(package):
            return False
        # tensorrt-cu13-libs is what tensorrt consists of.
        if any(package.startswith(f"{name}-cu") for name in self._requested):
            return True
        members = load_members()
        return members.names(package) or package in members.stated or package in self._pinned

    @cached_property
    def _pinned(self) -> frozenset[str]:
        """The packages of which a requested one requires one version: they are what it consists of."""
        pinned = set()
        for file in self._resolution.files:
            if file.package not in self._requested or file.package in PAIRED:
                continue
            for text in self._requires_of(file):
                with suppress(UsageError):
                    requirement = parse_requirement(str(text))
                    is_extra = "extra" in str(requirement.marker)
                    if "==" in str(requirement.specifier) and not is_extra:
                        pinned.add(requirement.name)
        return frozenset(pinned)

    def _requires_of(self, file: LockedFile) -> Sequence[str]:
        """Return what the METADATA of a file requires, if its server tells it, or the file was read."""
        for wheel, row in self.rows.items():
            if wheel.package == file.package:
                return row.requires
        metadata = read_metadata(file.url, self._session.client)
        if metadata is None:
            return []
        return list(map(str, metadata.get_all("Requires-Dist", ())))

    def _has_fallback(self, package: str) -> bool:
        """Whether what was requested is known to do without a package."""
        row = load_extensions().rows.get(package)
        return bool(row and row.optional_for & {*self._requested, "*"})

    def _excludes(self, rejected: Rejection[Wheel]) -> bool:
        """Whether something has to give way for a wheel; a library that its package does without only warns."""
        wheel = rejected.candidate
        return self.decides(wheel.package) and self.rows[wheel].loading != Loading.OPTIONAL.value

    def _is_certain(self, wheel: Wheel) -> bool:
        """Whether a package cannot work with what was read of it."""
        row = self.rows[wheel]
        members = load_members()
        if row.package in members.stated:
            return True
        is_named = row.package in self._requested or members.names(row.package)
        if not is_named and row.package in self._pinned:
            return False
        is_read = row.is_whole or not without_code(row, self._build, self._gpus)
        return is_read and row.loading == Loading.REQUIRED.value

    def _against(self, row: LearnedRow, build: Build) -> str | None:
        """Return why a package does not run beside a build; one without GPU code or a CUDA runs everywhere."""
        rules = (
            self._below_lowest,
            self._misfit,
            self._beyond_glibc,
            self._without_runtime,
            self._without_symbols,
        )
        for rule in rules:
            why = rule(row, build)
            if why:
                return why
        return None

    def _misfit(self, row: LearnedRow, build: Build) -> str | None:
        return misfit(row, build, self._gpus)

    def _below_lowest(self, row: LearnedRow, build: Build) -> str | None:  # noqa: ARG002
        """Return that a GPU is older than the makers of a package support."""
        version = Version(row.version)
        lowest = load_members().lowest_capability(row.package, version)
        if lowest is None:
            return None
        for _, gpu in self._gpus:
            capability = gpu.compute_capability
            if capability and capability < ComputeCapability.parse(lowest):
                need = f"requires compute capability {lowest} or newer"
                return f"{need}, and {gpu.label} has {capability}"
        return None

    def _beyond_glibc(self, row: LearnedRow, build: Build) -> str | None:  # noqa: ARG002
        """Return that the symbols of a package require a newer glibc, whatever its name promises."""
        glibc = self._resolution.request.machine.glibc
        if glibc is None or row.glibc is None or Version(row.glibc) <= Version(glibc):
            return None
        return f"requires glibc {row.glibc}, and this machine has {glibc}"

    def _without_runtime(self, row: LearnedRow, build: Build) -> str | None:
        """Return that torch brings another CUDA than the one that a package is linked to."""
        if self._may_load(row, build):
            return None
        rules, _ = self._gpus[0]
        made = made_with(row, as_build(row, build), rules)
        return f"is incompatible with torch {build.name}: {made}"

    def _without_symbols(self, row: LearnedRow, build: Build) -> str | None:
        """Return that a torch lacks a symbol that a package uses."""
        needs = row.of_torch
        if needs.verdict(minor_of(build)) is not False:
            return None
        works = "no torch that is known"
        if needs.fits:
            works = f"torch {' and '.join(needs.fits)}"
        elif needs.kind == "stable" and needs.oldest:
            works = f"torch {needs.oldest} and newer"
        return f"is incompatible with torch {build.name}: its code works with {works}"

    def _may_load(self, row: LearnedRow, build: Build) -> bool:
        """Whether the runtime that a package is made for comes with torch, or with something else in the lock."""
        if row.toolkit is None or build.toolkit is None:
            return True
        opens = row.package in load_members().must_open
        if opens and not self.lacking(row):
            return True
        if not opens and not load_libraries().names_runtime(row.needs, row.opens):
            # A runtime that is linked in, or lies in the wheel, is its own.
            return True
        majors = {build.toolkit[0]}
        for name, version in self._resolution.versions.items():
            if load_members().runtime.fullmatch(name):
                majors.add(Version(version).major)
        return row.toolkit[0] in majors

    def lacking(self, row: LearnedRow) -> tuple[str, ...]:
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
            if package and package not in self._resolution.versions:
                packages[package] = None
        return tuple(packages)

    def _exclusion(
        self,
        rejected: Rejection[Wheel],
        stuck: Collection[str],
    ) -> Exclusion | None:
        """Return another build of torch, beside which the package runs, before an older package; None: neither."""
        wheel = rejected.candidate
        fault = rejected.reason.message
        package = wheel.package
        program = f"{package} {wheel.version.public}"
        as_new = f"{package}>={wheel.version.public}"
        is_certain = self._is_certain(wheel)
        if program in stuck and not is_certain:
            return None
        serving = None if program in stuck else self._serving(wheel)
        if serving:
            runnable = {build.name for build in self._resolution.plan.runnable}
            return Exclusion(
                package,
                "other-build-for-code",
                fault,
                constraint=as_new,
                builds=frozenset(runnable - {build.name for build in serving}),
                program=program,
            )
        libraries = self._helping_libraries(self.rows[wheel])
        if libraries:
            provide = "provide" if len(libraries) > 1 else "provides"
            return Exclusion(
                package,
                "library-added",
                fault,
                constraint=as_new,
                remedy=f"{' and '.join(libraries)} {provide} the library that it loads",
                libraries=libraries,
            )
        is_part = package in self._pinned and package not in self._requested
        if is_part and not is_certain and not misfit(self.rows[wheel], self._build, self._gpus):
            return None
        exclusion = self._older_exclusion(rejected)
        # What is not certain is taken back where nothing goes with it.
        return exclusion and exclusion._replace(program="" if is_certain else program)

    def _older_exclusion(self, rejected: Rejection[Wheel]) -> Exclusion | None:
        """Return the newest older version that runs here, if there is one."""
        wheel = rejected.candidate
        package = wheel.package
        older, all_read = self._older(self._older_wheels(wheel))
        if older is None:
            return None
        is_newest = all_read and not self._unread
        if is_newest and self._resolution.request.machine.glibc is not None:
            remedy = f"{package} {older} is the newest that runs here"
        else:
            remedy = f"{package} {older} runs here{self._but_for()}"
        return Exclusion(
            package,
            "older-for-code",
            rejected.reason.message,
            constraint=f"{package}<={older}",
            remedy=remedy,
            is_older=True,
        )

    def _part_exclusions(self, stuck: Collection[str]) -> list[Exclusion]:
        """Return what gives way for the parts that do not run, with what was requested as new as it is.

        That is another build of the same torch, or an older version of the part. Where neither goes with the request,
        a part only warns.
        """
        names = self._requested - self._resolution.request.catalog.family
        versions = self._resolution.versions
        kept = []
        for name in names & versions.keys():
            version = versions[name].partition("+")[0]
            kept.append(f"{name}>={version}")
        exclusions = []
        for rejected in self.rejected:
            wheel = rejected.candidate
            program = f"{wheel.package} {wheel.version.public}"
            is_optional = self.rows[wheel].loading == Loading.OPTIONAL.value
            is_judged = self.decides(wheel.package) or self._has_fallback(wheel.package)
            if program in stuck or is_optional or is_judged:
                continue
            exclusion = self._part_exclusion(rejected)
            if exclusion:
                exclusion = exclusion._replace(kept=tuple(sorted(kept)), program=program)
                exclusions.append(exclusion)
        return exclusions

    def _part_exclusion(self, rejected: Rejection[Wheel]) -> Exclusion | None:
        wheel = rejected.candidate
        serving = self._serving(wheel) or []
        same_torch = {build.name for build in serving if build.torch == self._build.torch}
        if not same_torch:
            return self._older_exclusion(rejected)
        runnable = {build.name for build in self._resolution.plan.runnable}
        return Exclusion(
            wheel.package,
            "other-build-for-code",
            rejected.reason.message,
            constraint=f"{wheel.package}>={wheel.version.public}",
            builds=frozenset(runnable - same_torch),
        )

    def _helping_libraries(self, row: LearnedRow) -> tuple[str, ...]:
        """Return the missing packages with which a package runs that opens their libraries; empty if it does not."""
        if row.package not in load_members().must_open or misfit(row, self._build, self._gpus):
            return ()
        return self.lacking(row)

    def _why_none_older(self, wheel: Wheel) -> str:
        """Return what was found of the older versions of a package that does not run here."""
        older = len(self._older_wheels(wheel))
        if not older:
            return f"no older version has a wheel for Python {self._resolution.choice.python} here"
        if older <= FROM_THE_NEWEST:
            which = "no older version that could be read" if self._unread else "no older version"
        else:
            which = f"of {older} older versions, none that was looked at"
        return f"{which} runs here either{self._but_for()}"

    def _missing_libraries(self, stuck: Collection[str]) -> list[Exclusion]:
        """Return the packages to add whose libraries a package is linked to and nothing has."""
        exclusions = []
        for wheel, row in self.rows.items():
            program = f"{wheel.package} {wheel.version.public}"
            is_needed = row.loading == Loading.REQUIRED.value and self.decides(wheel.package)
            if not is_needed or program in stuck:
                continue
            libraries = tuple(filter(self._is_apart, self.lacking(row)))
            if not libraries:
                continue
            provide = "provide" if len(libraries) > 1 else "provides"
            exclusion = Exclusion(
                wheel.package,
                "library-added",
                f"{program} is linked to libraries that nothing else has",
                remedy=f"{' and '.join(libraries)} {provide} them",
                constraint=f"{wheel.package}>={wheel.version.public}",
                program=program,
                libraries=libraries,
            )
            exclusions.append(exclusion)
        return exclusions

    def _missing_extras(self) -> list[Exclusion]:
        """Return the newest older versions that have the extras which were requested and these lack."""
        exclusions = []
        for missing in self._lacking_extras:
            listed = self._listed_wheels(missing.package)
            older = older_with_extras(missing, listed, self._session.client)
            if older is None:
                continue
            exclusion = Exclusion(
                missing.package,
                "older-for-extra",
                str(missing),
                constraint=f"{missing.package}<={older}",
                remedy=f"{missing.package} {older} has",
                is_older=True,
            )
            exclusions.append(exclusion)
        return exclusions

    @cached_property
    def _lacking_extras(self) -> list[MissingExtras]:
        """The requested extras that the versions of the resolution lack."""
        resolution = self._resolution
        return missing_extras(resolution.choice.requirements, resolution.document)

    def _colliding_twins(self, stuck: Collection[str]) -> list[Exclusion]:
        """Return the other builds of torch if two packages write the same files, one for each CUDA."""
        versions = self._resolution.versions
        toolkit = self._build.toolkit
        if toolkit is None:
            return []
        for name, version in versions.items():
            stem, _, major = name.rpartition("-cu")
            twin = f"{stem}-cu{toolkit[0]}"
            program = f"{name} {version}"
            is_other = major.isdecimal() and name != twin
            if not is_other or program in stuck:
                continue
            if twin not in versions or not load_members().with_torch.fullmatch(name):
                continue
            runnable = self._resolution.plan.runnable
            same = set()
            for build in runnable:
                if build.toolkit and build.toolkit[0] == toolkit[0]:
                    same.add(build.name)
            if len(same) == len(runnable):
                continue
            exclusion = Exclusion(
                name,
                "other-build-for-code",
                f"{name} and {twin} write the same files",
                constraint=f"{name}>=0",
                builds=frozenset(same),
                program=program,
            )
            return [exclusion]
        return []

    def _is_apart(self, package: str) -> bool:
        """Whether torch does not bring a package of libraries, in packages of their own or in its own folder."""
        members = load_members()
        if not members.with_torch.fullmatch(package):
            return True
        return any(map(members.runtime.fullmatch, self._resolution.versions))

    def _but_for(self) -> str:
        """Return the versions that could not be read, with the last reason; empty without any."""
        if not self._unread:
            return ""
        versions = some([str(version) for version in self._unread])
        *_, last = self._unread.values()
        return f" (unread: {versions}: {last})"

    def _serving(self, wheel: Wheel) -> list[Build] | None:
        """Return the builds of torch that run here beside which a wheel runs too, the best first; None if unread."""
        serving = []
        try:
            for build in self._resolution.plan.runnable:
                row = self._row(wheel, build.backend)
                if not self._allows_torch(row, build):
                    continue
                if self._has_symbols(row, build) and not self._against(row, build):
                    serving.append(build)
        except InstallationError as error:
            self._unread[wheel.version] = error.message
            return None
        return serving

    def _allows_torch(self, row: LearnedRow, build: Build) -> bool:
        """Whether the METADATA of a package allows the torch of a build."""
        machine = self._resolution.request.machine
        python = self._resolution.choice.python
        for text in row.requires:
            with suppress(UsageError):
                requirement = parse_requirement(text)
                if requirement.name != "torch" or requirement.allows(build.torch):
                    continue
                marker = requirement.marker
                if marker is None or marker_holds(marker, machine, python):
                    return False
        return True

    def _has_symbols(self, row: LearnedRow, build: Build) -> bool:
        """Whether a torch is known to have the symbols that this one lacks; no matter if this one lacks none."""
        needs = row.of_torch
        if needs.verdict(minor_of(self._build)) is not False:
            return True
        return needs.verdict(minor_of(build)) is True

    def _older(self, wheels: Sequence[Wheel]) -> tuple[Version | None, bool]:
        """Return the newest version that runs beside a build of torch, and whether every newer one was looked at."""
        is_every_one = len(wheels) <= FROM_THE_NEWEST
        candidates = wheels
        if not is_every_one:
            # By halves, as if whoever drops a GPU or a toolkit did not take it up again, with the neighbours. One that
            # cannot be read is no answer: it counts as too new.
            at = bisect_left(
                wheels,
                True,
                key=lambda wheel: not self._is_too_new(wheel),
            )
            start = max(at - NEIGHBOURS, 0)
            candidates = wheels[start : at + NEIGHBOURS + 1]
        for wheel in candidates:
            if self._serving(wheel):
                return wheel.version, is_every_one
        return None, is_every_one

    def _is_too_new(self, wheel: Wheel) -> bool:
        """Whether a version has moved on: it does not run, and is not older than a GPU or than torch's CUDA."""
        if self._serving(wheel) is None:
            return True
        row = self._row(wheel, self._build.backend)
        toolkit = self._build.toolkit
        if row.toolkit and toolkit and row.toolkit[0] < toolkit[0]:
            return False
        own_build = as_build(row, self._build)
        for rules, gpu in without_code(row, self._build, self._gpus):
            if rules.predates(own_build, gpu):
                return False
        return self._against(row, self._build) is not None

    def _older_wheels(self, newest: Wheel) -> Sequence[Wheel]:
        resolution = self._resolution
        tags = set(resolution.target.tags(resolution.choice.python))
        older = {}
        for wheel in self._listed_wheels(newest.package):
            version = wheel.version
            is_older = version < newest.version and not version.is_prerelease
            if wheel.package == newest.package and is_older and tags & wheel.tags:
                older[version] = wheel
        newest_first = sorted(older, reverse=True)
        return [older[version] for version in newest_first]

    def _listed_wheels(self, package: str) -> Iterable[Wheel]:
        """Return the wheels of a package, of torch's own index if that has it."""
        resolution = self._resolution
        session = self._session
        if package in resolution.request.catalog.family and resolution.choice.index:
            backend = self._build.backend.tag
            wheels = family_wheels(
                session.sources,
                session.client,
                backend,
                package,
            )
            if wheels:
                return wheels
        page = session.page_of(package)
        return parse_page(page) if page else ()


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


def _wheel(file: LockedFile, build: Build) -> Wheel | None:
    """Return a resolved file as a wheel, if it is for one platform and torch's own build does not answer for it."""
    _, _, name = file.url.rpartition("/")
    name = name.replace("%2B", "+")
    try:
        _, version, _, tags = parse_wheel_filename(name)
    except InvalidWheelFilename:
        return None
    if all(tag.platform == "any" for tag in tags):
        return None
    members = load_members()
    if members.with_torch.fullmatch(file.package):
        pinned = {number for _, number in build.libraries}
        is_pinned = not pinned or str(version) in pinned
        if is_pinned or not members.not_pinned.fullmatch(file.package):
            return None
    return Wheel(
        file.package,
        version,
        name,
        file.url,
        tags,
        file.sha256,
    )
