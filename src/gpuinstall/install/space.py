"""Before a download: the bytes to fetch, the space that they need, where they go, and whether it is there."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.files import check_cache, read_json, write_atomically
from gpuinstall.base.threads import side_by_side
from gpuinstall.base.units import display_path, readable
from gpuinstall.base.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gpuinstall.lock.lock import LockedFile
    from gpuinstall.sources.session import Session
    from gpuinstall.sources.web import Client

UNPACKED = 2.3
"""How much larger an environment is than its wheels: 6.8 GB of 2.9 GB for torch 2.14 with CUDA 12.6 (measured)."""


@dataclass(frozen=True)
class Bill:
    """What an installation costs, in bytes."""

    missing: Mapping[LockedFile, int]
    """The size of each file to fetch; 0 if that is not known."""
    unpacked: int
    """What the environment takes."""
    venv: Path
    """The environment."""
    folders: Mapping[Path, int]
    """What is written into each folder."""

    def check(self) -> None:
        """Check that every file system has the space that is needed on it.

        Raises:
            InstallationError: one has less.
        """
        by_device: dict[int, list[Path]] = {}
        for folder, size in self.folders.items():
            if size:
                by_device.setdefault(_device(folder), []).append(folder)
        for folders in by_device.values():
            needed = sum(self.folders[folder] for folder in folders)
            free = _free(folders[0])
            if needed > free:
                raise InstallationError(
                    "no-space",
                    f"{readable(needed)} required in {_joined(folders)}, {readable(free)} free",
                    hint="Free some space, or use another disk: "
                    "--venv DIR, and UV_CACHE_DIR for uv's cache",
                )

    def with_bytes(self, folder: Path, size: int) -> Bill:
        """Return it with further bytes that are written into a folder."""
        folders = {**self.folders, folder: self.folders.get(folder, 0) + size}
        return replace(self, unpacked=self.unpacked + size, folders=folders)

    @property
    def fetch(self) -> int:
        """The bytes to fetch."""
        return sum(self.missing.values())

    @property
    def sources(self) -> dict[str, int]:
        """The bytes that each host will send, the most first."""
        sums = Counter[str]()
        for file, size in self.missing.items():
            sums[urlsplit(file.url).netloc] += size
        return dict(sums.most_common())

    @property
    def caches(self) -> tuple[Path, ...]:
        """The folders that keep what is fetched."""
        folders = [folder for folder, size in self.folders.items() if size]
        return tuple(folder for folder in folders if folder != self.venv)

    def __str__(self) -> str:
        download = "nothing to download"
        if self.fetch:
            download = f"{readable(self.fetch)} to {_joined(self.caches)}"
        if not self.unpacked:
            return download
        if self.fetch:
            for folder in self.caches:
                if _device(folder) != _device(self.venv):
                    download += f" ({readable(_free(folder))} free)"
                    break
        venv = f"{display_path(self.venv)} ({readable(_free(self.venv))} free)"
        return f"{download}, {readable(self.unpacked)} for {venv}"


FREE = Bill(missing={}, unpacked=0, venv=Path(), folders={})


def price_files(
    files: Collection[LockedFile],
    listed: Mapping[str, int],
    venv: Path,
    session: Session,
) -> Bill:
    """Reckon what will be fetched, and written where.

    Args:
        files: What is to be installed.
        listed: The sizes that are known, by address.
        venv: The environment.
        session: The clients of this run.

    Raises:
        InstallationError: uv's cache is not to be trusted.
    """
    from gpuinstall.lock.transfer import cached_wheel  # which takes long to load

    check_cache(session.uv_cache, session.reporter)
    cached = {file for file in files if cached_wheel(file, session.uv_cache)}
    return bill(sizes(files, listed, cached, session), cached, venv, uv_cache=session.uv_cache)


def bill(
    sizes: Mapping[LockedFile, int],
    cached: Collection[LockedFile],
    venv: Path,
    *,
    uv_cache: Path,
) -> Bill:
    """Reckon what files cost: uv unpacks into its cache what comes.

    On one file system the environment is made of links into uv's cache; on two, of copies.

    Args:
        sizes: The size of each file.
        cached: Those that need no transfer.
        venv: The environment.
        uv_cache: The folder of uv's cache.
    """
    from gpuinstall.lock.fetch import local_path

    new = {file: size for file, size in sizes.items() if file not in cached}
    unpacked = int(UNPACKED * sum(sizes.values()))
    is_linked = _device(venv) == _device(uv_cache)
    return Bill(
        missing={file: size for file, size in new.items() if local_path(file.url) is None},
        unpacked=unpacked,
        venv=venv,
        folders={
            uv_cache: int(UNPACKED * sum(new.values())),
            venv: 0 if is_linked else unpacked,
        },
    )


def sizes(
    files: Iterable[LockedFile],
    listed: Mapping[str, int],
    cached: Collection[LockedFile],
    session: Session,
) -> dict[LockedFile, int]:
    """Return the size of every file; 0 if it is not known.

    Hosts are asked side by side, and what they answer is kept by sha256.

    Args:
        files: The files.
        listed: The sizes that are known, by address.
        cached: Those of which an answer of an earlier run will do.
        session: The clients of this run.
    """
    record = session.cache.folder / "sizes.json"
    recorded = _read(record)
    sizes = {}
    unknown = []
    for file in files:
        size = listed.get(file.url)
        if size is None and file in cached:
            size = recorded.get(file.sha256 or "")
        if size is None:
            unknown.append(file)
        sizes[file] = size or 0
    answers = side_by_side(lambda file: _size(file, session.client), unknown)
    new = {}
    for file, answer in zip(unknown, answers, strict=True):
        sizes[file] = answer
        if answer and file.sha256:
            new[file.sha256] = answer
    if new:
        with suppress(InstallationError):
            write_atomically(record, json.dumps({**recorded, **new}))
    return sizes


def _read(record: Path) -> dict[str, int]:
    with suppress(OSError, ValueError, AttributeError):
        sizes = read_json(record).items()
        return {key: size for key, size in sizes if isinstance(size, int)}
    return {}


def _size(file: LockedFile, client: Client) -> int:
    from gpuinstall.lock.fetch import local_path
    from gpuinstall.sources.web import UnreachableError

    path = local_path(file.url)
    if path:
        return path.stat().st_size if path.is_file() else 0
    try:
        return client.head(file.url).size or 0
    except UnreachableError:
        return 0


def _joined(folders: Iterable[Path]) -> str:
    return " and ".join(map(display_path, folders))


def _device(folder: Path) -> int:
    return _existing(folder).stat().st_dev


def _free(folder: Path) -> int:
    return shutil.disk_usage(_existing(folder)).free


def _existing(folder: Path) -> Path:
    """Return a folder, or the innermost one around it that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())
