"""What an environment of others was before a change: a copy of what the change touches, by links.

::

    .gpuinstall.new       a copy is being made, or removed; a run that dies here has changed nothing yet
    .gpuinstall.changing  the environment is being changed: whoever finds it puts back what the copy holds, unless the
                          record says that the change is proven
    .gpuinstall           the change is proven, and the copy waits for ``env rollback``

To go back is a change too: what is there is copied first, so that a second rollback goes forward again. The record
lies in the environment, which may come from a stranger: only one that the user's state folder vouches for, word by
word, is obeyed.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.files import (
    link_or_copy,
    link_tree,
    parse_json,
    read_document,
    unwritable,
    write_atomically,
)
from gpuinstall.base.interruption import defer_interrupts
from gpuinstall.base.removal import files_below, is_folder, remove_path
from gpuinstall.base.shell import quoted
from gpuinstall.base.text import some
from gpuinstall.base.values import dataclass
from gpuinstall.environments.environment import packages_called
from gpuinstall.environments.guard import GUARD_FILES, own_guard_files, renew_uv_guard
from gpuinstall.environments.ownership import recorded_paths
from gpuinstall.environments.packages import read_packages, written_files
from gpuinstall.environments.records import is_vouched, vouch
from gpuinstall.install.swap import WAIT_S, file_lock

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from gpuinstall.base.reporter import Reporter
    from gpuinstall.environments.packages import InstalledPackage
    from gpuinstall.install.foreign import ForeignEnvironment

_RECORD = "record.json"


@dataclass(frozen=True)
class UndoRecord:
    """A change of an environment of others, and the copy of what was before."""

    environment: ForeignEnvironment
    folder: Path
    """Where the record and the copy lie."""
    units: tuple[str, ...]
    """The paths below the environment's root that the change touches: a file, or a whole folder beside the packages."""
    packages: Mapping[str, str] | None = None
    """The version of each package with a file in the units, once the change is proven."""

    @property
    def copy(self) -> Path:
        """Where what was before waits."""
        return self.folder / "copy"

    def begin(self) -> UndoRecord:
        """Copy what is about to change; from here on a run that dies is put back by the next.

        Raises:
            InstallationError: it cannot be copied. Nothing is changed that could not be put back.
        """
        building = undo_folder(self.environment, ".new")
        try:
            (building / "copy").mkdir(parents=True, exist_ok=True)
            for unit in self.units:
                _link(self.environment.root / unit, building / "copy" / unit)
            self.write(building)
            building.rename(self.folder)
        except OSError as error:
            remove_path(building)
            raise unwritable(self.folder, error) from None
        return self

    def write(self, folder: Path) -> None:
        """Write the record into a folder, vouched for: the next run obeys no other."""
        text = json.dumps({"units": self.units, "packages": self.packages})
        vouch(*_signature(text, self.environment))
        write_atomically(folder / _RECORD, text)

    @defer_interrupts()
    def undo(self) -> None:
        """Put everything back as it was; a run that dies here is repeated by the next one."""
        self.put_back(self.copy)
        _discard(self.folder, self.environment)

    def put_back(self, copy: Path, removable: Collection[str] | None = None) -> None:
        """Make the environment what a copy holds of the units.

        Args:
            copy: The copy.
            removable: The files that may go, by their paths below the environment's root; None: all in the units.

        Raises:
            InstallationError: something cannot be written or removed.
        """
        root = self.environment.root
        try:
            # What came goes first: the space that it took is there for what comes back.
            for unit in self.units:
                _remove(root / unit, root, removable)
            for unit in self.units:
                _link(copy / unit, root / unit)
        except OSError as error:
            raise unwritable(root, error) from None

    def keep(self) -> None:
        """Keep what is there now, which is proven, and the copy of what was before."""
        proven = undo_folder(self.environment)
        present = _packages_in(self.units, self.environment)
        packages = {name: package.version for name, package in present.items()}
        # From here on a run that dies is finished by the next one.
        replace(self, packages=packages).write(self.folder)
        _discard(proven, self.environment)
        self.folder.rename(proven)

    def go_back(self, reporter: Reporter, *, replaces: bool) -> None:
        """Put back what was before this change, which is proven, and keep what is there for the way forward.

        Files that no installer wrote stay where they are.

        Args:
            reporter: Is told if nothing comes of it.
            replaces: Whether packages that came or moved since may go.

        Raises:
            UsageError: a package came or moved since.
            InstallationError: a copy of what is there cannot be made.
        """
        environment = self.environment
        root = environment.root
        before = self.packages or {}
        present = _packages_in(self.units, environment)
        came = [
            package
            for name, package in present.items()
            if before.get(name) != package.version
        ]
        moved = {package.name for package in came} | (before.keys() - present)
        if moved and not replaces:
            raise UsageError(
                "changed-since",
                f"{some(sorted(moved))} came or changed in {environment.prefix} "
                "since gpuinstall installed into it",
                why="to go back takes them out again",
                hint="Run it again with --replace",
            )
        # The files of what came since, also beside the units: half a package would be left.
        back = _change(environment, {*self.units, *_files_of(came, root)})
        removable = recorded_paths(root, environment.packages_folders)
        guard = own_guard_files(environment.prefix)
        removable |= {_below(environment.prefix, root) + name for name in guard}
        back.begin()
        with changing(environment, reporter):
            back.put_back(self.copy, removable)


