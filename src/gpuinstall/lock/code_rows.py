"""What the wheels of a resolution say of their native code, each read once.

What was requested, and what the catalogue calls its core, is read for it; of a dependency the CUDA major alone counts,
by its name, its METADATA or the catalogue, so that nobody waits for its wheel.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.requirement import requirement_names
from gpuinstall.base.threads import side_by_side
from gpuinstall.catalog import Wheel
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.catalog.listing import family_wheels
from gpuinstall.catalog.pages import parse_page
from gpuinstall.lock.target import best_by_tags
from gpuinstall.plan.companions import PAIRED
from gpuinstall.wheels.companions import load_members
from gpuinstall.wheels.learned.reader import Reader
from gpuinstall.wheels.learned.row import Depth
from gpuinstall.wheels.learned.store import learned_store
from gpuinstall.wheels.needs import pinned_cuda

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from packaging.tags import Tag

    from gpuinstall.base.backend import Backend
    from gpuinstall.catalog import Build
    from gpuinstall.lock.lock import LockedFile
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.sources.session import Session
    from gpuinstall.wheels.learned.row import LearnedRow

WHEELS_AT_ONCE = 8


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
        """Whether a package was requested, or is what the catalogue calls the core of programs."""
        members = load_members()
        is_core = members.names(package) or package in members.stated
        return package in self.requested or is_core

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
            is_judged = not self.decides(wheel.package) or not _is_for_any(wheel)
            if is_judged or self._reader.may_have_code(wheel):
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
    _, _, name = file.url.rpartition("/")
    name = name.replace("%2B", "+")
    try:
        _, version, _, tags = parse_wheel_filename(name)
    except InvalidWheelFilename:
        return None
    return Wheel(
        file.package,
        version,
        name,
        file.url,
        tags,
        file.sha256,
    )
