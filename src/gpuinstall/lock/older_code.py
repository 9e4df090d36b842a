"""Which older version of a package runs here if the newest does not, and beside which builds of torch."""

from __future__ import annotations

from contextlib import suppress
from itertools import compress
from typing import TYPE_CHECKING

from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.requirement import marker_holds, parse_requirement
from gpuinstall.base.text import some
from gpuinstall.base.threads import side_by_side
from gpuinstall.catalog.extensions import program_source
from gpuinstall.catalog.listing import family_wheels
from gpuinstall.catalog.pages import parse_page
from gpuinstall.lock.code_rules import certainly_against, has_symbols, is_for_single_chips
from gpuinstall.wheels.learned.row import Depth, misfit, refused_by_driver, without_code
from gpuinstall.wheels.needs import name_for_cuda

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from packaging.version import Version

    from gpuinstall.catalog import Build, Wheel
    from gpuinstall.lock.code_rows import CodeRows
    from gpuinstall.lock.code_rules import CodeSurroundings
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.sources.session import Session
    from gpuinstall.wheels.learned.row import LearnedRow

AT_ONCE = 8
"""Of how many versions METADATA and the tables of a library are read side by side, some 0.3 MB each."""


class OlderVersions:
    """The versions of packages that are older than those of a resolution."""

    def __init__(
        self,
        resolution: Resolution,
        session: Session,
        rows: CodeRows,
        around: CodeSurroundings,
    ) -> None:
        self._resolution = resolution
        self._session = session
        self._build = resolution.choice.build
        self._runnable = resolution.plan.runnable
        self._rows = rows
        self._around = around
        self._unread: dict[Version, str] = {}

    def newest_running(self, newest: Wheel, like: LearnedRow) -> Version | None:
        """Return the newest older version that runs here.

        What is cheap decides first: METADATA, then the tables of one library. Only the wheels that pass both are read for
        their code, one after the other.

        Args:
            newest: The wheel that does not run.
            like: What it says: without libraries, an older one is nothing in the place of one for another system.
        """
        self._unread.clear()
        self._note_silent_index(newest)
        needs_libraries = like.system == "windows"
        wheels = self._older_wheels(newest)
        for start in range(0, len(wheels), AT_ONCE):
            group = wheels[start : start + AT_ONCE]
            is_possible = [True] * len(group)
            if not self._rows.is_spent:
                is_possible = side_by_side(self._is_possible, group, AT_ONCE)
            for wheel in compress(group, is_possible):
                if self._rows.is_spent:
                    self._unread[wheel.version] = "as much was read as is read for one lock"
                elif self.serving(wheel, with_libraries=needs_libraries):
                    return wheel.version
        return None

    def _is_possible(self, wheel: Wheel) -> bool:
        """Whether a version may run here, by its METADATA and by the tables of one library."""
        depths = [Depth.METADATA] if wheel.metadata else []
        if self._rows.decides(wheel.package):
            depths.append(Depth.TABLES)
        for depth in depths:
            row = None
            # Why a wheel cannot be read is remembered, and said once it is read for its code.
            with suppress(InstallationError):
                row = self._rows.row(wheel, depth=depth)
            if row and not any(self._runs_beside(row, build) for build in self._runnable):
                return False
        return True

    def _note_silent_index(self, wheel: Wheel) -> None:
        """Note that the makers of a program may have the same version for another CUDA, if their index is silent."""
        session = self._session
        source = program_source(wheel.package, wheel.version.public, session.environment)
        silent = session.client.unreachable(source.url) if source and source.url else None
        if silent:
            message = f"{silent.host}, which has it for another CUDA, is unreachable"
            self._unread[wheel.version] = message

    def has_release(self, package: str) -> bool:
        """Whether there is a wheel of a package that is no pre-release."""
        return any(not wheel.version.is_prerelease for wheel in self._usable_wheels(package))

    def _usable_wheels(self, package: str) -> Iterator[Wheel]:
        """Yield the wheels of a package that this Python and this platform can install."""
        resolution = self._resolution
        tags = set(resolution.target.tags(resolution.choice.python))
        for wheel in self.listed(package):
            if wheel.package == package and tags & wheel.tags:
                yield wheel

    def _older_wheels(self, newest: Wheel) -> Sequence[Wheel]:
        """Return a wheel of each older version, the newest first."""
        requirements = map(parse_requirement, self._resolution.choice.requirements)
        limits = [one for one in requirements if one.name == newest.package]
        older = {}
        for wheel in self._usable_wheels(newest.package):
            version = wheel.version
            if version >= newest.version or version.is_prerelease:
                continue
            if all(limit.allows(version) for limit in limits):
                older[version] = wheel
        newest_first = sorted(older, reverse=True)
        return [older[version] for version in newest_first]

    def listed(self, package: str) -> Iterable[Wheel]:
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

    def serving(self, wheel: Wheel, *, with_libraries: bool = False) -> list[Build] | None:
        """Return the builds of torch that run here beside which a wheel runs too, the best first; None if unread.

        Args:
            wheel: The wheel.
            with_libraries: Whether one without any does not run.
        """
        serving = []
        try:
            for build in self._runnable:
                row = self._rows.row(wheel, build.backend)
                if not refused_by_driver(row, build, self._around.gpus):
                    row = self._settled(row, wheel, build)
                is_complete = row.system is not None or not with_libraries
                if is_complete and self._runs_beside(row, build):
                    serving.append(build)
        except InstallationError as error:
            self._unread[wheel.version] = error.message
            return None
        return serving

    def _settled(self, row: LearnedRow, wheel: Wheel, build: Build) -> LearnedRow:
        """Return a row that tells whether a wheel has code for the GPUs; a part of its code excludes nothing.

        Raises:
            InstallationError: if no more of the wheel may be read.
        """
        is_lacking = bool(without_code(row, build, self._around.gpus))
        if not row.is_whole and is_lacking:
            row = self._rows.row(wheel, build.backend, Depth.WHOLE)
        if row.is_whole or (row.architectures and not is_lacking):
            return row
        raise InstallationError("unread", "more of it would have to be read than may be")

    def _runs_beside(self, row: LearnedRow, build: Build) -> bool:
        return (
            self._allows_torch(row, build)
            and self._has_symbols(row, build)
            and not certainly_against(row, build, self._around)
            and (is_for_single_chips(row) or not misfit(row, build, self._around.gpus))
        )

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
        if has_symbols(needs, self._build) is not False:
            return True
        return has_symbols(needs, build) is True

    def why_none(self, wheel: Wheel) -> str:
        """Return what was found of the older versions of a package that does not run here."""
        older = len(self._older_wheels(wheel))
        following = self.other_name(wheel)
        if not older:
            python = self._resolution.choice.python
            return (
                f"no older version has a wheel for Python {python} here{self.but_for()}{following}"
            )
        unread = self.but_for()
        runs = "is known to run here" if unread else "runs here either"
        which = f"none of {older} older versions" if older > 1 else "not even the older version"
        return f"{which} {runs}{unread}{following}"

    def other_name(self, wheel: Wheel) -> str:
        """Return, in words, the name of a package for the CUDA of torch, if its own is for another and there is one."""
        toolkit = self._build.toolkit
        name = name_for_cuda(wheel.package, toolkit[0]) if toolkit else None
        if toolkit is None or name is None or name == wheel.package:
            return ""
        if not self.has_release(name):
            return ""
        return f"; for CUDA {toolkit[0]} it is {name}"

    def but_for(self) -> str:
        """Return the versions that could not be read, with the last reason; empty without any."""
        if not self._unread:
            return ""
        versions = some([str(version) for version in self._unread])
        *_, last = self._unread.values()
        return f" (unread: {versions}: {last})"
