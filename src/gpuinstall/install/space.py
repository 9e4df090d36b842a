"""Before a download: the bytes to fetch, the space that they need, where they go, and whether it is there."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.files import check_cache
from gpuinstall.base.threads import side_by_side
from gpuinstall.base.units import display_path, readable
from gpuinstall.base.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from gpuinstall.lock.lock import LockedFile
    from gpuinstall.sources.session import Session

UNPACKED = 2.3
"""How much larger an environment is than its wheels: 6.8 GB of 2.9 GB for torch 2.14 with CUDA 12.6 (measured)."""


@dataclass(frozen=True)
class Bill:
    """What an installation costs, in bytes."""

    missing: Mapping[LockedFile, int]
    """The size of each file to fetch; 0 if that is not known."""
    folders: Mapping[Path, int]
    """What is written into each folder, as far as it takes space there."""

    @property
    def fetch(self) -> int:
        """The bytes to fetch."""
        return sum(self.missing.values())

    def check(self) -> None:
        """Check that every file system has the space that is needed on it.

        Raises:
            InstallationError: one has less.
        """
        for folder in self.folders:
            sharing = [other for other in self.folders if _device(other) == _device(folder)]
            needed = sum(self.folders[other] for other in sharing)
            free = _free(folder)
            if needed > free:
                places = " and ".join(map(display_path, sharing))
                raise InstallationError(
                    "no-space",
                    f"{readable(needed)} required in {places}, {readable(free)} free",
                    hint="Free some space, or use another disk: "
                    "--venv DIR, and UV_CACHE_DIR for uv's cache",
                )

    def __str__(self) -> str:
        texts = [readable(self.fetch) if self.fetch else "nothing to download"]
        for folder, size in self.folders.items():
            free = readable(_free(folder))
            texts.append(f"{readable(size)} in {display_path(folder)} ({free} free)")
        return ", ".join(texts)


def price_files(
    files: Collection[LockedFile],
    listed: Mapping[str, int],
    venv: Path,
    session: Session,
    *,
    copied: int = 0,
) -> Bill:
    """Reckon what will be fetched, and written where: uv unpacks into its cache what comes.

    On one file system the environment is made of links into uv's cache; on two, of copies.

    Args:
        files: What is to be installed.
        listed: The sizes that are known, by address.
        venv: The environment.
        session: The clients of this run.
        copied: The further bytes that are written into the environment.

    Raises:
        InstallationError: uv's cache is not to be trusted.
    """
    from gpuinstall.lock.fetch import local_path
    from gpuinstall.lock.transfer import cached_wheel  # which takes long to load

    cache = session.uv_cache
    check_cache(cache, session.reporter)
    is_linked = _device(venv) == _device(cache)
    new = [file for file in files if not cached_wheel(file, cache)]
    counted = new if is_linked else list(files)

    def size(file: LockedFile) -> int:
        return listed.get(file.url) or _size(file, session)

    sizes = dict(zip(counted, side_by_side(size, counted), strict=True))
    folders = {
        cache: int(UNPACKED * sum(sizes[file] for file in new)),
        venv: copied if is_linked else copied + int(UNPACKED * sum(sizes.values())),
    }
    return Bill(
        missing={file: sizes[file] for file in new if local_path(file.url) is None},
        folders={folder: size for folder, size in folders.items() if size},
    )


def _size(file: LockedFile, session: Session) -> int:
    """Return the size of a file, which its server is asked for; 0 if it does not say."""
    from gpuinstall.lock.fetch import local_path
    from gpuinstall.sources.web import UnreachableError

    path = local_path(file.url)
    if path:
        return path.stat().st_size if path.is_file() else 0
    try:
        return session.client.head(file.url).size or 0
    except UnreachableError:
        return 0


def _device(folder: Path) -> int:
    return _existing(folder).stat().st_dev


def _free(folder: Path) -> int:
    return shutil.disk_usage(_existing(folder)).free


def _existing(folder: Path) -> Path:
    """Return a folder, or the innermost one around it that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())
