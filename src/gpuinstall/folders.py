"""Folders that others may write to: whose they are, and a path below one."""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.errors import InstallationError, UsageError
from gpuinstall.shell import quoted

if TYPE_CHECKING:
    from gpuinstall.reporter import Reporter

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def check_shared(folder: Path, reporter: Reporter) -> None:
    """Raise UsageError if every user can write to a folder or to what it holds, with its owner if that is another user."""
    if os.name != "posix" or not folder.is_dir():
        return
    with os.scandir(folder) as entries:
        inner = [Path(entry) for entry in entries if not entry.is_symlink()]
    for path in (folder, *inner):
        if path.stat().st_mode & stat.S_IWOTH:
            message = (
                f"everyone can write to {path}, and so change what is installed and run from it"
            )
            hint = f"chmod o-w {quoted(path)}   # or use a new folder: --run-dir"
            raise UsageError("unsafe-run-folder", message, hint=hint)
    owner = folder.stat().st_uid
    if owner not in {0, os.getuid()}:
        reporter.warn(
            f"{folder} belongs to another user (uid {owner}), who can change what it holds"
        )


def own_folder(path: Path, *, make: bool = True) -> Path:
    """A folder that nobody else may write to, made on request; raise InstallationError for another user's."""
    with suppress(OSError):
        if make:
            path.mkdir(
                mode=0o700,
                parents=True,
                exist_ok=True,
            )
        status = path.lstat()
        private = not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and private:
            return path
    message = f"{path} cannot be used: it is not a folder that only you can write to"
    raise InstallationError(
        "not-writable", message, hint="Use another folder: --root DIR, or GPUINSTALL_SCRATCH"
    )


def inside(folder: Path, *names: str) -> Path:
    """The path of a file below ``folder``; raise ValueError for a name that leads elsewhere, OSError for a link."""
    path = folder
    for name in names:
        if name in {"", ".", ".."} or Path(name).name != name or _CONTROL.search(name):
            raise ValueError(f"{name!r} is not the name of a file")
        path = path / name
        check_no_link(str(path))
    return path


def check_no_link(path: str) -> None:
    """Raise OSError for a link."""
    if os.path.islink(path):  # noqa: PTH114  of the records of a fleet there are hundreds of thousands
        raise OSError(errno.ELOOP, "it is a link", path)
