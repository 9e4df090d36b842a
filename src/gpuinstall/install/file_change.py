"""Determine which files an installation writes and removes."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from itertools import filterfalse
from os.path import isdir, islink
from pathlib import Path

from gpuinstall.base.advice import Advice, make_change
from gpuinstall.base.environment_paths import (
    EnvironmentPaths,
    interpreter,
    relative_prefix,
    unused_venv_option,
)
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import create_link_error, leads_outside
from gpuinstall.base.removal import find_mounts, is_folder, is_link, iter_files
from gpuinstall.base.values import Value, replace
from gpuinstall.environments.damage import find_intact_files
from gpuinstall.environments.environment import NAME, package_versions
from gpuinstall.environments.guard import GUARD_FILES
from gpuinstall.environments.ownership import find_own_files
from gpuinstall.environments.packages import (
    InstalledPackage,
    find_written_files,
    read_packages,
)
from gpuinstall.environments.running import Owner
from gpuinstall.install.journal import Journal


class Change(Value):
    """Files that an installation adds to an environment or removes from it."""

    place: EnvironmentPaths
    added: Mapping[str, Path]
    """The new files with their paths in the staging folder."""
    removed: frozenset[str]
    """The files to remove without a replacement."""
    journal: Journal
    """The journal, which is written before any file changes."""
    inspected: Mapping[str, tuple[int, ...]]
    """The size and modification time of each file to replace or remove."""

    @property
    def names(self) -> set[str]:
        """The names of all added and removed files."""
        return {*self.added, *self.removed}


def plan_change(
    place: EnvironmentPaths,
    *,
    added: Mapping[str, Path],
    after: Mapping[str, str],
    old_packages: Collection[InstalledPackage],
    own: Collection[str],
    locks: Mapping[str, tuple[str, ...]],
    is_rollback: bool = False,
) -> Change:
    """Determine which files of an environment to write and to remove.

    Args:
        place: The environment.
        added: The new files with their paths in the staging folder.
        after: The versions of the new packages by name.
        old_packages: The packages to remove or replace.
        own: The files that only gpuinstall writes. Old ones are removed. Settings of pip that the user edited are kept.
        locks: The previous and the new text of each lock file of the project, empty if missing.
        is_rollback: Whether the change undoes the previous one.

    Raises:
        UsageError: A file cannot be replaced, or its path leads through a link or a mount.
    """
    unmodified = find_own_files(place.root)
    settings = {name for name in {*own} - unmodified if Path(name).name in GUARD_FILES}
    edited = {name for name in settings if os.path.lexists(place.root / name)}
    added = {name: added[name] for name in added.keys() - edited}
    own = {*own} - edited
    # A RECORD can list files outside the environment.
    recorded = find_recorded_files(old_packages, place.root)
    # A folder at the path of a recorded file belongs to the user.
    present = {
        name
        for name in {*added, *recorded, *own}
        if os.path.lexists(place.root / name) and not is_folder(place.root / name)
    }
    shared = _find_shared_files(
        place, old_packages, (present & recorded) - added.keys()
    )
    present -= shared
    removed = frozenset(present - added.keys())
    inspected = {name: read_size_and_mtime(place.root / name) for name in present}
    check_paths(place, added, {*present, *own}, removed)
    before = package_versions(old_packages)
    packages = sorted({*before, *after})
    marker = NAME if os.path.lexists(place.root / NAME) else ""
    journal = Journal(
        Owner.here(),
        added={name: read_size_and_mtime(source) for name, source in added.items()},
        own=tuple(sorted({*own, *filter(None, [marker])})),
        locks=locks,
        is_rollback=is_rollback,
        packages={
            name: (before.get(name, ""), after.get(name, "")) for name in packages
        },
        modified=tuple(
            sorted(
                _find_modified_files(place, added, old_packages, present - unmodified)
            )
        ),
    )
    return Change(place, added, removed, journal, inspected)


_UNRECORDED = re.compile(r"/RECORD\Z|\.pyc\Z|\.egg-(info|link)(/|\Z)")


def _find_modified_files(
    place: EnvironmentPaths,
    added: Mapping[str, Path],
    old_packages: Collection[InstalledPackage],
    present: Iterable[str],
) -> set[str]:
    """Return the files whose content differs from every RECORD entry.

    Args:
        place: The environment.
        added: The new files with their paths in the staging folder.
        old_packages: The packages to remove or replace.
        present: The existing files to remove or replace.
    """
    # RECORD does not list modules that Python compiled, nor itself after a power cut. Legacy packages have none.
    names = {name for name in present if not _UNRECORDED.search(name)}
    packages = [*old_packages, *read_packages(place.find_packages_folders())]
    # Replacing a file with an identical file loses no data.
    return {
        name
        for name in names - find_intact_files(packages, place.root, names)
        if not (name in added and is_same_file(place.root / name, added[name]))
    }


def read_size_and_mtime(path: Path) -> tuple[int, ...]:
    """Return a file's size and modification time, which show later edits."""
    status = path.lstat()
    return (status.st_size, status.st_mtime_ns)


def find_staged_files(
    packages: Iterable[InstalledPackage], folder: Path, place: EnvironmentPaths
) -> dict[str, Path]:
    """Map the final path of each staged package file to its staged path.

    Args:
        packages: The packages.
        folder: The staging folder, with the layout of a virtual environment.
        place: The environment, which may have a different layout.
    """
    files = {}
    for package in packages:
        for name in find_written_files(package, folder):
            source = folder / name
            if not leads_outside(name) and os.path.lexists(source):
                files[place.path_below_root(name)] = source
    return files


