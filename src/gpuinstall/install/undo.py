"""What an environment of others was before, kept until the next change, so that it can be put back.

::

    saving     the files of the packages that change are being moved away
    saved      all are moved; whatever lies at the new packages' files now is ours to remove
    restoring  it has been removed; the old files are being moved back
    proven     the new packages stay; what was moved away waits for ``--rollback``, or goes with the next change

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
from dataclasses import asdict, dataclass, field, replace
from email import message_from_string
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal

from gpuinstall.environments.guard import GUARD_FILES, is_own_guard_file
from gpuinstall.environments.ownership import recorded_paths
from gpuinstall.environments.records import is_vouched, vouch
from gpuinstall.errors import InstallationError, UsageError
from gpuinstall.files import files_below, is_folder, read_json, remove_path, write_atomically
from gpuinstall.interruption import defer_interrupts
from gpuinstall.proof_record import Stamp, file_stamp
from gpuinstall.shell import quoted
from gpuinstall.text import some

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from gpuinstall.install.foreign import ForeignEnvironment
    from gpuinstall.reporter import Reporter

UNDO_SCHEMA = "gpuinstall.undo/1"
UndoState = Literal["saving", "saved", "restoring", "proven"]


@dataclass(frozen=True)
class UndoRecord:
    """A change of the environment below ``root``: ``new`` are the paths that it makes, ``old`` those it moves away.

    ``users`` are those of the old ones that no installer wrote: they are never deleted.
    """

    root: Path
    folder: Path
    state: UndoState
    new: tuple[str, ...]
    old: tuple[str, ...]
    users: tuple[str, ...] = ()
    marks: Mapping[str, Stamp] = field(default_factory=dict)
    """The stamp of each new package's RECORD once it was proven: whatever changes the package writes another."""

    def at(self, state: UndoState) -> UndoRecord:
        """Go on to a state, and write it down first."""
        gone_on = replace(self, state=state)
        document = {
            key: value for key, value in asdict(gone_on).items() if key not in {"root", "folder"}
        }
        write_atomically(
            self.folder / "record.json", json.dumps({"schema": UNDO_SCHEMA, **document})
        )
        return gone_on

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
        return self.folder.with_name(f"{self.folder.name}.earlier")

    @property
    def is_last_change(self) -> bool:
        """Whether nothing has changed the packages since they were proven."""
        returned = set(self.old) - set(self.new)
        if any(os.path.lexists(self.root / name) for name in returned):
            return False
        return all(file_stamp(str(self.root / name)) == mark for name, mark in self.marks.items())

    def begin(self) -> UndoRecord:
        """Write down what is about to change; what the change before has kept waits aside until this one is proven.

        Raise InstallationError if that cannot be written: nothing is changed that could not be put back.
        """
        vouch(self.folder.resolve(), self.identity)
        if os.path.lexists(self.folder):
            remove_path(self.earlier)
            self.folder.rename(self.earlier)
        return self.at("saving")

    def save(self) -> UndoRecord:
        """Move the old files away."""
        for name in self.old:
            if os.path.lexists(self.root / name):
                _move(self.root / name, self.saved / name)
                _forget_compiled(self.root / name)
        return self.at("saved")

    @defer_interrupts()
    def undo(self) -> None:
        """Put everything back as it was."""
        begun = self
        guard = [self.root / name for name in GUARD_FILES if os.path.lexists(self.root / name)]
        # What the user has edited stays, and what it names with it.
        edited = frozenset() if all(map(is_own_guard_file, guard)) else frozenset(GUARD_FILES)
        if begun.state == "proven":  # a run that dies now leaves what is no proven change any more
            begun = begun.at("saved")
        if begun.state == "saved":
            for name in self.new:
                if name not in edited:
                    remove_path(self.root / name)
                    _forget_compiled(self.root / name)
            _prune(self.root, self.new)
            begun = begun.at("restoring")
        for name in self.old:
            if name not in edited and os.path.lexists(self.saved / name):
                _move(self.saved / name, self.root / name)
        remove_path(self.folder)
        _restore_earlier(self.folder)

    def keep(self, reporter: Reporter) -> None:
        """Keep the new packages, which are proven, and what was moved away for them.

        The user's own files that were in their place are copied to where nothing of ours removes them.
        """
        files = [name for name in self.users if os.path.lexists(self.saved / name)]
        if files:
            kept = self.folder.with_name(f".gpuinstall.kept-{time.strftime('%Y%m%d-%H%M%S')}")
            for name in files:
                _copy(self.saved / name, kept / name)
            reporter.notice("Kept", f"{some(files)}, which no installer wrote: in {kept}")
        records = [f"{name}/RECORD" for name in self.new if name.endswith(".dist-info")]
        marks = {name: file_stamp(str(self.root / name)) for name in records}
        replace(self, marks=marks).at("proven")
        remove_path(self.earlier)
        _prune(self.root, self.old)

    def extend(self, names: Iterable[str]) -> None:
        """Take files that are about to be written into a change that was proven, with what lies there now."""
        added = tuple(name for name in names if name not in self.new)
        replaced = tuple(name for name in added if os.path.lexists(self.root / name))
        extended = replace(self, new=(*self.new, *added), old=(*self.old, *replaced))
        vouch(self.folder.resolve(), extended.identity)
        for name in replaced:
            _copy(self.root / name, self.saved / name)
        extended.at("proven")


