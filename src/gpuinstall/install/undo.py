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
from gpuinstall.environments.packages import read_packages
from gpuinstall.environments.records import is_vouched, vouch
from gpuinstall.environments.stamp import file_stamp

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from gpuinstall.base.reporter import Reporter
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
    users: tuple[str, ...] = ()
    """The files that the change overwrites and no installer wrote: they are never deleted."""
    packages: Mapping[str, SizeAndTime] = field(default_factory=dict)
    """The stamp of the RECORD of each package with a file in the units, once the change was proven."""

    @property
    def identity(self) -> str:
        """What the user's state folder knows this change by, whatever its state: the paths that it may touch."""
        text = json.dumps((self.units, self.users))
        return hashlib.sha256(text.encode()).hexdigest()

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
            "users": self.users,
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
            for unit in self.units:
                _mirror(self.root / unit, building / "copy" / unit, building)
            (building / "copy").mkdir(parents=True, exist_ok=True)
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
        _drop(self.folder)
        _restore_earlier(self.folder)

    def put_back(self, copy: Path) -> None:
        """Make the environment what a copy holds of the units.

        Raises:
            InstallationError: something cannot be written or removed.
        """
        try:
            # What came goes first: the space that it took is there for what comes back.
            for unit in self.units:
                _remove_extra(copy / unit, self.root / unit)
            for unit in self.units:
                _mirror(copy / unit, self.root / unit, self.folder)
        except OSError as error:
            raise unwritable(self.root, error) from None

    def keep(self, environment: ForeignEnvironment, reporter: Reporter) -> None:
        """Keep what is there now, which is proven, and the copy of what was before.

        The user's own files that were overwritten are copied to where nothing of ours removes them.
        """
        _keep_users(self.users, self.copy, self.folder, reporter)
        packages = _packages_in(self.units, environment)
        replace(self, state="proven", packages=packages).write(self.folder)
        # Only now that this change is proven may what was before the one before go.
        remove_path(self.earlier)

    def go_back(
        self,
        environment: ForeignEnvironment,
        reporter: Reporter,
        *,
        replaces: bool,
    ) -> None:
        """Put back what was before this change, which is proven, and keep what is there for the way forward.

        Args:
            environment: The environment.
            reporter: Where the user's files are said to be.
            replaces: Whether what came or moved since may go.

        Raises:
            UsageError: something came or moved since.
            InstallationError: a copy of what is there cannot be made.
        """
        now = _packages_in(self.units, environment)
        moved = [
            path for path in {**now, **self.packages} if now.get(path) != self.packages.get(path)
        ]
        users = tuple(self._users_since(environment))
        if (moved or users) and not replaces:
            names = [PurePosixPath(path).parent.name.removesuffix(".dist-info") for path in moved]
            raise UsageError(
                "changed-since",
                f"{some(sorted({*names, *users}))} came or changed in {environment.prefix} "
                "since gpuinstall installed into it",
                why="to go back takes them out again",
                hint="Run it again with --replace",
            )
        # The files of what came since, also beside the units: half a package would be left.
        further = _files_recorded([self.root / path for path in moved], environment)
        units = tuple(dict.fromkeys([*self.units, *further]))
        back = replace(self, state="changing", units=units, users=users)
        back.begin()
        try:
            back.put_back(back.earlier / "copy")
            back.keep(environment, reporter)
        except BaseException:
            with suppress(InstallationError, OSError):
                back.undo()
            raise

    def _users_since(self, environment: ForeignEnvironment) -> Iterator[str]:
        """Yield the files in the units that no installer wrote, and that the copy does not have."""
        recorded = recorded_paths(self.root, environment.packages_folders)
        for unit in self.units:
            unit_path = self.root / unit
            for path in files_below(unit_path) if is_folder(unit_path) else (unit_path,):
                name = path.relative_to(self.root).as_posix()
                is_installed = name in recorded or name.endswith(".pyc")
                is_ours = path.name in GUARD_FILES and is_own_guard_file(path)
                if is_installed or is_ours or not os.path.lexists(path):
                    continue
                if not _is_same(path, self.copy / name):
                    yield name


def undo_folder(environment: ForeignEnvironment) -> Path:
    """Return the folder of the record, on the file system of the packages."""
    return environment.paths["purelib"] / ".gpuinstall"


def plan_undo(
    environment: ForeignEnvironment,
    packages: Collection[str] = (),
    wheels: Iterable[Path] = (),
) -> UndoRecord:
    """Return the change that is about to be made; the guard's files are part of each.

    Args:
        environment: The environment that is changed.
        packages: The packages that are replaced.
        wheels: The folders of the unpacked wheels that take their place.

    Raises:
        InstallationError: a wheel names what lies outside the environment.
    """
    root = environment.root
    new = set[Path]()
    for wheel in wheels:
        for path in _paths_of_wheel(wheel, environment.paths):
            _check_inside(path, wheel, root)
            new.add(path)
    old = environment.files_of(packages) if packages else []
    overwritten = {path for path in new.difference(old) if os.path.lexists(path)}
    # All records are read only if there is something to find out.
    users = tuple(_user_files(overwritten, environment)) if overwritten else ()
    guard = [environment.prefix / name for name in GUARD_FILES]
    units = {_unit(path, environment) for path in (*old, *new)}
    return UndoRecord(
        root,
        undo_folder(environment),
        state="changing",
        units=_sorted_names({*units, *guard}, root),
        users=_sorted_names(users, root),
    )


