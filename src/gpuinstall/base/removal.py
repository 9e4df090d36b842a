"""Removing files: never through a link, a junction or a mount, whatever they lead to."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from os.path import isdir
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_OCTAL = r"\\([0-7]{3})"
"""How the kernel writes a space, a tab, a line break and a backslash in the path of a mount."""


def is_link(path: Path | str) -> bool:
    """Whether a link lies there, or a junction of Windows, which Python takes for a folder."""
    with suppress(OSError):
        status = os.lstat(path)
        tag = getattr(status, "st_reparse_tag", 0)
        is_junction = tag == getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", -1)
        return stat.S_ISLNK(status.st_mode) or is_junction
    return False


def is_folder(path: Path) -> bool:
    """Whether a folder lies there: no link to one."""
    return isdir(path) and not is_link(path)


def mounts_in(folder: Path) -> frozenset[str]:
    """Return the paths in a folder, or its own, at which something else is mounted: a disk, a folder, a single file.

    Args:
        folder: The folder; the paths begin as it is written.
    """
    table = ""
    # A container or chroot may have no /proc.
    with suppress(OSError):
        table = _MOUNTS.read_text("utf-8", "surrogateescape")
    if not table:
        folders = (path for path, _, _ in os.walk(folder))
        return frozenset(filter(os.path.ismount, folders))
    # A folder of the same file system may be mounted too: only the kernel's table tells.
    real = os.path.realpath(folder)
    below = set()
    for line in table.splitlines():
        escaped = line.split(" ")[4]
        place = re.sub(_OCTAL, lambda code: chr(int(code[1], 8)), escaped)
        if place == real or place.startswith(f"{real}/"):
            below.add(f"{folder}{place[len(real) :]}")
    return frozenset(below)


def files_below(folder: Path) -> Iterator[Path]:
    """Yield the files and links of a folder of any depth that a path reaches, and what is mounted there as one of them.

    pathlib's way ends at a depth of 1000.
    """
    mounts = mounts_in(folder)
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
                    yield Path(entry)


def size_of(folder: Path) -> int:
    """Return the bytes of a folder tree or a file."""
    files = files_below(folder) if is_folder(folder) else [folder]
    size = 0
    for file in files:
        # Another process may remove it meanwhile.
        with suppress(OSError):
            size += file.lstat().st_size
    return size


def remove_file(path: Path) -> None:
    """Remove a file or a link, and no folder; what resists is left."""
    with suppress(OSError):
        path.unlink(missing_ok=True)


def remove_path(path: Path) -> None:
    """Remove what lies there: of a link or a junction itself alone, and no folder in which something is mounted.

    What resists is left.
    """
    import shutil
    import subprocess

    with suppress(OSError):
        if is_link(path) and isdir(path) and os.name == "nt":
            path.rmdir()
        elif not is_folder(path):
            path.unlink(missing_ok=True)
        elif not mounts_in(path):
            try:
                shutil.rmtree(path, ignore_errors=True)
            except RecursionError:
                # A wheel may hold folders that are nested deeper than Python goes.
                subprocess.run(["rm", "-rf", path], check=False)
