"""Whether every package beside torch has code for the GPUs, and which older version has where the newest has none."""

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
from gpuinstall.errors import InstallationError, NoBuildError
from gpuinstall.extensions.rows import load_extensions
from gpuinstall.finding import Reason, Rejection
from gpuinstall.learned.reader import Reader
from gpuinstall.learned.row import LearnedRow, as_build, made_with, misfit, without_code
from gpuinstall.learned.store import learned_store
from gpuinstall.plan.companions import PAIRED
from gpuinstall.plan.requirement import requirement_names
from gpuinstall.text import some
from gpuinstall.threads import side_by_side
from gpuinstall.vendors import rules_for
from gpuinstall.wheels.companions import load_members
from gpuinstall.wheels.needs import load_libraries

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from gpuinstall.backend import Backend
    from gpuinstall.lock.lock import LockedFile
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.machine import Gpu
    from gpuinstall.plan import Plan
    from gpuinstall.session import Session
    from gpuinstall.vendors.protocol import Rules

WHEELS_AT_ONCE = 8
FROM_THE_NEWEST = 12
"""How many older versions to look at one after the other, from 0.3 to 16 MB each."""
NEIGHBOURS = 2
_BY_NAME = (
    "by its name alone: import torch before it, or put the library's folder into LD_LIBRARY_PATH"
)
NO_CODE = "no-code-in-package"
HINT = "the same with --no-code-check   # install it anyway"


class Exclusion(NamedTuple):
    """What the next resolution has to keep, and why."""

    reason: Reason
    constraint: str
    """The versions of a package that it may take."""

    builds: frozenset[str] = frozenset()
    """The builds of torch that it may not take, by name; the constraint then keeps the program as new as it is."""

    program: str = ""
    """The program, with its version, that another build of torch is taken for."""

    libraries: tuple[str, ...] = ()
    """Packages to add."""


