"""Remove environments and journals, and list the user's files in them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from gpuinstall.base.environment_paths import packages_folders
from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.files import convert_write_errors
from gpuinstall.base.removal import (
    find_mounts,
    is_link,
    iter_files,
    remove_path,
    tree_size,
)
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.shell import quote_word
from gpuinstall.base.text import split_names
from gpuinstall.environments.damage import find_intact_files
from gpuinstall.environments.environment import find_modified_scripts
from gpuinstall.environments.ownership import (
    find_recorded_paths,
    find_user_paths,
    is_environment,
)
from gpuinstall.environments.packages import read_packages


def discard_folder(
    folder: Path,
    trash: Path,
    reporter: Reporter,
    files: Sequence[str] | None = None,
) -> int:
    """Remove an environment or a journal, and report the user's files in it.

    Args:
        folder: The environment or the journal. If it is a link, only the link is removed.
        trash: A folder on the same file system. If this command is killed, the next one removes its ``.discarded-…`` folder.
        reporter: Reports the user files before they are removed.
        files: The user's files, relative to the folder; None: find them.

    Returns:
        The number of removed bytes.

    Raises:
        UsageError: A file system is mounted in the folder.
        InstallationError: The folder cannot be moved (nothing is removed), or a file cannot be removed.
    """
    if is_link(folder):
        remove_path(folder)
    if not os.path.lexists(folder):
        return 0
    mounts = sorted(find_mounts(folder))
    if mounts:
        raise UsageError(
            "mount-point",
            f"something is mounted at {mounts[0]}, which gpuinstall does not remove",
            hint=f"umount {quote_word(mounts[0])}   # then run it again",
        )
    size = tree_size(folder)
    # Report before the removal, which an interrupted command does not finish.
    for names in split_names(find_user_files(folder) if files is None else files):
        text = f"{folder}, including {names} (created or modified by you)"
        reporter.notice("Removing", text)
    with convert_write_errors(folder):
        # On Windows, this fails if a file is open.
        discarded = folder.rename(trash / f".discarded-{os.urandom(4).hex()}")
    remove_path(discarded)
    remaining = list(iter_files(discarded))
    if remaining:
        raise InstallationError(
            "not-removed",
            f"{remaining[0]} cannot be removed",
            why="it is immutable, or a program uses it",
            hint=f"chattr -R -i {quote_word(discarded)}   # as root, if a file is immutable\n"
            f"rm -r {quote_word(discarded)}",
        )
    return size


def find_user_files(folder: Path) -> list[str]:
    """Return the files in an environment that the user added or modified."""
    names = set(find_user_paths(folder))
    if is_environment(folder):
        # Files behind links are not removed.
        files = {file.relative_to(folder).as_posix() for file in iter_files(folder)}
        folders = packages_folders(folder)
        recorded = find_recorded_paths(folder, folders) & files
        names |= recorded - find_intact_files(read_packages(folders), folder, recorded)
        names |= find_modified_scripts(folder)
    return sorted(names)
