"""What a node has beside its GPUs: room for environments, its network, the programs that unpack an image."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.errors import InstallationError

if TYPE_CHECKING:
    from collections.abc import Mapping

_NETWORK, _INFINIBAND = Path("/sys/class/net"), Path("/sys/class/infiniband")
_PROGRAMS = ("mksquashfs", "unsquashfs")
_PLACES = ("/local_scratch", "/localscratch", "/scratch/local", "/local", "/scratch", "/var/tmp")  # noqa: S108
_SHARED = frozenset(
    {"nfs", "nfs4", "lustre", "beegfs", "gpfs", "cephfs", "ceph", "glusterfs", "fuse.glusterfs", "9p", "cifs"}
    | {"panfs", "orangefs", "fuse.juicefs", "fuse.sshfs", "wekafs", "afs", "smb3", "virtiofs"}
)
"""File systems that other nodes see too."""


@dataclass(frozen=True)
class Scratch:
    """A folder for environments, the file system that it lies on and the bytes that are free; ``shared``: not local."""

    path: Path
    type: str
    free: int
    shared: bool

    def to_dict(self) -> dict[str, Any]:
        """Write it for a survey."""
        return asdict(self) | {"path": str(self.path)}


def read_scratch(environ: Mapping[str, str]) -> Scratch:
    """Find the node's own scratch: the place that is named, a usual one that is local, or else the user's cache."""
    from gpuinstall.files import own_cache_folder

    named = environ.get("GPUINSTALL_SCRATCH")
    usual = [Path(place) for place in ((named,) if named else _PLACES)]
    mounts = _mounts()
    for place in usual:
        if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
            found = _measured(place / f"gpuinstall-{_user()}", place, mounts)
            if named or not found.shared:
                return found
    cache = own_cache_folder()
    there = next(folder for folder in (cache, *cache.parents) if folder.exists())
    return _measured(cache / "environments", there, mounts)


def own_folder(path: Path) -> Path:
    """Make a folder that nobody else may write to; raise InstallationError where it is another's."""
    with suppress(OSError):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.lstat()
        private = not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and private:
            return path
    message = f"{path} cannot be used: it is not a folder that we alone may write to"
    raise InstallationError("not-writable", message, hint="name another: --root DIR, or GPUINSTALL_SCRATCH")


def link_speed() -> float | None:
    """What the links of this node carry, in Gbit/s each way: InfiniBand's where it has that, else the fastest card's.

    None where the system does not say.
    """
    fabric = [_gigabits(rate) for rate in _INFINIBAND.glob("*/ports/*/rate")]
    cards = [_gigabits(speed, 1000) for speed in _NETWORK.glob("*/speed") if speed.parent.name != "lo"]
    return sum(filter(None, fabric)) or max(filter(None, cards), default=None)


def image_tools() -> list[str]:
    """The programs for images that are here."""
    return [name for name in _PROGRAMS if shutil.which(name)]


def _measured(path: Path, there: Path, mounts: Mapping[str, str]) -> Scratch:
    point = next((str(folder) for folder in (there.resolve(), *there.resolve().parents) if str(folder) in mounts), "/")
    kind = mounts.get(point, "unknown")
    return Scratch(path, kind, shutil.disk_usage(there).free, kind in _SHARED)


def _mounts() -> dict[str, str]:
    """The type of each mounted file system by its mount point (proc(5), mountinfo: 5 and after the dash)."""
    found: dict[str, str] = {}
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines():
            head, _, tail = line.partition(" - ")
            found[head.split(" ")[4].replace("\\040", " ")] = tail.split(" ")[0]
    return found


def _user() -> str:
    return str(os.getuid()) if hasattr(os, "getuid") else "user"


def _gigabits(file: Path, unit: int = 1) -> float | None:
    """Read ``400 Gb/sec (4X NDR)`` or a number of Mbit/s; a link that is down says nothing, or -1."""
    with suppress(OSError, ValueError, IndexError):
        rate = float(file.read_text(encoding="ascii").split()[0]) / unit
        return rate if rate > 0 else None
    return None
