"""The user's own files in an environment that goes: no installer wrote them, or they were edited since."""

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
    """Remove an environment; the user's own files go into a dated folder.

    They are named, and so are the packages that pip or uv added, which go.

    Args:
        folder: The environment; of a link there the link alone is removed.
        kept: Where dated folders lie: nothing of ours removes them.
        trash: A folder on the same file system whose ``.discarded-…`` the next run removes, should this one be killed.
        reporter: Is told what stays, and where it is now.

    Returns:
        The bytes that were removed.

    Raises:
        UsageError: something is mounted in it.
        InstallationError: something cannot be moved; nothing is removed then.
    """
    if is_link(folder):
        remove_path(folder)
    if not os.path.lexists(folder):
        return 0
    mounts = sorted(mounts_in(folder))
    if mounts:
        raise UsageError(
            "mount-point",
            f"something is mounted at {mounts[0]}, and what is mounted is never removed",
            hint=f"umount {quoted(mounts[0])}   # then run it again",
        )
    with writing(folder):
        # Where no record says what was there, pip or uv installed it all.
        packages = added_packages(folder) if read_marker(folder) else ()
        # Windows renames no folder in which something is open, to its own name neither: nothing is moved out then.
        folder.rename(folder)
        # A folder of a lower layer of an image cannot be renamed: it is copied then.
        _keep(kept_paths(folder), folder, kept, reporter)
        size = size_of(folder)
        discarded = folder.rename(trash / f".discarded-{os.urandom(4).hex()}")
        remove_path(discarded)
    if packages:
        text = f"{', '.join(packages)}: added by pip or uv to {folder}"
        reporter.notice("Removed", text)
    return size


def kept_paths(folder: Path) -> list[str]:
    """Return the user's own files in an environment: those that no installer wrote, and edited ones."""
    paths = set(user_paths(folder))
    if is_environment(folder):
        paths |= _edited_inside(folder)
    return sorted(paths)


def _edited_inside(venv: Path) -> set[str]:
    """Return the edited files of an environment's packages; what lies behind a link is none of them."""
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
        paths: The files, by their paths in the environment.
        folder: The environment.
        kept: Where dated folders lie.
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
            text = f"{some(moved)}, which no installer wrote, or you have edited: {readable(size)}, now in {place}"
            reporter.notice("Kept", text)


def dated_name() -> str:
    """Return the name of a new folder for what is kept."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"


def dated_folder(kept: Path, name: str = "") -> Path:
    """Make a folder for what is kept.

    Args:
        kept: Where dated folders lie.
        name: Its name, which a journal may have said before; empty: a new one.

    Raises:
        InstallationError: A link or a file is in its place.
    """
    if os.path.lexists(kept) and not is_folder(kept):
        raise InstallationError(
            "not-writable",
            f"{kept}, for files of yours, is not a folder",
            hint=f"mv {quoted(kept)} {quoted(f'{kept}.old')}",
        )
    folder = kept / (name or dated_name())
    folder.mkdir(parents=True, exist_ok=True)
    return folder
