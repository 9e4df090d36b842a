"""The copy of an environment in which it is changed: links to all that stays as it is."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.base.environment_paths import packages_folders
from gpuinstall.base.errors import InstallationError
from gpuinstall.base.files import remove_path
from gpuinstall.environments.packages import read_packages
from gpuinstall.environments.stamp import file_stamp
from gpuinstall.lock.declaration import PROJECT_FILES

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuinstall.install.inspection import ExistingEnvironment
    from gpuinstall.lock.fit import Fit
    from gpuinstall.lock.lock import Lock

COMMAND_FOLDERS = ("bin", "Scripts")
SMALL = 65_536
"""The bytes up to which a command is a script, and copied."""


def unchanged_packages(existing: ExistingEnvironment, fit: Fit) -> frozenset[str]:
    """Return the packages that are to stay as they are; none if torch or Python changes, as all depend on them.

    None either if a package that goes or moves shares files with one that stays, or has no RECORD to be uninstalled by:
    all are installed in their order then.
    """
    lock, new = existing.lock, fit.lock
    if lock is None or lock.python != fit.choice.python or not _can_be_copied(existing):
        return frozenset()
    unchanged = set()
    for name, version in new.versions.items():
        if name in lock.addresses:
            # What comes from a folder or a repository has no hash, and may be another by now.
            continue
        is_same_version = existing.packages.get(name) == version == lock.versions.get(name)
        if is_same_version and lock.hashes_by_package[name] & new.hashes_by_package[name]:
            unchanged.add(name)
    if "torch" not in unchanged:
        return frozenset()
    before = _editable_folders(lock, existing.paths.folder)
    for name, folder in _editable_folders(new, existing.paths.folder).items():
        if before.get(name) == folder and _is_built_since(folder, existing.built_ns):
            unchanged.add(name)
    leaving = leaving_packages(existing, unchanged)
    if leaving and not _can_leave(existing.paths.venv, leaving):
        return frozenset()
    return frozenset(unchanged)


def _can_be_copied(existing: ExistingEnvironment) -> bool:
    """Whether a copy of an environment would run, and change nothing in the environment itself."""
    if not existing.made_here or not existing.has_python or existing.changed_build:
        return False
    venv = existing.paths.venv.resolve()
    # A link to packages elsewhere would lead there from the copy too.
    return all(folder.resolve().is_relative_to(venv) for folder in packages_folders(venv))


def leaving_packages(existing: ExistingEnvironment, unchanged: Collection[str]) -> list[str]:
    """Return what has to be taken out of a copy of an environment, in the order of the names."""
    # pip belongs to no lock, and every environment has one.
    return sorted(existing.packages.keys() - {*unchanged, "pip"})


def _can_leave(venv: Path, leaving: Collection[str]) -> bool:
    """Whether packages can be uninstalled: each has a RECORD, and none has recorded a file of one that stays."""
    going = set[str]()
    staying = set[str]()
    for package in read_packages(packages_folders(venv)):
        is_leaving = package.name in leaving
        if is_leaving and not package.record_text:
            return False
        files = going if is_leaving else staying
        files.update(file.path for file in package.files)
    return going.isdisjoint(staying)


def _editable_folders(lock: Lock, folder: Path) -> dict[str, Path]:
    """Return the folder of each editable package of a lock that lies in ``folder``."""
    folders = {}
    for package in lock.pylock.packages:
        if package.directory and package.directory.editable:
            folders[str(package.name)] = (folder / package.directory.path).resolve()
    return folders


def _is_built_since(project: Path, built_ns: int) -> bool:
    """Whether a project was built after the last change of the files for which uv builds it anew."""
    files = [project / name for name in PROJECT_FILES]
    return all(file_stamp(str(file))[1] <= built_ns for file in files)


def copy_environment(venv: Path, copy: Path) -> None:
    """Make a copy of an environment, by links: the user's own files are in both.

    Installers and Python replace a file, and never write into one that is there, but for what is small and lies in the
    environment itself or with its commands: that is copied.

    Raises:
        InstallationError: something in it cannot be linked, nor copied.
    """
    try:
        shutil.copytree(venv, copy, symlinks=True, copy_function=_link)
    except (OSError, RecursionError) as error:
        remove_path(copy)
        reason = error.args[0][0][2] if isinstance(error, shutil.Error) else error
        raise InstallationError(
            "not-copied",
            f"{venv} cannot be copied: {reason}",
            why="it is changed in a copy, so that it stays as it is until the change is proven",
            hint="Move the file out of the environment; then run it again",
        ) from None


def _link(source: str, destination: str) -> None:
    folder, name = os.path.split(source)
    is_written_in_place = name == "pyvenv.cfg" or os.path.basename(folder) in COMMAND_FOLDERS
    if not is_written_in_place or os.path.getsize(source) > SMALL:
        # A file system without links, or too many links to this file.
        with suppress(OSError):
            os.link(source, destination)
            return
    shutil.copy2(source, destination)
