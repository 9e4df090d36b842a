"""The compiled modules of what a proof loads, kept for this user.

Python compiles a thousand modules before ``import torch`` ends, half of the first proof's time on a CPU. A fresh
environment gets those that an earlier proof of the very same packages has left. Python itself sees by the time and size
of a module whether its bytecode is right.
"""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.base.files import own_cache_folder, remove_path
from gpuinstall.environments.environment import packages_called
from gpuinstall.environments.packages import bytecode_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuinstall.environments.packages import InstalledPackage

MOST_PACKAGES = 100
"""How many stay, those used last: torch's has 30 MB."""


def keep_bytecode(venv: Path, names: Collection[str]) -> None:
    """Keep the bytecode of packages of an environment; a cache that cannot be written is no fault."""
    if os.name != "posix":
        return
    with suppress(OSError):
        root = _root()
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_private(root)
        for package in packages_called(names, venv):
            _link_compiled(package, package.record.parent, _folder(package))
        folders = root.glob(f"*-{'[0-9a-f]' * 32}")
        by_use = sorted(folders, key=lambda folder: folder.stat().st_mtime)
        for folder in by_use[:-MOST_PACKAGES]:
            remove_path(folder)


def link_bytecode(venv: Path, names: Collection[str]) -> None:
    """Give packages of a fresh environment the bytecode that was kept of them."""
    if os.name != "posix":
        return
    # What Python runs comes from no folder that another user can write to.
    with suppress(OSError):
        _check_private(_root())
        for package in packages_called(names, venv):
            kept = _folder(package)
            if kept.is_dir():
                os.utime(kept)
                _link_compiled(package, kept, package.record.parent)


def _root() -> Path:
    return own_cache_folder() / "bytecode"


def _check_private(folder: Path) -> None:
    """Raise PermissionError for a folder that another user can write to."""
    status = folder.lstat()
    is_private = not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if not (stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and is_private):
        raise PermissionError(f"{folder} is not this user's alone")


def _folder(package: InstalledPackage) -> Path:
    digest = hashlib.sha256(package.record_text.encode()).hexdigest()[:32]
    return _root() / f"{package.name}-{digest}"


def _link_compiled(
    package: InstalledPackage,
    source: Path,
    destination: Path,
) -> None:
    """Link the bytecode of a package's recorded modules from one folder to another, if it is missing."""
    paths = list(bytecode_of(package, source))
    for folder in {path.rpartition("/")[0] for path in paths}:
        (destination / folder).mkdir(parents=True, exist_ok=True)
    for path in paths:
        # Joined as text: two Paths for each of a thousand take longer than its link.
        with suppress(FileExistsError):
            os.link(f"{source}/{path}", f"{destination}/{path}")
