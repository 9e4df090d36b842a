"""Remove files, but never through a link, a junction, or a mount.

A run locks a file in its temporary folder. The operating system releases the lock
even if the run is killed.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from os.path import isdir, isfile
from pathlib import Path
from time import time

from gpuinstall.base.files import retry, try_lock
from gpuinstall.base.owners import is_foreign

_MOUNTS = Path("/proc/self/mountinfo")
_OCTAL = r"\\([0-7]{3})"
"""The kernel's escape sequence for a blank or backslash in a mount point."""

_PREFIX = "gpuinstall-"
IN_USE = "in-use"
_MIN_AGE_S = 60
"""The minimum age in seconds of folders to remove.

A process may not have locked a younger folder yet.
"""


def is_link(path: Path | str) -> bool:
    """Return whether a path is a link or a Windows junction."""
    with suppress(OSError):
        status = os.lstat(path)
        # Python reports a junction as a folder.
        tag = getattr(status, "st_reparse_tag", 0)
        is_junction = tag == getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", -1)
        return stat.S_ISLNK(status.st_mode) or is_junction
    return False


def is_folder(path: Path) -> bool:
    """Return whether a path is a folder and not a link."""
    return isdir(path) and not is_link(path)


def find_mounts(folder: Path) -> frozenset[str]:
    """Return the mount points in a folder, including the folder itself.

    A disk, a folder, or a single file can be mounted.
    """
    mounts = _read_mounts()
    if not mounts:
        folders = (path for path, _, _ in os.walk(folder))
        return frozenset(filter(os.path.ismount, folders))
    # Only the kernel's table lists bind mounts of the same file system.
    real = os.path.realpath(folder)
    below = set()
    for place in mounts:
        if place == real or place.startswith(f"{real}/"):
            below.add(f"{folder}{place[len(real) :]}")
    return frozenset(below)


def _read_mounts() -> dict[str, str]:
    """Return the types of the mounted file systems by mount point."""
    table = ""
    # A container or chroot may have no /proc.
    with suppress(OSError):
        table = _MOUNTS.read_text("utf-8", "surrogateescape")
    mounts = {}
    for line in table.splitlines():
        mount, _, system = line.partition(" - ")
        escaped = mount.split(" ")[4]
        place = re.sub(_OCTAL, lambda code: chr(int(code[1], 8)), escaped)
        mounts[place] = system.partition(" ")[0]
    return mounts


def read_file_system_type(folder: Path) -> str:
    """Return the type of the file system that contains a folder, or ""."""
    mounts = _read_mounts()
    real = Path(os.path.realpath(folder))
    return next(
        (mounts[str(one)] for one in (real, *real.parents) if str(one) in mounts), ""
    )


def is_mount(folder: Path) -> bool:
    """Return whether a file system or a folder is mounted at a path."""
    return os.path.ismount(folder) or (
        isfile(_MOUNTS) and str(folder) in find_mounts(folder)
    )


def iter_files(folder: Path) -> Iterator[Path]:
    """Yield the files, links, and mount points in a folder tree."""
    return map(Path, _iter_entries(folder))


def _iter_entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    # Path.rglob fails below a depth of 1000.
    mounts = find_mounts(folder)
    folders = [str(folder)]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                is_below = entry.is_dir(follow_symlinks=False) and not (
                    entry.path in mounts or (os.name == "nt" and is_link(entry.path))
                )
                if is_below:
                    folders.append(entry.path)
                else:
                    yield entry


def tree_size(folder: Path) -> int:
    """Return the total size of a folder tree or file in bytes."""
    if not is_folder(folder):
        with suppress(OSError):
            return folder.lstat().st_size
        return 0
    size = 0
    # With Path, the 12,000 files of torch would take twice as long.
    for entry in _iter_entries(folder):
        with suppress(OSError):  # another process removed the file
            size += entry.stat(follow_symlinks=False).st_size
    return size


def move_contents(
    source: Path, target: Path, *, kept: Collection[str] = (), last: str = ""
) -> None:
    """Move all entries of a folder into another folder.

    A folder that cannot be renamed, such as one of a container image, is moved file by file.

    Args:
        source: The folder, which remains.
        target: The other folder, on the same file system.
        kept: The names of entries that are not moved.
        last: The name of the entry to move last.

    Raises:
        FileExistsError: Both folders have a file of the same name.
        OSError: A file cannot be moved.
    """
    for path in sorted(source.iterdir(), key=lambda path: path.name == last):
        new = target / path.name
        if path.name in kept:
            continue
        if not os.path.lexists(new):
            try:
                retry(path.rename, new)
            except OSError as error:
                if error.errno != errno.EXDEV or not is_folder(path):
                    raise
                import shutil  # slow to import

                new.mkdir()
                shutil.copystat(path, new)
            else:
                continue
        if not (is_folder(path) and is_folder(new)):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(new))
        move_contents(path, new)
        retry(path.rmdir)


def remove_file(path: Path) -> None:
    """Remove a file or a link. Ignore errors."""
    with suppress(OSError):
        retry(path.unlink, missing_ok=True)


def remove_path(path: Path) -> None:
    """Remove a file, a link, or a folder tree without mounts, if possible."""
    import shutil  # slow to import
    import subprocess

    with suppress(OSError):
        if is_link(path) and isdir(path) and os.name == "nt":
            retry(path.rmdir)
        elif not is_folder(path):
            retry(path.unlink, missing_ok=True)
        elif not find_mounts(path):
            try:
                with suppress(OSError):
                    retry(shutil.rmtree, path)
                # Remove the other files if one cannot be removed.
                shutil.rmtree(path, ignore_errors=True)
            except RecursionError:
                # A wheel can have a deeper tree than Python's recursion limit.
                subprocess.run(["rm", "-rf", path], check=False)


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """Remove temporary folders of killed runs, and yield a new one."""
    import tempfile

    remove_abandoned(parent)
    scratch = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    try:
        with (scratch / IN_USE).open("wb") as mark:
            with suppress(OSError):  # not all file systems support locks
                try_lock(mark.fileno())
            yield scratch
    finally:
        remove_path(scratch)


def remove_abandoned(parent: Path) -> None:
    """Remove this user's temporary folders that no process has locked."""
    for mark in parent.glob(f"{_PREFIX}*/{IN_USE}"):
        scratch = mark.parent
        with suppress(OSError):
            is_new = time() - mark.lstat().st_mtime < _MIN_AGE_S
            if is_new or not is_folder(scratch) or is_foreign(scratch):
                continue
            with mark.open("r+b") as opened:
                is_abandoned = try_lock(opened.fileno())
            if is_abandoned:
                remove_path(scratch)