def _find_shared_files(
    place: EnvironmentPaths,
    old_packages: Collection[InstalledPackage],
    names: Collection[str],
) -> set[str]:
    """Return the files that packages share with packages that remain.

    Args:
        place: The environment.
        old_packages: The packages to remove or replace.
        names: The files of these packages, relative to the environment's root.
    """
    shared = set[str]()
    if not names:
        return shared
    records = {package.record for package in old_packages}
    for package in read_packages(place.find_packages_folders()):
        if package.record not in records:
            shared |= find_written_files(package, place.root).keys() & set(names)
    return shared


def find_recorded_files(packages: Iterable[InstalledPackage], root: Path) -> set[str]:
    """Return the files of packages in an environment, relative to its root.

    For a package without a RECORD, return its metadata files.
    """
    names = set[str]()
    for package in packages:
        names.update(filterfalse(leads_outside, find_written_files(package, root)))
        if not package.read_record():
            names.update(
                file.relative_to(root).as_posix()
                for file in package.find_metadata_files()
            )
    return names


def check_paths(
    place: EnvironmentPaths,
    added: Iterable[str],
    present: Iterable[str],
    removed: Collection[str],
) -> None:
    """Check that files can be replaced and removed.

    Args:
        place: The environment.
        added: The new files.
        present: The files that are replaced or removed.
        removed: The files to remove without a replacement.

    Raises:
        UsageError: A path leads out of the environment, or a new file conflicts with a folder.
    """
    check_inside(place, {*added, *present})
    seen = set[str]()
    problems = {}
    for name in added:
        blocking = _find_blocking_path(place.root, name, removed, seen)
        if blocking:
            kind = "folder" if is_folder(blocking) else "file"
            problems[blocking] = (
                f"{place.root / name} cannot be written: {blocking} is a {kind}"
            )
    if problems:
        raise create_path_error(problems)


def create_path_error(problems: Mapping[Path, str]) -> UsageError:
    """Return the error for paths of the user where files would be written.

    Args:
        problems: The message by path.
    """
    message, *others = problems.values()
    moves = [Advice("mv", (str(path), f"{path}.old")) for path in problems]
    moves[-1] = replace(moves[-1], note="then run it again")
    return UsageError(
        "path-taken",
        message,
        evidence="\n".join(others),
        hint=tuple(moves),
    )


def _find_blocking_path(
    root: Path, name: str, removed: Collection[str], seen: set[str]
) -> Path | None:
    """Return an existing file or folder that prevents writing a new file.

    Args:
        root: The environment.
        name: The new file.
        removed: The files to remove before it is written.
        seen: The folders that were already checked. The function adds the folders it checks.
    """
    path = root / name
    if is_folder(path):
        files = (file.relative_to(root).as_posix() for file in iter_files(path))
        if not all(file in removed or _is_compiled(file, removed) for file in files):
            return path
    folder = posixpath.dirname(name)
    while folder and folder not in seen:
        seen.add(folder)
        path = root / folder
        if os.path.lexists(path) and not isdir(path) and folder not in removed:
            return path
        folder = posixpath.dirname(folder)
    return None


def _is_compiled(name: str, files: Collection[str]) -> bool:
    """Return whether a file is a compiled module of one of these files."""
    folder, _, file = name.rpartition("/__pycache__/")
    module = f"{folder}/{file.partition('.')[0]}.py"
    return file.endswith(".pyc") and module in files


def check_inside(place: EnvironmentPaths, names: Collection[str]) -> None:
    """Check that no file is behind a mount or a link out of the environment.

    Raises:
        UsageError: A file is behind a mount or a link out of the environment.
    """
    path = find_way_outside(place.root, names)
    if path is None:
        return
    why = "the change would write or remove files outside the environment"
    if is_link(path):
        error = create_link_error(path, why)
        needed = (interpreter(place.venv), *place.find_packages_folders())
        if any(one.is_relative_to(path) for one in needed):
            # The environment needs the target of this link.
            venv = unused_venv_option(place.folder)
            change = make_change(*venv, note="another folder", without=("--into",))
            error.fixes = (change,)
        raise error
    raise UsageError(
        "leads-outside",
        f"something is mounted at {path}",
        why=why,
        hint=Advice("umount", (str(path),), note="then run it again"),
    )


def find_way_outside(root: Path, names: Collection[str]) -> Path | None:
    """Return a link or mount through which a file is outside an environment.

    A link at the path of the file itself is replaced, not followed.

    Args:
        root: The environment.
        names: The files, relative to it.
    """
    real_root = root.resolve()
    folders = set[str]()
    for name in names:
        folder = posixpath.dirname(name)
        while folder and folder not in folders:
            folders.add(folder)
            folder = posixpath.dirname(folder)
    for path in (root / folder for folder in sorted(folders)):
        if is_link(path) and not path.resolve().is_relative_to(real_root):
            return path
    for mount in find_mounts(root) - {str(root)}:
        if relative_prefix(Path(mount), root).removesuffix("/") in {*folders, *names}:
            return Path(mount)
    return None


def is_same_file(path: Path, other: Path) -> bool:
    """Return whether two paths are the same file or have the same content."""
    with suppress(OSError):
        if os.path.samestat(path.lstat(), other.lstat()):
            return True
        if islink(path) or islink(other):
            return False
        from filecmp import cmp

        return cmp(path, other, shallow=False)
    return False
