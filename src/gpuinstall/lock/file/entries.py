"""Check whether the package sources in a lock file are trusted."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.base.advice import make_command
from gpuinstall.base.errors import LockError, UsageError
from gpuinstall.base.files import check_outside, is_inside
from gpuinstall.base.finding import Reason
from gpuinstall.base.location import (
    Location,
    SourceKind,
    SourceOrigin,
    parse_source,
)
from gpuinstall.base.text import redact, shorten
from gpuinstall.base.values import Value, replace
from gpuinstall.catalog import load_catalog
from gpuinstall.lock.file.lock import (
    Lock,
    LockEntry,
    find_given_file,
    parse_package_source,
)
from gpuinstall.sources.gate import Entry, find_rejection, list_source_fixes
from gpuinstall.sources.sources import Sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from packaging.pylock import Package

    from gpuinstall.base.requirement import Requirement


class LockGate(Value):
    """A checker for the package sources in the lock files of a folder."""

    sources: Sources
    folder: Path
    """The folder of the lock files, to which locked paths are relative."""
    requirements: tuple[Requirement, ...] = ()
    """The requirements of the user and of the project's files."""
    is_resolved: bool = False
    """Whether the current command resolved the lock."""
    wheels: Path | None = None
    """The folder that the user gives instead of downloads."""

    def find_rejections(
        self, lock: Lock, selected: Iterable[LockEntry] = ()
    ) -> Iterator[Reason]:
        """Yield the reasons for rejecting package sources in a lock file.

        Args:
            lock: The lock file.
            selected: The sources that this machine selects. They may include an
                sdist next to wheels for other machines.
        """
        listed = [
            (package, source)
            for package, source in lock.package_sources
            if source is not package.sdist or not package.wheels
        ]
        for entry in self._list_entries([*listed, *selected]):
            reason = find_rejection(entry, self.sources.policy)
            if reason:
                yield reason

    def check(self, lock: Lock, selected: Iterable[LockEntry] = ()) -> None:
        """Raise LockError if a package source in a lock file is rejected."""
        for reason in self.find_rejections(lock, selected):
            fixes = list_source_fixes({reason.code}, self.wheels)
            raise LockError(
                reason.code,
                f"{lock.name}: {reason.message}",
                why="sources in locks are checked like sources in requirements",
                hint=fixes or make_command("lock", "--upgrade"),
            )

    def _list_entries(self, sources: Iterable[LockEntry]) -> Iterator[Entry]:
        for package, entry in sources:
            is_family = package.name in load_catalog().family
            for source in parse_package_source(package, entry, self.folder):
                location = source.location
                is_listed = self.sources.addresses.has_files_at(location)
                if self.wheels and source.kind is SourceKind.WHEEL:
                    sha256 = getattr(entry, "hashes", {}).get("sha256")
                    given = find_given_file(source.filename, sha256, self.wheels)
                    is_listed = is_listed or given is not None
                is_reachable = location.is_local and (
                    (is_inside(location.path, self.folder) and not is_family)
                    or is_listed
                    or self._is_required_in_folder(location)
                )
                # An untrusted folder selects no index and no find-links.
                is_own = is_listed and source.kind is SourceKind.WHEEL
                origin = SourceOrigin.USER if is_own else self._find_origin(package)
                yield Entry(
                    replace(source, origin=origin),
                    f"{package.name} from {shorten(redact(source.address))}",
                    is_reachable=is_reachable,
                    is_family=is_family,
                )

    def _find_origin(self, package: Package) -> SourceOrigin:
        # Requesting a package on the command line does not approve an existing lock's
        # source.
        if not self.is_resolved:
            return SourceOrigin.LOCK
        is_requested = package.name in self.sources.policy.requested
        return SourceOrigin.USER if is_requested else SourceOrigin.RESOLUTION

    def _is_required_in_folder(self, location: Location) -> bool:
        """Return whether a requirement has a location inside the folder."""
        if location not in self._required_places:
            return False
        with suppress(UsageError):
            check_outside(Path(location.path), self.folder, str(self.folder))
            return True
        return False

    @cached_property
    def _required_places(self) -> set[Location]:
        places = set()
        for requirement in self.requirements:
            if requirement.url:
                with suppress(UsageError):
                    source = parse_source(requirement.url, self.folder)
                    places.add(source.location)
        return places
