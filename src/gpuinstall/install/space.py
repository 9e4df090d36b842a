"""Before a download: the bytes to fetch, the space that they need, where they go, and whether it is there."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from gpuinstall.errors import InstallationError
from gpuinstall.lock.fetch import local_path
from gpuinstall.units import display_path, readable
from gpuinstall.web import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from gpuinstall.lock.lock import LockedFile
    from gpuinstall.web import Client
    from gpuinstall.web.wheel_cache import WheelCache

UNPACKED = 2.3
"""How much larger an environment is than its wheels: 6.8 GB of 2.9 GB for torch 2.14 with CUDA 12.6 (measured)."""


@dataclass(frozen=True)
class Bill:
    """What an installation costs, in bytes: to fetch, to unpack for ``venv``, and to write into each folder."""

    fetch: int
    unpacked: int
    venv: Path
    folders: Mapping[Path, int]

    def check(self) -> None:
        """Raise InstallationError where a file system has less space than is needed on it."""
        for folders in _by_device(self.folders):
            need, free = sum(self.folders[folder] for folder in folders), _free(folders[0])
            if need > free:
                raise InstallationError(
                    "no-space",
                    f"{readable(need)} are needed in {_listed(folders)}, {readable(free)} are free",
                    hint="make room, or go elsewhere: --venv DIR for the environment, UV_CACHE_DIR for uv's cache",
                )

    @property
    def caches(self) -> tuple[Path, ...]:
        """The folders that keep what is fetched."""
        return tuple(folder for folder, size in self.folders.items() if size and folder != self.venv)

    def __str__(self) -> str:
        fetched = f"{readable(self.fetch)} to {_listed(self.caches)}" if self.fetch else "nothing to fetch"
        elsewhere = next((folder for folder in self.caches if _device(folder) != _device(self.venv)), None)
        room = f" ({readable(_free(elsewhere))} free)" if self.fetch and elsewhere else ""
        place = f"{display_path(self.venv)} ({readable(_free(self.venv))} free)"
        return f"{fetched}{room}, {readable(self.unpacked)} for {place}"


def bill(
    sizes: Mapping[LockedFile, int], unhashed: Iterable[LockedFile], venv: Path, uv_cache: Path, cache: WheelCache
) -> Bill:
    """Reckon what ``sizes`` cost; ``unhashed`` are streamed through our own cache, the rest goes to uv's.

    On one file system the environment is made of links into uv's cache; on two, of copies.
    """
    through = set(unhashed)
    new = {file: size for file, size in sizes.items() if not held(file, uv_cache, cache)}
    unpacked, unpacked_new = int(UNPACKED * sum(sizes.values())), int(UNPACKED * sum(new.values()))
    folders = {
        uv_cache: unpacked_new,
        cache.folder: sum(size for file, size in new.items() if file in through),
        venv: 0 if _device(venv) == _device(uv_cache) else unpacked,
    }
    return Bill(sum(size for file, size in new.items() if local_path(file.url) is None), unpacked, venv, folders)


def sizes(files: Sequence[LockedFile], client: Client) -> dict[LockedFile, int]:
    """Ask for the size of every file, side by side; 0 where it is not said."""
    with ThreadPoolExecutor(16) as pool:
        return dict(zip(files, pool.map(lambda file: _size(file, client), files), strict=True))


def _size(file: LockedFile, client: Client) -> int:
    if path := local_path(file.url):
        return path.stat().st_size if path.is_file() else 0
    try:
        return client.head(file.url).size or 0
    except UnreachableError:
        return 0


def held(file: LockedFile, uv_cache: Path, cache: WheelCache) -> bool:
    """Say whether our cache or uv's has a wheel.

    uv's keeps what it knows of one, its sha256 too, in ``wheels-v7/pypi/<package>/*.http``, or for other indexes than
    its own default in ``wheels-v7/index/<digest>/<package>/*.http``.
    """
    if file.sha256 is None:
        return False
    if cache.path(file.sha256, file.name).is_file():
        return True
    places = (uv_cache.glob(f"wheels-v*/{index}/{file.package}/*.http") for index in ("pypi", "index/*"))
    return any(file.sha256.encode() in entry.read_bytes() for entry in chain.from_iterable(places))


def _listed(folders: Iterable[Path]) -> str:
    return " and ".join(map(display_path, folders))


def _by_device(folders: Mapping[Path, int]) -> Iterable[list[Path]]:
    devices: dict[int, list[Path]] = {}
    for folder, size in folders.items():
        if size:
            devices.setdefault(_device(folder), []).append(folder)
    return devices.values()


def _device(folder: Path) -> int:
    return _there(folder).stat().st_dev


def _free(folder: Path) -> int:
    return shutil.disk_usage(_there(folder)).free


def _there(folder: Path) -> Path:
    return next(place for place in (folder, *folder.parents) if place.exists())
