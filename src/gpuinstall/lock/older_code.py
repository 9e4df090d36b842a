"""Which older version of a package runs here if the newest does not, and beside which builds of torch."""

from __future__ import annotations

from bisect import bisect_left
from contextlib import suppress
from typing import TYPE_CHECKING

from gpuinstall.catalog.listing import family_wheels
from gpuinstall.catalog.pages import parse_page
from gpuinstall.errors import InstallationError, UsageError
from gpuinstall.learned.row import as_build, driver_too_old_for, without_code
from gpuinstall.lock.code_rules import against, has_symbols
from gpuinstall.lock.library_majors import has_library, newest_first
from gpuinstall.plan.requirement import marker_holds, parse_requirement
from gpuinstall.text import some
from gpuinstall.threads import side_by_side
from gpuinstall.wheels.needs import name_for_cuda

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from packaging.version import Version

    from gpuinstall.catalog import Build, Wheel
    from gpuinstall.learned.row import LearnedRow
    from gpuinstall.lock.code_rows import CodeRows
    from gpuinstall.lock.code_rules import CodeSurroundings
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.session import Session

FROM_THE_NEWEST = 12
"""How many older versions at most are looked at one after the other, from 0.3 to 20 MB each.

Of more, halving reads one for each doubling, and the neighbours: 11 of 100, 14 of 1,000.
"""

NEIGHBOURS = 2
"""How many versions beside the one that halving finds are looked at too, on each side."""

READ_AT_ONCE = 4


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
        self._rows = rows
        self._around = around
        self._unread: dict[Version, str] = {}

    def newest_running(
        self,
        newest: Wheel,
        torch: Version | None = None,
    ) -> tuple[Version | None, bool]:
        """Return the newest older version that runs here, and whether every newer one was looked at.

        Args:
            newest: The version that does not.
            torch: The torch that it has to run beside; None for any that runs here.
        """
        # One that says nothing of GPUs is not what was requested, if the newest says something.
        row = self._rows.of_package(newest.package)
        has_code = bool(row and row.architectures)
        has_cuda = bool(row and row.toolkit)
        wheels = self._older_wheels(newest)
        is_every_one = len(wheels) <= FROM_THE_NEWEST
        candidates = wheels
        # The CUDA of a package only grows: if the oldest and the middle one are beyond the driver, so are the others.
        samples = (wheels[-1], wheels[len(wheels) // 2]) if len(wheels) > 2 else ()
        self._read_ahead(samples)
        if samples and all(map(self._is_beyond_driver, samples)):
            return None, False
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
        for wave in _waves(candidates):
            self._read_ahead(wave)
            for wheel in wave:
                serving = self.serving(wheel) or []
                if not any(torch in {None, build.torch} for build in serving):
                    continue
                older = self._rows.row(wheel, self._build.backend)
                tells_as_much = not has_code and (older.toolkit or not has_cuda)
                if older.architectures or tells_as_much:
                    return wheel.version, is_every_one and not self._unread
        return None, is_every_one

    def newest_having(self, newest: Wheel, library: str) -> Version | None:
        """Return the newest older version of a package that has a library, of the dozen likeliest."""
        for wheel in newest_first(self._older_wheels(newest), library)[:FROM_THE_NEWEST]:
            if has_library(self._rows.names_in(wheel), library):
                return wheel.version
        return None

    def _read_ahead(self, wheels: Sequence[Wheel]) -> None:
        """Read wheels side by side, for whoever looks at them next."""

        def read(wheel: Wheel) -> None:
            # Why one cannot be read is remembered, and said if it is looked at.
            with suppress(InstallationError):
                self._rows.row(wheel, self._build.backend)

        side_by_side(read, wheels, READ_AT_ONCE)

    def _is_too_new(self, wheel: Wheel) -> bool:
        """Whether a version has moved on: it does not run, and is not older than a GPU or than torch's CUDA."""
        if self.serving(wheel) is None:
            return True
        row = self._rows.row(wheel, self._build.backend)
        toolkit = self._build.toolkit
        if row.toolkit and toolkit and row.toolkit[0] < toolkit[0]:
            return False
        # With a newer driver its PTX would do: an older version may have some that this driver compiles.
        if self._is_beyond_driver(wheel):
            return True
        own_build = as_build(row, self._build)
        for rules, gpu in without_code(row, self._build, self._around.gpus):
            if rules.predates(own_build, gpu):
                return False
        return against(row, self._build, self._around) is not None

    def _is_beyond_driver(self, wheel: Wheel) -> bool:
        """Whether a version does not run because of a CUDA that is too new for the driver."""
        if self.serving(wheel) != []:
            return False
        row = self._rows.row(wheel, self._build.backend)
        made = as_build(row, self._build)
        if any(rules.against_driver(made) for rules, _ in self._around.gpus):
            return True
        return bool(driver_too_old_for(row, self._build, self._around.gpus))

    def twin_text(self, wheel: Wheel) -> str:
        """Return that a package of the same version, for the CUDA of torch, runs here; empty if none is known to."""
        toolkit = self._build.toolkit
        name = name_for_cuda(wheel.package, toolkit[0]) if toolkit else None
        if name is None or name == wheel.package:
            return ""
        for twin in self._usable_wheels(name):
            if twin.version.public == wheel.version.public and self.serving(twin):
                return f"{name} {twin.version.public} runs here"
        return ""

    def _usable_wheels(self, package: str) -> Iterator[Wheel]:
        """Yield the wheels of a package that this Python and this platform can install."""
        resolution = self._resolution
        tags = set(resolution.target.tags(resolution.choice.python))
        for wheel in self.listed(package):
            if wheel.package == package and tags & wheel.tags:
                yield wheel

    def _older_wheels(self, newest: Wheel) -> Sequence[Wheel]:
        """Return a wheel of each older version, the newest first."""
        older = {}
        for wheel in self._usable_wheels(newest.package):
            version = wheel.version
            if version < newest.version and not version.is_prerelease:
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

    def serving(self, wheel: Wheel) -> list[Build] | None:
        """Return the builds of torch that run here beside which a wheel runs too, the best first; None if unread."""
        serving = []
        try:
            for build in self._resolution.plan.runnable:
                row = self._rows.row(wheel, build.backend)
                if not self._allows_torch(row, build):
                    continue
                if self._has_symbols(row, build) and not against(row, build, self._around):
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
        if has_symbols(needs, self._build) is not False:
            return True
        return has_symbols(needs, build) is True

    def why_none(self, wheel: Wheel) -> str:
        """Return what was found of the older versions of a package that does not run here."""
        older = len(self._older_wheels(wheel))
        twin = self.twin_text(wheel)
        following = f"; {twin}" if twin else ""
        if not older:
            python = self._resolution.choice.python
            return f"no older version has a wheel for Python {python} here{following}"
        if older > 2:
            which = f"of {older} older versions, none that was looked at"
        else:
            which = "no older version that could be read" if self._unread else "no older version"
        return f"{which} is known to run here either{self.but_for()}{following}"

    def but_for(self) -> str:
        """Return the versions that could not be read, with the last reason; empty without any."""
        if not self._unread:
            return ""
        versions = some([str(version) for version in self._unread])
        *_, last = self._unread.values()
        return f" (unread: {versions}: {last})"


def _waves(wheels: Sequence[Wheel]) -> Iterator[Sequence[Wheel]]:
    """Yield the first wheel, the next two, the next four: the further the answer is, the more are read at once."""
    start = 0
    size = 1
    while start < len(wheels):
        yield wheels[start : start + size]
        start += size
        size *= 2