@contextmanager
def holding(environment: ForeignEnvironment, reporter: Reporter) -> Iterator[bool]:
    """Hold an environment for one run; yield whether what a killed run has left was put back first."""
    file = undo_folder(environment, ".lock")
    with file_lock(file, environment.prefix, reporter, WAIT_S):
        yield finish_undo(environment)


@contextmanager
def changing(environment: ForeignEnvironment, reporter: Reporter) -> Iterator[None]:
    """Keep the change that is made meanwhile, which is proven at the end; after any failure all is as it was."""
    try:
        yield
        change = find_change(environment)
        if change:
            change.keep()
    except BaseException:
        # What cannot be put right now is left to the next run.
        with defer_interrupts(), suppress(InstallationError, OSError):
            if finish_undo(environment):
                reporter.warn("the environment was restored")
        raise


def roll_back_into(
    environment: ForeignEnvironment,
    reporter: Reporter,
    *,
    replace: bool = False,
) -> None:
    """Undo the last change, or the one that a killed run has left; once more goes forward again.

    Args:
        environment: One of others.
        reporter: Is told for whom to wait.
        replace: Whether what came or moved since may be taken out.

    Raises:
        UsageError: there is none, or something came or moved since.
    """
    with holding(environment, reporter) as was_put_back:
        if not was_put_back:
            record = find_undo(environment)
            if record is None:
                raise UsageError(
                    "no-previous",
                    f"there is no change by gpuinstall to undo in {environment.prefix}, by this user",
                )
            record.go_back(reporter, replaces=replace)
        renew_uv_guard(environment.prefix)


def begin_change(
    environment: ForeignEnvironment,
    reporter: Reporter,
    packages: Collection[str] = (),
    unpacked: Path | None = None,
) -> UndoRecord:
    """Copy what is about to change, the guard's files among it.

    What wheels will overwrite and no installer wrote is copied to a dated folder too, which nothing of ours removes.

    Args:
        environment: The environment that is changed.
        reporter: Is told of the dated folder.
        packages: The packages that are replaced.
        unpacked: The folder in which uv has unpacked the wheels that take their place.

    Raises:
        InstallationError: a wheel would write outside the environment, or what changes cannot be copied.
    """
    root = environment.root
    new = set(_names_in(unpacked, environment)) if unpacked else set[str]()
    if not all(_leads_inside((root / name).parent, root) for name in new):
        raise InstallationError(
            "outside",
            f"a package would write outside {environment.prefix}",
            hint="gpuinstall install   # makes an environment in .venv",
        )
    _keep_overwritten(new, environment, reporter)
    replaced = packages_called(packages, environment.packages_folders)
    names = {*new, *_files_of(replaced, root)}
    names |= {package.record.relative_to(root).as_posix() for package in replaced}
    names |= {_below(environment.prefix, root) + name for name in GUARD_FILES}
    sites = [_below(folder, root) for folder in environment.packages_folders]
    return _change(environment, {_unit(name, sites) for name in names}).begin()


def _names_in(unpacked: Path, environment: ForeignEnvironment) -> Iterator[str]:
    """Yield where files that uv has unpacked into one folder may come to lie, whatever their scheme."""
    root, paths = environment.root, environment.paths
    data = _below(paths["data"], root)
    present = {path.name for path in paths["data"].iterdir()}
    for file in files_below(unpacked):
        name = file.relative_to(unpacked).as_posix()
        if name == ".lock":
            # uv's, of the folder itself
            continue
        first, _, rest = name.partition("/")
        # A folder that is not there yet is one unit.
        yield data + (name if first in present else first)
        for folder in environment.packages_folders:
            yield _below(folder, root) + name
        if first in {"bin", "Scripts"}:
            yield _below(paths["scripts"], root) + rest
        if first == "include":
            yield f"{data}include/site/python{environment.version}/{rest}"


def _keep_overwritten(
    names: Iterable[str],
    environment: ForeignEnvironment,
    reporter: Reporter,
) -> None:
    """Copy those of the files that are there and that no installer wrote to a dated folder."""
    root = environment.root
    overwritten = {name for name in names if (root / name).is_file()}
    if overwritten:
        overwritten -= recorded_paths(root, environment.packages_folders)
    if overwritten:
        date = time.strftime("%Y%m%d-%H%M%S")
        copies = undo_folder(environment, f".kept-{date}")
        for name in overwritten:
            _link(root / name, copies / name)
        text = f"{some(sorted(overwritten))}, which no installer wrote: in {copies}"
        reporter.notice("Kept", text)


