"""What an environment of others was before, kept until the next change, so that it can be put back.

::

    saving     the files of the packages that change are being moved away
    saved      all are moved; whatever lies at the new packages' files now is ours to remove
    restoring  it has been removed; the old files are being moved back
    proven     the new packages stay; what was moved away waits for ``env rollback``, or goes with the next change

The record says which of these it is, so that the next run can put back what a run that was killed has left. It lies
in the environment, which may come from a stranger: only one whose paths the user's state folder vouches for is obeyed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.files import files_below, is_folder, read_json, remove_path, write_atomically
from gpuinstall.base.interruption import defer_interrupts
from gpuinstall.base.shell import quoted
from gpuinstall.base.text import some
from gpuinstall.base.values import dataclass
from gpuinstall.environments.guard import GUARD_FILES, is_own_guard_file
from gpuinstall.environments.ownership import recorded_paths
from gpuinstall.environments.proof_record import Stamp, file_stamp
from gpuinstall.environments.records import is_vouched, vouch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from gpuinstall.base.reporter import Reporter
    from gpuinstall.install.foreign import ForeignEnvironment

UNDO_SCHEMA = "gpuinstall.undo/1"
UndoState = Literal["saving", "saved", "restoring", "proven"]


@dataclass(frozen=True)
class UndoRecord:
    """A change of an environment of others, by the paths that it touches below ``root``."""

    root: Path
    """The folder below which the environment lies."""
    folder: Path
    """Where the record and the old files lie."""
    state: UndoState
    new: tuple[str, ...]
    """The paths that the change makes."""
    old: tuple[str, ...]
    """The paths that it moves away."""
    users: tuple[str, ...] = ()
    """Those of the old paths that no installer wrote: they are never deleted."""
    marks: Mapping[str, Stamp] = field(default_factory=dict)
    """The stamp of each new package's RECORD once it was proven: whatever changes the package writes another."""

    def at(self, state: UndoState) -> UndoRecord:
        """Return the change in another state, which is on the disk by then."""
        document = {
            "schema": UNDO_SCHEMA,
            "state": state,
            "new": self.new,
            "old": self.old,
            "users": self.users,
            "marks": self.marks,
        }
        write_atomically(self.folder / "record.json", json.dumps(document))
        return replace(self, state=state)

    @property
    def identity(self) -> str:
        """What the user's state folder knows this change by, whatever its state: the paths that it may touch."""
        paths = json.dumps((self.new, self.old, self.users))
        return hashlib.sha256(paths.encode()).hexdigest()

    @property
    def is_ours(self) -> bool:
        """Whether this user has made the change: what a stranger's record names is not touched."""
        return is_vouched(self.folder.resolve(), self.identity)

    @property
    def saved(self) -> Path:
        """Where the old files wait."""
        return self.folder / "saved"

    @property
    def earlier(self) -> Path:
        """Where the folder of the change before waits."""
        return _earlier(self.folder)

    @property
    def is_last_change(self) -> bool:
        """Whether nothing has changed the packages since they were proven."""
        for name in set(self.old).difference(self.new):
            # Python writes the bytecode of the new packages where pip has recorded that of the old ones.
            if os.path.lexists(self.root / name) and not name.endswith(".pyc"):
                return False
        stamps = {name: file_stamp(str(self.root / name)) for name in self.marks}
        return stamps == self.marks

    def begin(self) -> UndoRecord:
        """Write down what is about to change; what the change before has saved waits aside until this one is proven.

        Raises:
            InstallationError: if that cannot be written. Nothing is changed that could not be put back.
        """
        # A record that nobody has vouched for would not be obeyed by the next run.
        vouch(self.folder.resolve(), self.identity)
        if os.path.lexists(self.folder):
            remove_path(self.earlier)
            # A run that is killed before the new record is there leaves none, and the next one takes this one back.
            self.folder.rename(self.earlier)
        return self.at("saving")

    def save(self) -> UndoRecord:
        """Move the old files away; each lies in its place or among the saved ones, whenever the run is killed."""
        for name in self.old:
            path = self.root / name
            if os.path.lexists(path):
                _move(path, self.saved / name)
        # Only now: bytecode that an installer has recorded is saved too.
        for name in self.old:
            _forget_compiled(self.root / name)
        return self.at("saved")

    @defer_interrupts()
    def undo(self) -> Path | None:
        """Put everything back as it was; a run that is killed here is gone on with from the state that it has left.

        Returns:
            Where the guard's files are kept that the user has edited, for the guard goes back with the packages that it
            names; None if they were as they were written.
        """
        record = self
        written = {*self.new, *self.old}
        edited = [name for name in _edited_guard(self.root) if name in written]
        kept = self._kept(edited, of=self.root)
        if record.state == "proven":
            # With some of its files gone it is no proven change any more.
            record = record.at("saved")
        if record.state == "saved":
            for name in self.new:
                remove_path(self.root / name)
                _forget_compiled(self.root / name)
            _prune(self.root, self.new)
            # From here on nothing new is there to remove: what lies at a path of both is an old file that is back.
            record.at("restoring")
        for name in self.old:
            saved = self.saved / name
            if os.path.lexists(saved):
                _move(saved, self.root / name)
        # Files that are saved without a record would be taken for a stranger's change.
        remove_path(self.saved)
        remove_path(self.folder)
        _restore_earlier(self.folder)
        return kept

    def _kept(self, names: Collection[str], of: Path) -> Path | None:
        """Copy files of the user's to where nothing of ours removes them; return where, None without any."""
        copies = self.folder.with_name(time.strftime(".gpuinstall.kept-%Y%m%d-%H%M%S"))
        for name in names:
            _copy(of / name, copies / name)
        return copies if names else None

    def keep(self, reporter: Reporter) -> None:
        """Keep the new packages, which are proven, and what was moved away for them.

        The user's own files that were in their place are copied to where nothing of ours removes them.
        """
        users = [name for name in self.users if os.path.lexists(self.saved / name)]
        copies = self._kept(users, of=self.saved)
        if copies:
            reporter.notice("Kept", f"{some(users)}, which no installer wrote: in {copies}")
        marks = {}
        for name in self.new:
            if name.endswith(".dist-info"):
                record = f"{name}/RECORD"
                marks[record] = file_stamp(str(self.root / record))
        replace(self, marks=marks).at("proven")
        # Only now that this change is proven may what the one before has saved go.
        remove_path(self.earlier)
        _prune(self.root, self.old)

    def extend(self, names: Iterable[str]) -> None:
        """Take files that are about to be written into a change that was proven, with what lies there now."""
        added = tuple(name for name in names if name not in self.new)
        replaced = tuple(name for name in added if os.path.lexists(self.root / name))
        extended = replace(
            self,
            new=(*self.new, *added),
            old=(*self.old, *replaced),
        )
        vouch(self.folder.resolve(), extended.identity)
        for name in replaced:
            _copy(self.root / name, self.saved / name)
        extended.at("proven")