def undo_folder(environment: ForeignEnvironment) -> Path:
    """The folder of the record, on the file system of the packages."""
    return environment.paths["purelib"] / ".gpuinstall"


def plan_undo(
    environment: ForeignEnvironment, packages: Iterable[str], wheels: Sequence[Path]
) -> UndoRecord:
    """Say what will be moved away, and what will come, where ``wheels``, unpacked, take the place of ``packages``.

    Raise InstallationError for a wheel that names what lies outside the environment.
    """
    root = environment.root
    new = set[Path]()
    for wheel in wheels:
        for path in _unpacked(wheel, environment.paths):
            if (
                ".." in path.parts
                or not path.is_relative_to(root)
                or not _are_below(root, [str(path.relative_to(root))])
            ):
                name, version = next(wheel.glob("*.dist-info")).stem.split("-")
                message = (
                    f"{name} {version} would write outside the environment, to {path.resolve()}"
                )
                hint = f"gpuinstall install --into {quoted(f'{name}!={version}')}"
                raise InstallationError("outside", message, hint=hint)
            new.add(path)
    recorded = environment.files_of(frozenset(packages))
    old = {path for path in (*recorded, *new) if os.path.lexists(path)}
    users = old.difference(recorded)
    if (
        users
    ):  # or another package's: all records are read only where there is something to find out
        owned = recorded_paths(root, (environment.paths["purelib"], environment.paths["platlib"]))
        users = {path for path in users if not _is_recorded(path, root, owned)}
    names = [
        tuple(sorted({path.relative_to(root).as_posix() for path in paths}))
        for paths in (new, old, users)
    ]
    return UndoRecord(
        root, undo_folder(environment), "saving", new=names[0], old=names[1], users=names[2]
    )


def _is_recorded(path: Path, root: Path, recorded: Collection[str]) -> bool:
    """Whether an installer wrote a file, or something in a folder."""
    name = path.relative_to(root).as_posix()
    return name in recorded or (
        is_folder(path) and any(each.startswith(f"{name}/") for each in recorded)
    )


def find_undo(environment: ForeignEnvironment) -> UndoRecord | None:
    """Return the record of the last change that this user has made to an environment; None if there is none."""
    record = _read_record(environment)
    return record if record and record.is_ours else None