def undo_folder(environment: ForeignEnvironment, state: str = "") -> Path:
    """Return the folder of the last proven change, or of another state, on the file system of the packages."""
    return environment.paths["purelib"] / f".gpuinstall{state}"


def _change(environment: ForeignEnvironment, units: Iterable[str]) -> UndoRecord:
    folder = undo_folder(environment, ".changing")
    return UndoRecord(environment, folder, tuple(sorted(units)))


def find_undo(environment: ForeignEnvironment) -> UndoRecord | None:
    """Return the last proven change that this user has made to an environment; None if there is none."""
    return _read_record(undo_folder(environment), environment)


def find_change(environment: ForeignEnvironment) -> UndoRecord | None:
    """Return the change of this user's that is not finished yet; None if there is none."""
    return _read_record(undo_folder(environment, ".changing"), environment)


def finish_undo(environment: ForeignEnvironment) -> bool:
    """Finish or put back what a run that was killed has left; return whether something was put back.

    Raises:
        UsageError: another user's run has left it, or it is unknown whose.
    """
    remove_path(undo_folder(environment, ".new"))
    change = find_change(environment)
    folder = undo_folder(environment, ".changing")
    if change and change.packages is None:
        change.undo()
        return True
    if change:
        change.keep()
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
    return False


def _discard(folder: Path, environment: ForeignEnvironment) -> None:
    """Remove a copy, under a name that the next run clears away: without its record it would be a stranger's."""
    if is_folder(folder):
        leaving = undo_folder(environment, ".new")
        folder.rename(leaving)
        remove_path(leaving)


def _read_record(folder: Path, environment: ForeignEnvironment) -> UndoRecord | None:
    """Return the record in a folder; None if there is none that this user has written for this environment."""
    with suppress(OSError, ValueError):
        text = read_document(folder / _RECORD, environment.root)
        if is_folder(folder) and is_vouched(*_signature(text, environment)):
            document = parse_json(text)
            return UndoRecord(
                environment,
                folder,
                units=tuple(document["units"]),
                packages=document["packages"],
            )
    return None


def _signature(text: str, environment: ForeignEnvironment) -> tuple[Path, str]:
    """Return the place of a record, and what this user's state folder has to say of that."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    return undo_folder(environment).resolve(), digest


def _packages_in(
    units: Collection[str], environment: ForeignEnvironment
) -> dict[str, InstalledPackage]:
    """Return the packages that have a file in the units, by name."""
    packages = {}
    for package in read_packages(environment.packages_folders):
        site = _below(package.record.parent, environment.root)
        first_parts = {site + file.path.partition("/")[0] for file in package.files}
        if not first_parts.isdisjoint(units):
            packages[package.name] = package
    return packages


def _files_of(packages: Iterable[InstalledPackage], root: Path) -> Iterator[str]:
    """Yield the files of packages, by their paths below the environment's root, without those outside."""
    for package in packages:
        for name in written_files(package, root):
            is_below = not name.startswith(("../", "/"))
            if is_below and _leads_inside((root / name).parent, root):
                yield name


# Of a package thousands of files lie in a few folders.
@cache
def _leads_inside(folder: Path, root: Path) -> bool:
    """Whether a folder lies in another one if its links are followed."""
    return folder.resolve().is_relative_to(root.resolve())


def _below(folder: Path, root: Path) -> str:
    """Return how the paths of what lies in a folder begin below the environment's root: empty, or with a slash at its end."""
    name = folder.relative_to(root).as_posix()
    return "" if name == "." else f"{name}/"


def _unit(name: str, sites: Iterable[str]) -> str:
    """Return what is copied for a file: the folder beside the packages that it lies in, else the file alone."""
    for site in sites:
        if name.startswith(site):
            first, _, _ = name.removeprefix(site).partition("/")
            return site + first
    return name


def _link(source: Path, destination: Path) -> None:
    """Give what lies at a path, if anything does, a second place, by links; a file that is there stays."""
    if is_folder(source):
        link_tree(source, destination)
    elif os.path.lexists(source):
        destination.parent.mkdir(parents=True, exist_ok=True)
        link_or_copy(source, destination)


def _remove(
    path: Path,
    root: Path,
    removable: Collection[str] | None,
) -> None:
    """Remove what lies at a path; raise OSError if it resists, as a file in use on Windows.

    Args:
        path: A file or a folder.
        root: The environment.
        removable: The files that go, besides those that Python compiled; None: all.
    """
    if is_folder(path):
        for child in list(path.iterdir()):
            _remove(child, root, removable)
        # Something in it may stay.
        with suppress(OSError):
            path.rmdir()
    elif os.path.lexists(path):
        name = path.relative_to(root).as_posix()
        if removable is None or name in removable or path.suffix == ".pyc":
            path.unlink()
