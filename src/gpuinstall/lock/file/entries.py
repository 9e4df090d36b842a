"""The sources that a lock selects, as entries for the gate."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from os.path import exists
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.base.errors import LockError, UsageError
from gpuinstall.base.files import check_outside, expanded_home, real_path
from gpuinstall.base.finding import Reason, Rejection
from gpuinstall.base.location import Location
from gpuinstall.base.requirement import parse_requirement
from gpuinstall.base.text import redacted, shorten
from gpuinstall.base.values import Value
from gpuinstall.sources.gate import (
    LIST,
    TRUST,
    Entry,
    SourceKind,
    admit,
    source_location,
)
from gpuinstall.sources.sources import Sources

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from packaging.pylock import Package

    from gpuinstall.lock.file.lock import Lock

Selected = tuple["Package", Any]
"""A package of a lock, and its file, folder, or repository."""


@cache
def repository_of(folder: Path) -> Path:
    """Find the repository around a folder, or the folder itself."""
    place = real_path(folder)
    for parent in (place, *place.parents):
        # A home folder under version control is no project.
        if parent == real_path(Path.home()):
            break
        if exists(parent / ".git"):
            return parent
    return place


def all_sources(lock: Lock) -> list[Selected]:
    """Return every source of a lock, and sdists of packages without wheels."""
    sources: list[Selected] = []
    for package in lock.pylock.packages:
        files: list[Any] = [*(package.wheels or ())]
        if not files:
            files = [package.sdist]
        files += [package.archive, package.directory, package.vcs]
        sources += [(package, file) for file in files if file]
    return sources


class LockGate(Value):
    """The gate for locks in one folder."""

    sources: Sources
    folder: Path
    """The folder in which paths of its locks begin."""
    is_resolved: bool = False
    """Whether this run resolved the lock from requirements."""

    def rejections(
        self, lock: Lock, selected: Iterable[Selected] = ()
    ) -> Iterator[Reason]:
        """Yield why sources of a lock are rejected.

        Args:
            lock: The lock.
            selected: The sources that this machine selects, an sdist next to
                wheels of other machines too.
        """
        for entry in self._entries(lock, [*all_sources(lock), *selected]):
            verdict = admit(entry, self.sources.policy)
            if isinstance(verdict, Rejection):
                yield verdict.reason

    def check(self, lock: Lock, selected: Iterable[Selected] = ()) -> None:
        """Raise LockError if a source of a lock is rejected."""
        for reason in self.rejections(lock, selected):
            raise LockError(
                reason.code,
                f"{lock.name}: {reason.message}",
                why="locks pass the same checks as requirements",
                hint=LIST if reason.code == "lock-traversal" else TRUST,
            )

    def _entries(self, lock: Lock, sources: Iterable[Selected]) -> Iterator[Entry]:
        root = Location("file://", str(repository_of(self.folder)))
        requested = _requested_places(lock, self.folder)
        places = (
            (package, source, written)
            for package, source in sources
            for written in (source.path, getattr(source, "url", None))
            if written
        )
        for package, source, written in places:
            location = source_location(written, self.folder)
            is_reachable = (
                location.is_below(root)
                or self.sources.has_files_at(location)
                or _is_followed(location, requested, self.folder)
            )
            yield Entry(
                _kind(package, source, written),
                f"{package.name} from {shorten(redacted(written))}",
                location,
                is_reachable=is_reachable,
                is_from_lock=not self.is_resolved,
                is_requested=package.name in self.sources.policy.requested,
                subdirectory=getattr(source, "subdirectory", "") or "",
                commit=getattr(source, "commit_id", ""),
            )


def _kind(package: Package, source: Any, written: str) -> SourceKind:
    if source is package.vcs:
        return SourceKind.VCS
    if source is package.directory:
        return SourceKind.DIRECTORY
    is_wheel = written.partition("#")[0].endswith(".whl")
    return SourceKind.WHEEL if is_wheel else SourceKind.ARCHIVE


def _requested_places(lock: Lock, folder: Path) -> set[Location]:
    """Return the paths that the requirements of a lock lead to."""
    requirements = map(parse_requirement, lock.record.inputs)
    paths = [one.path or one.url for one in requirements if one.path or one.url]
    places = set()
    for path in filter(None, paths):
        with suppress(UsageError):
            places.add(source_location(str(expanded_home(path)), folder))
    return places


def _is_followed(
    location: Location, places: Collection[Location], folder: Path
) -> bool:
    """Return whether a requirement of a lock may lead to a path outside."""
    if location not in places:
        return False
    with suppress(UsageError):
        check_outside(Path(location.path), folder)
        return True
    return False
