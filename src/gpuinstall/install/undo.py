"""What an environment of others was before a change: a copy of what the change touches, by links.

::

    .gpuinstall.new      the copy is being made; a run that dies here has changed nothing yet
    .gpuinstall          "changing": whoever finds it puts back what the copy holds
                         "proven": the new packages stay, and the copy waits for ``env rollback``
    .gpuinstall.earlier  the copy of the change before, until this one is proven

To go back is a change too: what is there is copied first, so that a second rollback goes forward again. The record
lies in the environment, which may come from a stranger: only one that the user's state folder vouches for is obeyed.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import shutil
import time
import uuid
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.files import (
    files_below,
    is_folder,
    read_json,
    remove_path,
    unwritable,
    write_atomically,
)
from gpuinstall.base.interruption import defer_interrupts
from gpuinstall.base.shell import quoted
from gpuinstall.base.text import some
from gpuinstall.base.values import dataclass
from gpuinstall.environments.guard import GUARD_FILES, is_own_guard_file
from gpuinstall.environments.ownership import recorded_paths
from gpuinstall.environments.packages import read_packages, written_files
from gpuinstall.environments.records import is_vouched, vouch
from gpuinstall.environments.stamp import file_stamp

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from gpuinstall.base.reporter import Reporter
    from gpuinstall.environments.packages import InstalledPackage
    from gpuinstall.install.foreign import ForeignEnvironment

UNDO_SCHEMA = "gpuinstall.undo/2"
UndoState = Literal["changing", "proven"]
SizeAndTime = tuple[int, int]


@dataclass(frozen=True)
class UndoRecord:
    """A change of an environment of others."""

    root: Path
    """The folder below which the environment lies."""
    folder: Path
    """Where the record and the copy lie."""
    state: UndoState
    units: tuple[str, ...]
    """The paths below ``root`` that the change touches: a file, or a whole folder beside the packages."""
    packages: Mapping[str, SizeAndTime] = field(default_factory=dict)
    """The stamp of the RECORD of each package with a file in the units, once the change was proven."""

    @property
    def identity(self) -> str:
        """What the user's state folder knows this change by, whatever its state: the paths that it may touch."""
        return hashlib.sha256(json.dumps(self.units).encode()).hexdigest()

    @property
    def is_ours(self) -> bool:
        """Whether this user has made the change: what a stranger's record names is not touched."""
        return is_vouched(self.folder.resolve(), self.identity)

    @property
    def copy(self) -> Path:
        """Where what was before waits."""
        return self.folder / "copy"

    @property
    def earlier(self) -> Path:
        """Where the copy of the change before waits."""
        return _beside(self.folder, "earlier")

    def write(self, folder: Path) -> None:
        """Write the record into a folder."""
        document = {
            "schema": UNDO_SCHEMA,
            "state": self.state,
            "units": self.units,
            "packages": self.packages,
        }
        write_atomically(folder / "record.json", json.dumps(document))

    def begin(self) -> UndoRecord:
        """Copy what is about to change; from here on a run that dies is put back by the next.

        Raises:
            InstallationError: it cannot be copied. Nothing is changed that could not be put back.
        """
        building = _beside(self.folder, "new")
        # A record that nobody has vouched for would not be obeyed by the next run.
        vouch(self.folder.resolve(), self.identity)
        try:
            (building / "copy").mkdir(parents=True, exist_ok=True)
            for unit in self.units:
                _mirror(self.root / unit, building / "copy" / unit, building)
            self.write(building)
            if os.path.lexists(self.folder):
                remove_path(self.earlier)
                # Killed between the two, there is none, and the next run takes this one back.
                self.folder.rename(self.earlier)
            building.rename(self.folder)
        except OSError as error:
            remove_path(building)
            _restore_earlier(self.folder)
            raise unwritable(self.folder, error) from None
        return self

    @defer_interrupts()
    def undo(self) -> None:
        """Put everything back as it was; a run that dies here is repeated by the next one."""
        self.put_back(self.copy)
        # A copy without a record would be taken for a stranger's change.
        leaving = _beside(self.folder, "new")
        remove_path(leaving)
        self.folder.rename(leaving)
        remove_path(leaving)
        _restore_earlier(self.folder)

    def put_back(self, copy: Path, staying: Collection[Path] = ()) -> None:
        """Make the environment what a copy holds of the units, but for the files that are ``staying``.

        Raises:
            InstallationError: something cannot be written or removed.
        """
        try:
            # What came goes first: the space that it took is there for what comes back.
            for unit in self.units:
                _remove_extra(copy / unit, self.root / unit, staying)
            for unit in self.units:
                if self.root / unit not in staying:
                    _mirror(copy / unit, self.root / unit, self.folder)
        except OSError as error:
            raise unwritable(self.root, error) from None

    def keep(self, environment: ForeignEnvironment) -> None:
        """Keep what is there now, which is proven, and the copy of what was before."""
        packages = _packages_in(self.units, environment)
        replace(self, state="proven", packages=packages).write(self.folder)
        # Only now that this change is proven may what was before the one before go.
        remove_path(self.earlier)

    def go_back(self, environment: ForeignEnvironment, *, replaces: bool) -> None:
        """Put back what was before this change, which is proven, and keep what is there for the way forward.

        Files that no installer wrote stay where they are.

        Args:
            environment: The environment.
            replaces: Whether packages that came or moved since may go.

        Raises:
            UsageError: a package came or moved since.
            InstallationError: a copy of what is there cannot be made.
        """
        now = _packages_in(self.units, environment)
        moved = {
            path for path in {**now, **self.packages} if now.get(path) != self.packages.get(path)
        }
        if moved and not replaces:
            names = [PurePosixPath(path).parent.name.removesuffix(".dist-info") for path in moved]
            raise UsageError(
                "changed-since",
                f"{some(sorted(names))} came or changed in {environment.prefix} "
                "since gpuinstall installed into it",
                why="to go back takes them out again",
                hint="Run it again with --replace",
            )
        # The files of what came since, also beside the units: half a package would be left.
        further = _files_recorded([self.root / path for path in moved], environment)
        units = tuple(dict.fromkeys([*self.units, *_inside(self.root, further)]))
        back = replace(self, state="changing", units=units)
        staying = set(back.users_files(environment))
        back.begin()
        try:
            back.put_back(back.earlier / "copy", staying)
            back.keep(environment)
        except BaseException:
            with suppress(InstallationError, OSError):
                back.undo()
            raise

    def users_files(self, environment: ForeignEnvironment) -> Iterator[Path]:
        """Yield the files in the units that no installer wrote, Python did not compile, and the copy does not have."""
        recorded = recorded_paths(self.root, environment.packages_folders)
        for unit in self.units:
            unit_path = self.root / unit
            for path in files_below(unit_path) if is_folder(unit_path) else (unit_path,):
                name = path.relative_to(self.root).as_posix()
                is_ours = path.name in GUARD_FILES and is_own_guard_file(path)
                if name in recorded or name.endswith(".pyc") or is_ours:
                    continue
                if os.path.lexists(path) and not _is_same(path, self.copy / name):
                    yield path