def _read_record(environment: ForeignEnvironment) -> UndoRecord | None:
    """Read the record in an environment, whoever wrote it; None if it is none, or leads out of the environment."""
    folder, root = undo_folder(environment), environment.root
    if not is_folder(folder) or (folder / "saved").is_symlink():
        return None
    with suppress(AttributeError, OSError, ValueError, KeyError, TypeError):
        document = read_json(folder / "record.json", folder)
        new, old, users = (tuple(document[key]) for key in ("new", "old", "users"))
        marks = {
            name: (size, time_ns, inode)
            for name, (size, time_ns, inode) in document["marks"].items()
        }
        record = UndoRecord(root, folder, document["state"], new, old, users, marks)
        names = (*new, *old, *users, *marks)
        if (
            document["schema"] == UNDO_SCHEMA
            and _are_below(root, names)
            and _are_below(record.saved, names)
        ):
            return record
    return None


def finish_undo(environment: ForeignEnvironment) -> bool:
    """Put back what a run that was killed has left; return whether something was put back.

    Raise UsageError if another user's run has left it, or nobody can say whose.
    """
    folder, record = undo_folder(environment), _read_record(environment)
    if record and record.state == "proven":
        if record.is_ours:
            remove_path(record.earlier)
        return False
    if record and record.is_ours:
        record.undo()
        return True
    # To undo it would remove whatever its record names; to go on, the files that it has moved away.
    if os.path.lexists(folder / "saved"):
        aside = folder.with_name(f"{folder.name}.others")
        raise UsageError(
            "others-change",
            f"{folder} holds a change that was not finished, which this user did not begin here",
            why="its record may name any file of the environment as one to remove",
            hint=f"mv {quoted(folder)} {quoted(aside)}   # keeps the files that it has moved away\nthe same again",
        )
    _restore_earlier(folder)
    return False


def _restore_earlier(folder: Path) -> None:
    """Put the record of the change before back, if the one after it came to nothing."""
    earlier = folder.with_name(f"{folder.name}.earlier")
    if is_folder(earlier) and not os.path.lexists(folder / "record.json"):
        remove_path(folder)
        earlier.rename(folder)


def _unpacked(wheel: Path, paths: Mapping[str, Path]) -> Iterator[Path]:
    """The paths that an unpacked wheel makes; its ``.dist-info`` folder is one of them."""
    info = next(wheel.glob("*.dist-info")).name
    headers = message_from_string((wheel / info / "WHEEL").read_text(encoding="utf-8"))
    site = paths["purelib" if headers["Root-Is-Purelib"] == "true" else "platlib"]
    yield site / info
    for name in (path.relative_to(wheel) for path in files_below(wheel)):
        if name.parts[0].endswith(".data"):
            yield site / name.parts[0]  # as long as it is being unpacked
            folder = paths.get("".join(name.parts[1:2]))
            yield from [folder.joinpath(*name.parts[2:])] if folder else []
        elif name.parts[0] != info:
            yield site / name
    with suppress(FileNotFoundError):
        suffix = ".exe" if os.name == "nt" else ""
        for script in _scripts(
            (wheel / info / "entry_points.txt").read_text(encoding="utf-8", errors="replace")
        ):
            yield paths["scripts"] / f"{script}{suffix}"


def _scripts(entry_points: str) -> Iterator[str]:
    """The names of the commands that a wheel brings."""
    section = ""
    for line in map(str.strip, entry_points.splitlines()):
        if line.startswith("["):
            section = line.strip("[]")
        elif "=" in line and section in {"console_scripts", "gui_scripts"}:
            yield line.partition("=")[0].strip()


def _are_below(root: Path, names: Iterable[str]) -> bool:
    """Whether names mean something below a folder, and no link leads out of it."""
    folders = set[PurePosixPath]()
    for name in names:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.parts:
            return False
        folders.add(path.parent)
    # A package has thousands of files in a few folders.
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
    folders = {parent for name in names for parent in PurePosixPath(name).parents if parent.parts}
    for folder in sorted(folders, key=lambda folder: -len(folder.parts)):
        for path in (root / folder / "__pycache__", root / folder):
            with suppress(OSError):
                path.rmdir()
