"""What an environment of others was before a change: a copy of what the change touches, by links.

::

    .gpuinstall.new       a copy is being made, or removed; a run that dies here has changed nothing yet
    .gpuinstall.changing  the environment is being changed: whoever finds it puts back what the copy holds
    .gpuinstall           the change is proven, and the copy waits for ``env rollback``
    .gpuinstall.earlier   the copy of the change before, while this one takes its place

To go back is a change too: what is there is copied first, so that a second rollback goes forward again. The record
lies in the environment, which may come from a stranger: only one that the user's state folder vouches for, word by
word, is obeyed.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import time
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.files import (
    files_below,
    is_folder,
    link_or_copy,
    parse_json,
    read_document,
    remove_path,
    unwritable,
    write_atomically,
)
from gpuinstall.base.interruption import defer_interrupts
from gpuinstall.base.shell import quoted
from gpuinstall.base.text import some
from gpuinstall.base.values import dataclass
from gpuinstall.environments.environment import packages_called
from gpuinstall.environments.guard import GUARD_FILES, is_own_guard_file
from gpuinstall.environments.ownership import recorded_paths
from gpuinstall.environments.packages import read_packages, written_files
from gpuinstall.environments.records import is_vouched, vouch
from gpuinstall.environments.stamp import file_stamp

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from gpuinstall.base.reporter import Reporter
    from gpuinstall.environments.packages import InstalledPackage
    from gpuinstall.install.inspection import ForeignEnvironment

_RECORD = "record.json"
SizeAndTime = tuple[int, int]


@dataclass(frozen=True)
class UndoRecord:
    """A change of an environment of others, and the copy of what was before."""

    environment: ForeignEnvironment
    folder: Path
    """Where the record and the copy lie."""
    units: tuple[str, ...]
    """The paths below the environment's root that the change touches: a file, or a whole folder beside the packages."""
    packages: Mapping[str, SizeAndTime] = field(default_factory=dict)
    """The stamp of the RECORD of each package with a file in the units, once the change was proven."""

    @property
    def copy(self) -> Path:
        """Where what was before waits."""
        return self.folder / "copy"

    def begin(self) -> UndoRecord:
        """Copy what is about to change; from here on a run that dies is put back by the next.

        Raises:
            InstallationError: it cannot be copied. Nothing is changed that could not be put back.
        """
        building = _beside(self.environment, "new")
        try:
            (building / "copy").mkdir(parents=True, exist_ok=True)
            for unit in self.units:
                _mirror(self.environment.root / unit, building / "copy" / unit)
            self.write(building)
            building.rename(self.folder)
        except OSError as error:
            remove_path(building)
            raise unwritable(self.folder, error) from None
        return self

    def write(self, folder: Path) -> None:
        """Write the record into a folder, vouched for: the next run obeys no other."""
        text = json.dumps({"units": self.units, "packages": self.packages})
        vouch(_vouched_path(self.environment), _digest(text))
        write_atomically(folder / _RECORD, text)

    @defer_interrupts()
    def undo(self) -> None:
        """Put everything back as it was; a run that dies here is repeated by the next one."""
        self.put_back(self.copy)
        # A copy without a record would be taken for a stranger's change.
        leaving = _beside(self.environment, "new")
        remove_path(leaving)
        self.folder.rename(leaving)
        remove_path(leaving)

    def put_back(self, copy: Path, staying: Collection[Path] = ()) -> None:
        """Make the environment what a copy holds of the units, but for the files that are ``staying``.

        Raises:
            InstallationError: something cannot be written or removed.
        """
        root = self.environment.root
        try:
            # What came goes first: the space that it took is there for what comes back.
            for unit in self.units:
                _remove_extra(copy / unit, root / unit, staying)
            for unit in self.units:
                if root / unit not in staying:
                    _mirror(copy / unit, root / unit)
        except OSError as error:
            raise unwritable(root, error) from None

    def keep(self) -> None:
        """Keep what is there now, which is proven, and the copy of what was before."""
        proven = undo_folder(self.environment)
        packages = _packages_in(self.units, self.environment)
        replace(self, packages=packages).write(self.folder)
        if is_folder(proven):
            proven.rename(_beside(self.environment, "earlier"))
        self.folder.rename(proven)
        _settle_earlier(self.environment)

    def go_back(self, *, replaces: bool) -> None:
        """Put back what was before this change, which is proven, and keep what is there for the way forward.

        Files that no installer wrote stay where they are.

        Args:
            replaces: Whether packages that came or moved since may go.

        Raises:
            UsageError: a package came or moved since.
            InstallationError: a copy of what is there cannot be made.
        """
        environment = self.environment
        now = _packages_in(self.units, environment)
        moved = {
            path
            for path in {**now, **self.packages}
            if now.get(path) != self.packages.get(path)
        }
        if moved and not replaces:
            names = [PurePosixPath(path).stem for path in moved]
            raise UsageError(
                "changed-since",
                f"{some(sorted(names))} came or changed in {environment.prefix} "
                "since gpuinstall installed into it",
                why="to go back takes them out again",
                hint="Run it again with --replace",
            )
        # The files of what came since, also beside the units: half a package would be left.
        root = environment.root
        installed = read_packages(environment.packages_folders)
        further = [package for package in installed if _name(package, root) in moved]
        units = (*self.units, *_inside(root, _files_of(further, root)))
        back = _change(environment, dict.fromkeys(units))
        staying = set(_users_files(back.units, self.copy, environment))
        back.begin()
        try:
            back.put_back(self.copy, staying)
            back.keep()
        except BaseException:
            with suppress(InstallationError, OSError):
                back.undo()
            raise