def bytes_to_copy(environment: ForeignEnvironment, packages: Collection[str]) -> int:
    """Return what the copy of packages takes, in bytes; 0 if it is made of links."""
    files = [path for path in environment.files_of(packages) if path.is_file()]
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
            users=tuple(document["users"]),
            packages={name: (size, time_ns) for name, (size, time_ns) in stamps},
        )
        names = (*record.units, *record.users)
        is_inside = _are_below(record.root, names) and _are_below(record.copy, names)
        if is_inside and document["schema"] == UNDO_SCHEMA:
            return record
    return None


def _beside(folder: Path, name: str) -> Path:
    return folder.with_name(f"{folder.name}.{name}")


def _drop(folder: Path) -> None:
    """Remove a record with its copy; a copy without a record would be taken for a stranger's change."""
    leaving = _beside(folder, "new")
    remove_path(leaving)
    folder.rename(leaving)
    remove_path(leaving)


def _restore_earlier(folder: Path) -> None:
    """Put the record of the change before back, if the one after it came to nothing."""
    earlier = _beside(folder, "earlier")
    if is_folder(earlier) and not os.path.lexists(folder / "record.json"):
        remove_path(folder)
        earlier.rename(folder)


def _unit(path: Path, environment: ForeignEnvironment) -> Path:
    """Return what is copied for a file: all of its folder beside the packages, elsewhere the file alone."""
    for site in environment.packages_folders:
        if path.is_relative_to(site) and path != site:
            return site / path.relative_to(site).parts[0]
    return path


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
    """Yield the files of the packages with these RECORDs, as paths below the environment's root."""
    for package in read_packages(environment.packages_folders):
        if package.record / "RECORD" in records:
            for file in package.files:
                path = package.record.parent / file.path
                yield path.relative_to(environment.root).as_posix()


def _keep_users(
    names: Iterable[str],
    folder: Path,
    record: Path,
    reporter: Reporter,
) -> None:
    """Copy files of the user's to a dated folder beside the record, which nothing of ours removes."""
    present = [name for name in names if os.path.lexists(folder / name)]
    if present:
        copies = record.with_name(time.strftime(".gpuinstall.kept-%Y%m%d-%H%M%S"))
        for name in present:
            _mirror(folder / name, copies / name, record)
        reporter.notice("Kept", f"{some(present)}, which no installer wrote: in {copies}")


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


def _remove_extra(copy: Path, path: Path) -> None:
    """Remove what lies at a path and is not in the copy; raise OSError if it resists, as a file in use on Windows."""
    if is_folder(copy) and is_folder(path):
        for child in list(path.iterdir()):
            _remove_extra(copy / child.name, child)
    elif not _is_same(copy, path):
        remove_path(path)
        if os.path.lexists(path):
            raise PermissionError(f"{path} cannot be removed")


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


def _check_inside(
    path: Path,
    wheel: Path,
    root: Path,
) -> None:
    if ".." not in path.parts and path.is_relative_to(root):
        name = str(path.relative_to(root))
        if _are_below(root, [name]):
            return
    package, version = next(wheel.glob("*.dist-info")).stem.split("-")
    raise InstallationError(
        "outside",
        f"{package} {version} would write outside the environment, to {path.resolve()}",
        hint=f"gpuinstall install --into {quoted(f'{package}!={version}')}",
    )


def _user_files(
    paths: Iterable[Path],
    environment: ForeignEnvironment,
) -> Iterator[Path]:
    """Yield those of some files that no package of the environment has recorded."""
    root = environment.root
    recorded = recorded_paths(root, environment.packages_folders)
    for path in paths:
        if not is_folder(path) and path.relative_to(root).as_posix() not in recorded:
            yield path


def _sorted_names(paths: Iterable[Path], root: Path) -> tuple[str, ...]:
    return tuple(sorted({path.relative_to(root).as_posix() for path in paths}))


def _paths_of_wheel(wheel: Path, paths: Mapping[str, Path]) -> Iterator[Path]:
    """Yield the paths that an unpacked wheel makes; its ``.dist-info`` folder is one of them."""
    from email import message_from_string  # which takes long to load

    info = next(wheel.glob("*.dist-info"))
    headers = message_from_string((info / "WHEEL").read_text(encoding="utf-8"))
    is_pure = headers["Root-Is-Purelib"] == "true"
    site = paths["purelib" if is_pure else "platlib"]
    yield site / info.name
    for file in files_below(wheel):
        path = file.relative_to(wheel)
        first, *rest = path.parts
        if first.endswith(".data"):
            # It is there as long as the wheel is being installed.
            yield site / first
            if rest and rest[0] in paths:
                yield paths[rest[0]].joinpath(*rest[1:])
        elif first != info.name:
            yield site / path
    suffix = ".exe" if os.name == "nt" else ""
    with suppress(FileNotFoundError):
        entry_points = (info / "entry_points.txt").read_text(encoding="utf-8", errors="replace")
        for script in _scripts(entry_points):
            yield paths["scripts"] / f"{script}{suffix}"


def _scripts(entry_points: str) -> Iterator[str]:
    """Yield the names of the commands that a wheel brings."""
    section = ""
    for line in entry_points.splitlines():
        text = line.strip()
        if text.startswith("["):
            section = text.strip("[]")
        elif "=" in text and section in {"console_scripts", "gui_scripts"}:
            yield text.partition("=")[0].strip()


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