def undo_folder(environment: ForeignEnvironment) -> Path:
    """Return the folder of the record, on the file system of the packages."""
    return environment.paths["purelib"] / ".gpuinstall"


def plan_undo(
    environment: ForeignEnvironment,
    packages: Collection[str],
    wheels: Iterable[Path],
) -> UndoRecord:
    """Return the change that is about to be made.

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
    recorded = environment.files_of(packages)
    old = {path for path in (*recorded, *new) if os.path.lexists(path)}
    others = old.difference(recorded)
    # All records are read only if there is something to find out.
    users = _user_files(others, environment) if others else ()
    return UndoRecord(
        root,
        undo_folder(environment),
        state="saving",
        new=_sorted_names(new, root),
        old=_sorted_names(old, root),
        users=_sorted_names(users, root),
    )


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
        name = path.relative_to(root).as_posix()
        if name in recorded:
            continue
        is_shared = is_folder(path) and any(each.startswith(f"{name}/") for each in recorded)
        if not is_shared:
            yield path


def _sorted_names(paths: Iterable[Path], root: Path) -> tuple[str, ...]:
    return tuple(sorted({path.relative_to(root).as_posix() for path in paths}))


def find_undo(environment: ForeignEnvironment) -> UndoRecord | None:
    """Return the record of the last change that this user has made to an environment; None if there is none."""
    record = _read_record(environment)
    return record if record and record.is_ours else None


def finish_undo(environment: ForeignEnvironment) -> bool:
    """Put back what a run that was killed has left; return whether something was put back.

    Raises:
        UsageError: another user's run has left it, or it is unknown whose.
    """
    record = _read_record(environment)
    if record and record.state == "proven":
        if record.is_ours:
            remove_path(record.earlier)
        return False
    if record and record.is_ours:
        record.undo()
        return True
    folder = undo_folder(environment)
    # To undo it would remove whatever its record names; to go on, the files that it has moved away.
    if os.path.lexists(folder / "saved"):
        aside = folder.with_name(f"{folder.name}.others")
        move = f"mv {quoted(folder)} {quoted(aside)}"
        raise UsageError(
            "others-change",
            f"{folder} holds a change that was not finished, which this user did not begin here",
            why="its record may name any file of the environment as one to remove",
            hint=f"{move}   # keeps the files that it has moved away\nRun it again",
        )
    _restore_earlier(folder)
    return False


def _read_record(environment: ForeignEnvironment) -> UndoRecord | None:
    """Return the record in an environment, whoever wrote it; None if it is none, or leads out of the environment."""
    folder = undo_folder(environment)
    if not is_folder(folder) or (folder / "saved").is_symlink():
        return None
    with suppress(AttributeError, OSError, ValueError, KeyError, TypeError):
        document = read_json(folder / "record.json", folder)
        stamps = document["marks"].items()
        marks = {name: (size, time_ns, inode) for name, (size, time_ns, inode) in stamps}
        record = UndoRecord(
            environment.root,
            folder,
            state=document["state"],
            new=tuple(document["new"]),
            old=tuple(document["old"]),
            users=tuple(document["users"]),
            marks=marks,
        )
        names = (*record.new, *record.old, *record.users, *marks)
        is_inside = _are_below(record.root, names) and _are_below(record.saved, names)
        if is_inside and document["schema"] == UNDO_SCHEMA:
            return record
    return None


def _earlier(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.earlier")


def _restore_earlier(folder: Path) -> None:
    """Put the record of the change before back, if the one after it came to nothing."""
    earlier = _earlier(folder)
    if is_folder(earlier) and not os.path.lexists(folder / "record.json"):
        remove_path(folder)
        earlier.rename(folder)


def _edited_guard(root: Path) -> list[str]:
    """Return the files of the guard that the user has edited."""
    files = [name for name in GUARD_FILES if os.path.lexists(root / name)]
    return [name for name in files if not is_own_guard_file(root / name)]


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


def _copy(source: Path, destination: Path) -> None:
    destination.parent.mkdir(parents=True, exist_ok=True)
    if is_folder(source):
        shutil.copytree(source, destination, symlinks=True)
    else:
        shutil.copy2(source, destination, follow_symlinks=False)


def _move(source: Path, destination: Path) -> None:
    destination.parent.mkdir(parents=True, exist_ok=True)
    source.rename(destination)


def _forget_compiled(path: Path) -> None:
    """Remove what Python has compiled of a module."""
    if path.suffix == ".py":
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            remove_path(compiled)


def _prune(root: Path, names: Iterable[str]) -> None:
    """Remove the folders that are empty now, the deepest first."""
    folders = set[PurePosixPath]()
    for name in names:
        folders.update(PurePosixPath(name).parents)
    folders.discard(PurePosixPath())
    for folder in sorted(folders, key=lambda folder: -len(folder.parts)):
        for path in (root / folder / "__pycache__", root / folder):
            with suppress(OSError):
                path.rmdir()
