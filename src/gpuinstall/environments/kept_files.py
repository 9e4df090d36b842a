"""Removal of environments, except the user's own and edited files."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from gpuinstall.base.environment_paths import packages_folders
from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.files import writing
from gpuinstall.base.removal import (
    files_below,
    is_folder,
    is_link,
    mounts_in,
    remove_path,
    size_of,
)
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.shell import quoted
from gpuinstall.base.text import readable, some
from gpuinstall.environments.damage import edited_paths
from gpuinstall.environments.environment import added_packages, read_marker
from gpuinstall.environments.ownership import is_environment, user_paths
from gpuinstall.environments.packages import read_packages


def remove_environment(
    folder: Path,
    kept: Path,
    trash: Path,
    reporter: Reporter,
) -> int:
    """Remove an environment, and move the user's own files to a dated folder.

    Args:
        folder: The environment. If it is a link, only the link is removed.
        kept: The parent of dated folders, which gpuinstall never removes.
        trash: A folder on the same file system. If this run is killed, the next one removes its ``.discarded-…``.
        reporter: Reports the kept files, and the packages that pip or uv had added.

    Returns:
        The number of removed bytes.

    Raises:
        UsageError: A file system is mounted in it.
        InstallationError: A file cannot be moved. Nothing is removed.
    """
    if is_link(folder):
        remove_path(folder)
    if not os.path.lexists(folder):
        return 0
    mounts = sorted(mounts_in(folder))
    if mounts:
        raise UsageError(
            "mount-point",
            f"something is mounted at {mounts[0]}, which gpuinstall does not remove",
            hint=f"umount {quoted(mounts[0])}   # then run it again",
        )
    with writing(folder):
        packages = added_packages(folder) if read_marker(folder) else ()
        # On Windows, this fails if a file is open, before anything is moved.
        folder.rename(folder)
        # This copies a folder of a lower layer of a container image, which cannot be renamed.
        _keep(kept_paths(folder), folder, kept, reporter)
        size = size_of(folder)
        discarded = folder.rename(trash / f".discarded-{os.urandom(4).hex()}")
        remove_path(discarded)
    if packages:
        text = f"{', '.join(packages)}: added by pip or uv to {folder}"
        reporter.notice("Removed", text)
    return size


def kept_paths(folder: Path) -> list[str]:
    """Return the user's own files in an environment, and edited files."""
    paths = set(user_paths(folder))
    if is_environment(folder):
        paths |= _edited_inside(folder)
    return sorted(paths)


def _edited_inside(venv: Path) -> set[str]:
    """Return the edited files of packages, except files behind links."""
    files = {file.relative_to(venv).as_posix() for file in files_below(venv)}
    packages = read_packages(packages_folders(venv))
    return edited_paths(packages, venv) & files


def _keep(
    paths: Sequence[str],
    folder: Path,
    kept: Path,
    reporter: Reporter,
) -> None:
    """Move the user's files into a dated folder, and report them.

    Args:
        paths: The files, relative to the environment.
        folder: The environment.
        kept: The parent of dated folders.
        reporter: Reports the moved files.
    """
    if not paths:
        return
    place = dated_folder(kept) / folder.name
    size = 0
    moved = []
    try:
        for path in paths:
            bytes_of_path = size_of(folder / path)
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.move(folder / path, place / path)
            size += bytes_of_path
            moved.append(path)
    finally:
        if moved:
            text = f"{some(moved)} (created or edited by you): {readable(size)}, now in {place}"
            reporter.notice("Kept", text)


def dated_name() -> str:
    """Return a new name for a folder of kept files."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"


def dated_folder(kept: Path, name: str = "") -> Path:
    """Create a folder for kept files.

    Args:
        kept: The parent of dated folders.
        name: The name, if a journal already has it.

    Raises:
        InstallationError: ``kept`` is a link or file.
    """
    if os.path.lexists(kept) and not is_folder(kept):
        raise InstallationError(
            "not-writable",
            f"{kept}, the folder for kept files, is not a folder",
            hint=f"mv {quoted(kept)} {quoted(f'{kept}.old')}",
        )
    folder = kept / (name or dated_name())
    folder.mkdir(parents=True, exist_ok=True)
    return folder
