"""An environment that goes; one that has files of the user's is kept whole, or they are left where they were.

::

    leaving    work/.leaving-…     the environment, out of the way in one stroke
    kept       venv.kept/<date>/   the environment, if it has files of the user's: nothing of ours removes it
    discarded  work/.discarded-…   if it has none

A run that dies in between is finished by the next one.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.files import is_folder, remove_file, remove_path, unwritable
from gpuinstall.base.shell import quoted
from gpuinstall.base.text import some
from gpuinstall.environments.environment import added_packages
from gpuinstall.environments.ownership import left_paths, only_copies

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpuinstall.base.environment_paths import EnvironmentPaths
    from gpuinstall.base.reporter import Reporter

_LEAVING = re.compile(r"\.leaving-[0-9a-f]{8}")
_DISCARDED = re.compile(r"\.discarded-[0-9a-f]{8}")


def dispose(
    folder: Path,
    paths: EnvironmentPaths,
    reporter: Reporter,
    *,
    leave_user_files: bool = False,
) -> None:
    """Delete an environment; one that has files of the user's is kept whole in a dated folder, and they are named.

    Args:
        folder: the environment; a link there is removed, and not what it leads to.
        paths: beside which environment it is kept.
        reporter: is told of them, and of the packages that the user added.
        leave_user_files: puts the user's own files back where they were.

    Raises:
        InstallationError: something cannot be moved; nothing is deleted then.
    """
    if folder.is_symlink():
        remove_file(folder)
    if not os.path.lexists(folder):
        return
    try:
        leaving = folder.rename(paths.work / f".leaving-{os.urandom(4).hex()}")
        _take_apart(leaving, folder, paths, reporter, leave_user_files=leave_user_files)
    except OSError as error:
        raise unwritable(folder, error) from None


def finish_disposals(paths: EnvironmentPaths, reporter: Reporter) -> None:
    """Go on with the environments that a run was disposing of when it was killed; raise OSError."""
    for entry in sorted(paths.work.iterdir()):
        if not is_folder(entry):
            continue
        if _LEAVING.fullmatch(entry.name):
            _take_apart(entry, paths.previous, paths, reporter, leave_user_files=False)
        elif _DISCARDED.fullmatch(entry.name):
            remove_path(entry)


def discard(folder: Path) -> None:
    """Delete an environment of ours that nothing of the user's is in; what resists is tried again by the next run."""
    with suppress(FileNotFoundError):
        discarded = folder.rename(folder.with_name(f".discarded-{os.urandom(4).hex()}"))
        remove_path(discarded)


def _take_apart(
    leaving: Path,
    folder: Path,
    paths: EnvironmentPaths,
    reporter: Reporter,
    *,
    leave_user_files: bool,
) -> None:
    """Move the user's own files out of what was ``folder``, and delete the rest; raise OSError."""
    names = left_paths(leaving, paths.venv)
    copies = only_copies(leaving)
    reason = ""
    if copies:
        reason = f"it has the only copy of {', '.join(copies)}"
    elif names and not leave_user_files:
        reason = f"{some(names)} in it, which no installer wrote"
    elif names:
        try:
            _move_all(names, leaving, folder)
            reporter.notice("Kept", f"{some(names)}, which no installer wrote: in {folder}")
        except OSError as error:
            # What belongs to another user cannot be moved out of our folder, but along with it.
            reason = f"some files in it cannot be moved: {error.strerror}"
    if reason:
        kept = leaving.rename(_dated_folder(paths) / folder.name)
        reporter.notice("Kept", f"{kept}, complete: {reason}")
        return
    packages = added_packages(leaving)
    if packages:
        text = f"{', '.join(packages)}: added by pip or uv to {folder}"
        reporter.notice("Removed", text)
    discard(leaving)


def _move_all(
    names: Sequence[str],
    source: Path,
    destination: Path,
) -> None:
    for name in names:
        target = destination / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, "a file of that name is there", str(target))
        (source / name).rename(target)


def _dated_folder(paths: EnvironmentPaths) -> Path:
    """Make a new folder for what is kept; raise InstallationError if a link or a file is in its place."""
    if os.path.lexists(paths.kept) and not is_folder(paths.kept):
        raise InstallationError(
            "not-writable",
            f"{paths.kept}, for files of yours, is not a folder",
            hint=f"mv {quoted(paths.kept)} {quoted(f'{paths.kept}.old')}",
        )
    date = time.strftime("%Y%m%d-%H%M%S")
    for number in itertools.count(1):
        folder = paths.kept / (date if number == 1 else f"{date}-{number}")
        with suppress(FileExistsError):
            folder.mkdir(parents=True)
            break
    return folder