def _users_files(
    units: Collection[str], copy: Path, environment: ForeignEnvironment
) -> Iterator[Path]:
    """Yield the files in the units that no installer wrote, Python did not compile, and a copy does not have."""
    root = environment.root
    recorded = recorded_paths(root, environment.packages_folders)
    for unit in units:
        unit_path = root / unit
        for path in files_below(unit_path) if is_folder(unit_path) else (unit_path,):
            name = path.relative_to(root).as_posix()
            is_ours = path.name in GUARD_FILES and is_own_guard_file(path)
            if name in recorded or name.endswith(".pyc") or is_ours:
                continue
            if os.path.lexists(path) and not _is_same(path, copy / name):
                yield path


def undo_folder(environment: ForeignEnvironment) -> Path:
    """Return the folder of the last proven change, on the file system of the packages."""
    return environment.paths["purelib"] / ".gpuinstall"


def _beside(environment: ForeignEnvironment, name: str) -> Path:
    folder = undo_folder(environment)
    return folder.with_name(f"{folder.name}.{name}")


def _change(environment: ForeignEnvironment, units: Iterable[str]) -> UndoRecord:
    return UndoRecord(environment, _beside(environment, "changing"), tuple(units))


def plan_undo(
    environment: ForeignEnvironment,
    packages: Collection[str] = (),
    unpacked: Path | None = None,
) -> UndoRecord:
    """Return the change that is about to be made; the guard's files are part of each.

    Args:
        environment: The environment that is changed.
        packages: The packages that are replaced.
        unpacked: The folder in which uv has unpacked the wheels that take their place.

    Raises:
        InstallationError: a wheel names what lies outside the environment.
    """
    root = environment.root
    paths = {environment.prefix / name for name in GUARD_FILES}
    replaced = packages_called(packages, environment.packages_folders)
    paths |= {package.record for package in replaced}
    paths |= {root / name for name in _files_of(replaced, root)}
    if unpacked:
        new = set(_paths_in(unpacked, environment))
        names = [Path(os.path.relpath(path, root)).as_posix() for path in new]
        if len(_inside(root, names)) < len(names):
            raise InstallationError(
                "outside",
                f"a package would write outside {environment.prefix}",
                hint="gpuinstall install   # makes an environment in .venv",
            )
        paths |= new
    units = {_unit(path, environment).relative_to(root).as_posix() for path in paths}
    return _change(environment, sorted(_inside(root, units)))


def keep_overwritten(
    environment: ForeignEnvironment,
    unpacked: Path,
    reporter: Reporter,
) -> None:
    """Copy what wheels will overwrite and no installer wrote to a dated folder, which nothing of ours removes."""
    root, folder = environment.root, undo_folder(environment)
    overwritten = [
        path for path in set(_paths_in(unpacked, environment)) if path.is_file()
    ]
    if not overwritten:
        return
    recorded = recorded_paths(root, environment.packages_folders)
    names = {path.relative_to(root).as_posix() for path in overwritten} - recorded
    if names:
        copies = folder.with_name(time.strftime(".gpuinstall.kept-%Y%m%d-%H%M%S"))
        for name in names:
            _mirror(root / name, copies / name)
        reporter.notice(
            "Kept", f"{some(sorted(names))}, which no installer wrote: in {copies}"
        )


def find_undo(environment: ForeignEnvironment) -> UndoRecord | None:
    """Return the last proven change that this user has made to an environment; None if there is none."""
    return _read_record(undo_folder(environment), environment)


def find_change(environment: ForeignEnvironment) -> UndoRecord | None:
    """Return the change of this user's that is not proven yet; None if there is none."""
    return _read_record(_beside(environment, "changing"), environment)


def finish_undo(environment: ForeignEnvironment) -> bool:
    """Put back what a run that was killed has left; return whether something was put back.

    Raises:
        UsageError: another user's run has left it, or it is unknown whose.
    """
    remove_path(_beside(environment, "new"))
    change = find_change(environment)
    folder = _beside(environment, "changing")
    if change:
        change.undo()
    elif os.path.lexists(folder):
        # To undo it would remove whatever its record names; to go on, the files that it has copied.
        aside = folder.with_name(f"{folder.name}.others")
        move = f"mv {quoted(folder)} {quoted(aside)}"
        raise UsageError(
            "others-change",
            f"{folder} holds a change that was not finished, which this user did not begin here",
            why="its record may name any file of the environment as one to remove",
            hint=f"{move}   # keeps the files that it has copied\nRun it again",
        )
    _settle_earlier(environment)
    return change is not None