def undo_folder(environment: ForeignEnvironment) -> Path:
    """Return the folder of the record, on the file system of the packages."""
    return environment.paths["purelib"] / ".gpuinstall"


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
    records = []
    for package in _packages_called(packages, environment):
        paths.add(package.record)
        records.append(package.record / "RECORD")
    paths |= {root / name for name in _files_recorded(records, environment)}
    if unpacked:
        new = set(_paths_in(unpacked, environment))
        if not _are_below(root, {os.path.relpath(path, root) for path in new}):
            raise InstallationError(
                "outside",
                f"a package would write outside {environment.prefix}",
                hint="gpuinstall install   # makes an environment in .venv",
            )
        paths |= new
    units = {_unit(path, environment).relative_to(root).as_posix() for path in paths}
    inside = tuple(sorted(_inside(root, units)))
    return UndoRecord(root, undo_folder(environment), state="changing", units=inside)


def keep_overwritten(
    environment: ForeignEnvironment,
    unpacked: Path,
    reporter: Reporter,
) -> None:
    """Copy what wheels will overwrite and no installer wrote to a dated folder, which nothing of ours removes."""
    root, folder = environment.root, undo_folder(environment)
    overwritten = [path for path in set(_paths_in(unpacked, environment)) if path.is_file()]
    if not overwritten:
        return
    recorded = recorded_paths(root, environment.packages_folders)
    names = {path.relative_to(root).as_posix() for path in overwritten} - recorded
    if names:
        copies = folder.with_name(time.strftime(".gpuinstall.kept-%Y%m%d-%H%M%S"))
        for name in names:
            _mirror(root / name, copies / name, copies)
        reporter.notice("Kept", f"{some(sorted(names))}, which no installer wrote: in {copies}")


