"""Remove environments and journals, and list the user's files in them."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gpuinstall.base.advice import Advice, Hint
from gpuinstall.base.environment_paths import JOURNAL, KEPT, WORK
from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.files import CLOSE_PROGRAMS, convert_write_errors, retry
from gpuinstall.base.removal import (
    find_mounts,
    is_folder,
    is_link,
    iter_files,
    remove_path,
    tree_size,
)
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.text import split_names
from gpuinstall.environments.environment import NAME
from gpuinstall.environments.ownership import find_user_paths


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
        UsageError: A file system is mounted below the folder.
        InstallationError: The folder cannot be moved (nothing is removed), or a file cannot be removed.
    """
    if is_link(folder):
        remove_path(folder)
    if not os.path.lexists(folder):
        return 0
    check_mounts(folder)
    size = tree_size(folder)
    # Report before the removal, which an interrupted command does not finish.
    for names in split_names(find_user_paths(folder) if files is None else files):
        text = f"{folder}, including {names} (created or modified by you)"
        reporter.notice("Removing", text)
    with convert_write_errors(folder):
        discarded = discard(folder, trash / f".discarded-{os.urandom(4).hex()}")
    work = discarded / WORK
    remaining = [file for file in iter_files(discarded) if work not in file.parents]
    if remaining:
        raise InstallationError(
            "not-removed",
            f"{remaining[0]} cannot be removed",
            hint=_create_removal_hint(discarded),
        )
    return size


def _create_removal_hint(folder: Path) -> tuple[Hint, ...]:
    if os.name == "nt":
        return (CLOSE_PROGRAMS,)
    note = "as root, if a file is immutable"
    return (
        Advice("chattr", ("-R", "-i", str(folder)), note=note),
        Advice("rm", ("-r", str(folder))),
    )


def check_mounts(folder: Path) -> None:
    """Check that nothing is mounted below a folder.

    Raises:
        UsageError: A file system is mounted in the folder.
    """
    mounts = sorted(find_mounts(folder) - {str(folder)})
    if mounts:
        raise UsageError(
            "mount-point",
            f"something is mounted at {mounts[0]}, which gpuinstall does not move or remove",
            hint=Advice("umount", (mounts[0],), note="then run it again"),
        )


def discard(folder: Path, discarded: Path) -> Path:
    """Rename and remove a folder, so that a kill leaves no part of it.

    A mounted folder, and one of a container image, cannot be renamed, and is emptied.
    Its journal is removed first, and its marker last.

    Args:
        folder: The folder.
        discarded: The new path. The next command removes it.

    Returns:
        The folder that contains the files that could not be removed.

    Raises:
        OSError: The folder cannot be renamed, for example because a file is open on Windows.
    """
    if not discarded.is_relative_to(folder):
        try:
            retry(folder.rename, discarded)
        except OSError as error:
            if error.errno not in {errno.EXDEV, errno.EBUSY}:
                raise
        else:
            remove_path(discarded)
            return discarded
    order = {JOURNAL: -1, NAME: 1}
    for path in sorted(folder.iterdir(), key=lambda path: order.get(path.name, 0)):
        if path.name not in KEPT or not is_folder(path):
            remove_path(path)
    with suppress(OSError):
        folder.rmdir()
    return folder