def _settle_earlier(environment: ForeignEnvironment) -> None:
    """Remove the copy of the change before, or put it back if the one after it came to nothing."""
    folder, earlier = undo_folder(environment), _beside(environment, "earlier")
    if is_folder(folder):
        remove_path(earlier)
    elif is_folder(earlier):
        earlier.rename(folder)


def _read_record(folder: Path, environment: ForeignEnvironment) -> UndoRecord | None:
    """Return the record in a folder; None if there is none that this user has written for this environment."""
    with suppress(OSError, ValueError):
        text = read_document(folder / _RECORD, environment.root)
        if is_folder(folder) and is_vouched(_vouched_path(environment), _digest(text)):
            document = parse_json(text)
            stamps = document["packages"].items()
            packages = {name: (size, time_ns) for name, (size, time_ns) in stamps}
            return UndoRecord(environment, folder, tuple(document["units"]), packages)
    return None


def _vouched_path(environment: ForeignEnvironment) -> Path:
    return undo_folder(environment).resolve()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _packages_in(
    units: Collection[str], environment: ForeignEnvironment
) -> dict[str, SizeAndTime]:
    """Return the stamp of the RECORD of each package that has a file in the units, by the path of its record."""
    root = environment.root
    stamps = {}
    for package in read_packages(environment.packages_folders):
        site = package.record.parent.relative_to(root).as_posix()
        first_parts = {file.path.partition("/")[0] for file in package.files}
        if any(f"{site}/{part}" in units for part in first_parts):
            stamps[_name(package, root)] = file_stamp(str(package.record / "RECORD"))[
                :2
            ]
    return stamps


def _name(package: InstalledPackage, root: Path) -> str:
    return package.record.relative_to(root).as_posix()


def _files_of(packages: Iterable[InstalledPackage], root: Path) -> Iterator[str]:
    """Yield the files of packages, by their paths below the environment's root, without those outside."""
    for package in packages:
        for path in written_files(package, root):
            if not path.startswith(("../", "/")):
                yield path


def _paths_in(unpacked: Path, environment: ForeignEnvironment) -> Iterator[Path]:
    """Yield where the files of wheels may come to lie that uv has unpacked into one folder, whatever their scheme."""
    data = environment.paths["data"]
    present = {path.name for path in data.iterdir()}
    for package in read_packages([unpacked]):
        for row in package.recorded:
            name = posixpath.normpath(row.path.replace(os.sep, "/"))
            first, _, rest = name.partition("/")
            yield data / (name if first in present else first)
            for site in environment.packages_folders:
                yield site / name
            if first in {"bin", "Scripts"}:
                yield environment.paths["scripts"] / rest
            if first == "include":
                yield data / f"include/site/python{environment.version}" / rest


def _unit(path: Path, environment: ForeignEnvironment) -> Path:
    """Return what is copied for a file: the folder beside the packages or of its own that it lies in, else it alone."""
    data = environment.paths["data"]
    for folder in (*environment.packages_folders, data):
        if path.is_relative_to(folder):
            first = folder / path.relative_to(folder).parts[0]
            if folder != data or not os.path.lexists(first):
                return first
    return path


def _mirror(source: Path, destination: Path) -> None:
    """Bring to a place what lies at another, if anything does, by links; what the place has beyond that stays."""
    if is_folder(source):
        if not is_folder(destination):
            remove_path(destination)
        destination.mkdir(parents=True, exist_ok=True)
        for path in source.iterdir():
            _mirror(path, destination / path.name)
    elif os.path.lexists(source) and not _is_same(source, destination):
        destination.parent.mkdir(parents=True, exist_ok=True)
        remove_path(destination)
        link_or_copy(source, destination)


def _remove_extra(copy: Path, path: Path, staying: Collection[Path]) -> None:
    """Remove what lies at a path and is not in the copy; raise OSError if it resists, as a file in use on Windows."""
    if is_folder(path):
        for child in list(path.iterdir()):
            _remove_extra(copy / child.name, child, staying)
        if not is_folder(copy):
            # Something in it may be staying.
            with suppress(OSError):
                path.rmdir()
    elif os.path.lexists(path) and path not in staying and not _is_same(copy, path):
        path.unlink()


def _is_same(first: Path, second: Path) -> bool:
    """Whether two paths are links to one file, or one is an untouched copy of the other."""
    with suppress(OSError):
        one, other = first.lstat(), second.lstat()
        is_linked = (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
        facts = (one.st_mode, one.st_size, one.st_mtime_ns)
        return is_linked or facts == (other.st_mode, other.st_size, other.st_mtime_ns)
    return False


def _inside(root: Path, names: Iterable[str]) -> list[str]:
    """Return the names that mean something below a folder; a link may lead the others out of it."""
    resolved = root.resolve()
    is_inside: dict[str, bool] = {}
    inside = []
    for name in names:
        # A package has thousands of files in a few folders.
        parent = posixpath.dirname(name)
        if parent not in is_inside:
            is_inside[parent] = (root / parent).resolve().is_relative_to(resolved)
        if is_inside[parent] and name != "..":
            inside.append(name)
    return inside