def bytes_to_copy(environment: ForeignEnvironment, packages: Collection[str]) -> int:
    """Return what the copy of packages takes, in bytes; 0 if it is made of links."""
    files = []
    for package in _packages_called(packages, environment):
        paths = [package.record.parent / row.path for row in package.files]
        files += [path for path in paths if path.is_file()]
    if not files or _has_free_links(files[0], environment.paths["purelib"]):
        return 0
    return sum(path.stat().st_size for path in files)


def find_undo(environment: ForeignEnvironment) -> UndoRecord | None:
    """Return the record of the last change that this user has made to an environment; None if there is none."""
    record = _read_record(environment)
    return record if record and record.is_ours else None


def finish_undo(environment: ForeignEnvironment) -> bool:
    """Put back what a run that was killed has left; return whether something was put back.

    Raises:
        UsageError: another user's run has left it, or it is unknown whose.
    """
    folder = undo_folder(environment)
    remove_path(_beside(folder, "new"))
    record = _read_record(environment)
    if record and record.is_ours:
        if record.state == "proven":
            remove_path(record.earlier)
            return False
        record.undo()
        return True
    # To undo it would remove whatever its record names; to go on, the files that it has copied.
    if os.path.lexists(folder / "copy") and not (record and record.state == "proven"):
        aside = folder.with_name(f"{folder.name}.others")
        move = f"mv {quoted(folder)} {quoted(aside)}"
        raise UsageError(
            "others-change",
            f"{folder} holds a change that was not finished, which this user did not begin here",
            why="its record may name any file of the environment as one to remove",
            hint=f"{move}   # keeps the files that it has copied\nRun it again",
        )
    _restore_earlier(folder)
    return False


def _read_record(environment: ForeignEnvironment) -> UndoRecord | None:
    """Return the record in an environment, whoever wrote it; None if it is none, or leads out of the environment."""
    folder = undo_folder(environment)
    if not is_folder(folder) or (folder / "copy").is_symlink():
        return None
    with suppress(AttributeError, OSError, ValueError, KeyError, TypeError):
        document = read_json(folder / "record.json", folder)
        stamps = document["packages"].items()
        record = UndoRecord(
            environment.root,
            folder,
            state=document["state"],
            units=tuple(document["units"]),
            packages={name: (size, time_ns) for name, (size, time_ns) in stamps},
        )
        is_inside = _are_below(record.root, record.units) and _are_below(record.copy, record.units)
        if is_inside and document["schema"] == UNDO_SCHEMA:
            return record
    return None


def _beside(folder: Path, name: str) -> Path:
    return folder.with_name(f"{folder.name}.{name}")


def _restore_earlier(folder: Path) -> None:
    """Put the record of the change before back, if the one after it came to nothing."""
    earlier = _beside(folder, "earlier")
    if is_folder(earlier) and not os.path.lexists(folder / "record.json"):
        remove_path(folder)
        earlier.rename(folder)