class CodeCheck:
    """The code of what was resolved, against the GPUs that it was resolved for."""

    def __init__(self, resolution: Resolution, session: Session) -> None:
        self._resolution, self._session = resolution, session
        self._build = resolution.choice.build
        self._gpus = tuple(served_gpus(resolution.request, resolution.plan))
        self._reader = Reader(session.sources, session.client, learned_store(), session.reporter)
        self._unread: dict[Version, str] = {}

    def exclusions(self, stuck: Collection[str] = ()) -> list[Exclusion]:
        """Return what has to give way for every package to have code; raise NoBuildError where nothing can.

        ``stuck`` are the programs, with their versions, that go with no other build of torch.
        """
        deciding = [wheel for wheel in self.rejected if self.decides(wheel.candidate.package)]
        helping = [exclusion for wheel in deciding if (exclusion := self._exclusion(wheel, stuck))]
        if deciding and not helping:
            read = (
                f" that could be read has it either{self._but_for()}"
                if self._unread
                else " has it either"
            )
            raise NoBuildError(
                NO_CODE, deciding[0].reason.message, why=f"no older version{read}", hint=HINT
            )
        return helping

    def remarks(self) -> list[Reason]:
        """Warn of what may be a part that a program does without on these GPUs, and of what opens libraries itself."""
        opening = [
            row
            for row in self.rows.values()
            if row.package in load_members().must_open and row.opens
        ]
        parts = (
            wheel.reason.message
            for wheel in self.rejected
            if not self.decides(wheel.candidate.package)
        )
        return [
            *(Reason("part-without-code", message) for message in parts),
            *(
                Reason("opens-libraries", f"{row.package} loads {row.opens[0]} {_BY_NAME}")
                for row in opening
            ),
        ]

    @cached_property
    def rows(self) -> dict[Wheel, LearnedRow]:
        """What the wheels with GPU code say of themselves, but for those that torch's build answers for."""
        answered = set() if self._build.learned else PAIRED
        if (
            not self._gpus
            or self._session.sourcing.code_check is False
            or self._requested <= answered
        ):
            return {}
        others = (file for file in self._resolution.files if file.package not in answered)
        wheels = [wheel for file in others if (wheel := _wheel(file, self._build))]
        rows = zip(wheels, side_by_side(self._read, wheels, WHEELS_AT_ONCE), strict=True)
        return {wheel: row for wheel, row in rows if row}

    @cached_property
    def rejected(self) -> list[Rejection[Wheel]]:
        """The wheels that have GPU code, and none for one of the GPUs."""
        rejected = []
        for wheel, row in self.rows.items():
            if why := self._against(row, self._build):
                reason = Reason(NO_CODE, f"{wheel.package} {wheel.version} {why}")
                rejected.append(Rejection(wheel, reason))
        return rejected

    @cached_property
    def _requested(self) -> frozenset[str]:
        return requirement_names(self._resolution.choice.requirements)

    def _read(self, wheel: Wheel) -> LearnedRow | None:
        try:
            return (
                self._row(wheel, self._build.backend) if self._reader.may_have_code(wheel) else None
            )
        except InstallationError as error:
            unread = (
                f"could not read whether {wheel.package} {wheel.version} has code for these GPUs"
            )
            self._session.reporter.warn(f"{unread}: {error.message}")
            return None

    def decides(self, package: str) -> bool:
        """Whether a package was requested, or is the core of what was and no part that it does without."""
        row = load_extensions().rows.get(package)
        optional = row and not row.optional_for.isdisjoint({*self._requested, "*"})
        return package in self._requested or (load_members().names(package) and not optional)

    def _row(self, wheel: Wheel, backend: Backend) -> LearnedRow:
        return self._reader.companion(wheel, backend, f"{self._build.os}-{self._build.arch}")

    def _against(self, row: LearnedRow, build: Build) -> str | None:
        """Return why a package does not run beside a build; one without GPU code or a CUDA runs everywhere."""
        why = misfit(row, build, self._gpus)
        if why or self._may_load(row, build):
            return why
        rules, _ = self._gpus[0]
        return f"is incompatible with torch {build.name}: {made_with(row, as_build(row, build), rules)}"

    def _may_load(self, row: LearnedRow, build: Build) -> bool:
        """Whether the runtime that a package is made for comes with torch, or with something else in the lock."""
        if row.toolkit is None or build.toolkit is None:
            return True
        if row.package in load_members().must_open and not self.lacking(row):
            return True
        runtime, versions = load_members().runtime, self._resolution.versions
        brought = {
            Version(version).major for name, version in versions.items() if runtime.fullmatch(name)
        }
        return row.toolkit[0] in {build.toolkit[0], *brought}

    def lacking(self, row: LearnedRow) -> tuple[str, ...]:
        """The packages with the libraries that a package needs or does nothing without, as far as they are not here."""
        shared, must = load_libraries(), load_members().must_open.get(row.package)
        names = [*row.needs, *(name for name in row.opens if must and must.fullmatch(name))]
        packages = (
            known.package_for(row.toolkit[0])
            for name in names
            if row.toolkit and (known := shared.row(name))
        )
        return tuple(
            dict.fromkeys(
                name for name in packages if name and name not in self._resolution.versions
            )
        )

    def _exclusion(self, rejected: Rejection[Wheel], stuck: Collection[str]) -> Exclusion | None:
        """Prefer another build of torch, beside which the package runs, to an older package; None: neither."""
        wheel, fault = rejected.candidate, rejected.reason.message
        package, version = wheel.package, wheel.version.public
        serving = [] if f"{package} {version}" in stuck else self._serving(wheel)
        if serving:
            reason = Reason("other-build-for-code", f"{fault}; torch {serving[0].name} supports it")
            served = {build.name for build in serving}
            others = frozenset(build.name for build in self._resolution.plan.runnable) - served
            return Exclusion(reason, f"{package}>={version}", others, f"{package} {version}")
        if package in load_members().must_open and (libraries := self.lacking(self.rows[wheel])):
            provide = "provide" if len(libraries) > 1 else "provides"
            message = f"{fault}; {' and '.join(libraries)} {provide} the library that it loads"
            return Exclusion(
                Reason("library-added", message), f"{package}>={version}", libraries=libraries
            )
        older, all_looked_at = self._older(self._older_wheels(wheel))
        if older is None:
            return None
        certain = (
            all_looked_at
            and not self._unread
            and self._resolution.request.machine.glibc is not None
        )
        does = "is the newest that has" if certain else f"has{self._but_for()}"
        return Exclusion(
            Reason("older-for-code", f"{fault}; {package} {older} {does}"), f"{package}<={older}"
        )

    def _but_for(self) -> str:
        """Name the versions that could not be read, with the last reason."""
        *_, last = ("", *self._unread.values())
        return (
            f" (unread: {some([str(version) for version in self._unread])}: {last})" if last else ""
        )

    def _serving(self, wheel: Wheel) -> list[Build] | None:
        """The builds of torch that run here beside which a wheel runs too, the best first; None where it is unread."""
        try:
            return [
                b
                for b in self._resolution.plan.runnable
                if not self._against(self._row(wheel, b.backend), b)
            ]
        except InstallationError as error:
            self._unread[wheel.version] = error.message
            return None

    def _older(self, wheels: Sequence[Wheel]) -> tuple[Version | None, bool]:
        """Find the newest version that runs beside a build of torch, and say whether every newer one was looked at."""
        for wheel in wheels[:FROM_THE_NEWEST]:
            if self._serving(wheel):
                return wheel.version, True
        # By halves, as if whoever drops a GPU or a toolkit did not take it up again, with the neighbours. One that
        # cannot be read is no answer: it counts as too new.
        rest = wheels[FROM_THE_NEWEST:]
        at = bisect_left(rest, True, key=lambda wheel: not self._is_too_new(wheel))
        near = rest[max(at - NEIGHBOURS, 0) : at + NEIGHBOURS + 1]
        return next((wheel.version for wheel in near if self._serving(wheel)), None), False

    def _is_too_new(self, wheel: Wheel) -> bool:
        """Whether a version has moved on: it does not run, and is not older than a GPU or than torch's CUDA."""
        if self._serving(wheel) is None:
            return True
        row, toolkit = self._row(wheel, self._build.backend), self._build.toolkit
        behind = bool(row.toolkit and toolkit and row.toolkit[0] < toolkit[0])
        missing = without_code(row, self._build, self._gpus)
        too_old = behind or any(
            rules.predates(as_build(row, self._build), gpu) for rules, gpu in missing
        )
        return not too_old and self._against(row, self._build) is not None

    def _older_wheels(self, newest: Wheel) -> Sequence[Wheel]:
        resolution, session, package = self._resolution, self._session, newest.package
        tags = set(resolution.target.tags(resolution.choice.python))
        listed: Iterable[Wheel] = ()
        if package in resolution.request.catalog.family and resolution.choice.index:
            listed = family_wheels(
                session.sources, session.client, self._build.backend.tag, package
            )
        if not listed and (page := session.page_of(package)):
            listed = parse_page(page)
        older = {
            wheel.version: wheel
            for wheel in listed
            if wheel.package == package
            and wheel.version < newest.version
            and not tags.isdisjoint(wheel.tags)
        }
        return [
            older[version] for version in sorted(older, reverse=True) if not version.is_prerelease
        ]


