"""Which packages of a lock only the machine that made it can have."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuinstall.lock.lock import Lock


def unserved(lock: Lock) -> str:
    """Name the packages that no server has: they lie in a folder or a repository; empty where there are none."""
    served = {file.package for file in lock.files if file.url.startswith(("https:", "http:"))}
    return ", ".join(package.name for package in lock.pylock.packages if package.name not in served)