def _packages_called(
    names: Collection[str], environment: ForeignEnvironment
) -> Iterator[InstalledPackage]:
    for package in read_packages(environment.packages_folders):
        if package.name in names:
            yield package


def _packages_in(units: Collection[str], environment: ForeignEnvironment) -> dict[str, SizeAndTime]:
    """Return the stamp of the RECORD of each package that has a file in the units, by its path."""
    root = environment.root
    stamps = {}
    for package in read_packages(environment.packages_folders):
        site = package.record.parent.relative_to(root).as_posix()
        first_parts = {file.path.partition("/")[0] for file in package.files}
        if any(f"{site}/{part}" in units for part in first_parts):
            record = package.record / "RECORD"
            stamps[record.relative_to(root).as_posix()] = file_stamp(str(record))[:2]
    return stamps


def _files_recorded(
    records: Collection[Path],
    environment: ForeignEnvironment,
) -> Iterator[str]:
    """Yield the files of the packages with these RECORDs, by their paths below the environment's root."""
    for package in read_packages(environment.packages_folders):
        if package.record / "RECORD" not in records:
            continue
        for path in written_files(package, environment.root):
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


def _mirror(
    source: Path,
    destination: Path,
    work: Path,
) -> None:
    """Bring to ``destination`` what lies at ``source``, if anything does, by links.

    Args:
        source: A file, a link or a folder.
        destination: Where the same is to lie; what it has beyond that stays.
        work: A folder on the same file system, for what is not complete yet.
    """
    if is_folder(source):
        if not is_folder(destination):
            remove_path(destination)
        destination.mkdir(parents=True, exist_ok=True)
        for path in source.iterdir():
            _mirror(path, destination / path.name, work)
    elif os.path.lexists(source) and not _is_same(source, destination):
        destination.parent.mkdir(parents=True, exist_ok=True)
        work.mkdir(parents=True, exist_ok=True)
        part = work / uuid.uuid4().hex
        _link(source, part)
        if is_folder(destination):
            remove_path(destination)
        part.replace(destination)


def _link(source: Path, destination: Path) -> None:
    if not source.is_symlink():
        # Another owner's file, a file system without links, or too many links to this one.
        with suppress(OSError):
            os.link(source, destination)
            return
    shutil.copy2(source, destination, follow_symlinks=False)


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


def _has_free_links(file: Path, folder: Path) -> bool:
    """Whether a link to a file costs no space: overlayfs copies a file of a lower layer that gets a second name."""
    if _file_system(folder) == "overlay":
        return False
    probe = folder / f".gpuinstall.{uuid.uuid4().hex}"
    try:
        os.link(file, probe)
    except OSError:
        return False
    probe.unlink()
    return True


def _file_system(folder: Path) -> str | None:
    """Return the type of the file system of a folder, as Linux says it; None elsewhere."""
    with suppress(OSError, ValueError):
        device = folder.stat().st_dev
        number = f"{os.major(device)}:{os.minor(device)}"
        for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
            fields = line.split()
            if fields[2] == number:
                return fields[fields.index("-") + 1]
    return None


def _inside(root: Path, names: Iterable[str]) -> list[str]:
    """Return the names that mean something below a folder; a link may lead the others out of it."""
    by_folder: dict[PurePosixPath, list[str]] = {}
    for name in names:
        by_folder.setdefault(PurePosixPath(name).parent, []).append(name)
    groups = [group for group in by_folder.values() if _are_below(root, group)]
    return [name for group in groups for name in group]


def _are_below(root: Path, names: Iterable[str]) -> bool:
    """Whether names mean something below a folder, and no link leads out of it."""
    # A package has thousands of files in a few folders.
    folders = set[PurePosixPath]()
    for name in names:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            return False
        folders.add(path.parent)
    resolved = root.resolve()
    return all((root / folder).resolve().is_relative_to(resolved) for folder in folders)