def served_gpus(request: LockRequest, plan: Plan) -> Iterator[tuple[Rules, Gpu]]:
    """The GPUs that a lock is for, each with the rules of its machine: a machine's own, or those of all it serves."""
    kinds = {plan.choice.build.backend.kind}
    for machine in request.serves or (request.machine,):
        own = replace(request, machine=machine, serves=()).outcome if request.serves else plan
        rules = rules_for(machine, request.catalog, kinds)
        served = {run.index for run in own.gpus if run.how != "none"}
        yield from ((rules, gpu) for gpu in machine.gpus if gpu.index in served)


def _wheel(file: LockedFile, build: Build) -> Wheel | None:
    """The wheel that a resolved file is, where it is for one platform and torch's own build does not answer for it."""
    name = file.url.rpartition("/")[2].replace("%2B", "+")
    with suppress(InvalidWheelFilename):
        _, version, _, tags = parse_wheel_filename(name)
        members, pinned = (
            load_members(),
            {number for _, number in build.libraries} or {str(version)},
        )
        answered = members.with_torch.fullmatch(file.package)
        if answered and members.not_pinned.fullmatch(file.package) and str(version) not in pinned:
            answered = None
        if not (answered or all(tag.platform == "any" for tag in tags)):
            return Wheel(file.package, version, name, file.url, tags, file.sha256)
    return None
