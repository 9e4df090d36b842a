"""Before a download: the bytes to fetch, the space that they need, where they go, and whether it is there."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gpuinstall.errors import InstallationError
from gpuinstall.files import check_cache, read_json, write_atomically
from gpuinstall.lock.fetch import local_path
from gpuinstall.lock.transfer import cached_wheel
from gpuinstall.threads import side_by_side
from gpuinstall.units import display_path, readable
from gpuinstall.web import Client, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gpuinstall.lock.lock import LockedFile
    from gpuinstall.session import Session

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
        """Raise InstallationError where a file system has less space than is needed on it."""
        devices: dict[int, list[Path]] = {}
        for folder in (folder for folder, size in self.folders.items() if size):
            devices.setdefault(_device(folder), []).append(folder)
        for folders in devices.values():
            need, free = sum(self.folders[folder] for folder in folders), _free(folders[0])
            if need > free:
                message = f"{readable(need)} required in {_listed(folders)}, {readable(free)} free"
                hint = "Free some space, or use another disk: --venv DIR, and UV_CACHE_DIR for uv's cache"
                raise InstallationError("no-space", message, hint=hint)

    @property
    def fetch(self) -> int:
        """The bytes to fetch."""
        return sum(self.missing.values())

    @property
    def sources(self) -> dict[str, int]:
        """The bytes that each host will send, the most first."""
        sums: dict[str, int] = {}
        for file, size in self.missing.items():
            host = urlsplit(file.url).netloc
            sums[host] = sums.get(host, 0) + size
        return dict(sorted(sums.items(), key=lambda entry: -entry[1]))

    @property
    def caches(self) -> tuple[Path, ...]:
        """The folders that keep what is fetched."""
        return tuple(
            folder for folder, size in self.folders.items() if size and folder != self.venv
        )

    def __str__(self) -> str:
        fetched = (
            f"{readable(self.fetch)} to {_listed(self.caches)}"
            if self.fetch
            else "nothing to download"
        )
        elsewhere = next(
            (folder for folder in self.caches if _device(folder) != _device(self.venv)), None
        )
        room = f" ({readable(_free(elsewhere))} free)" if self.fetch and elsewhere else ""
        if not self.unpacked:
            return fetched
        venv = f"{display_path(self.venv)} ({readable(_free(self.venv))} free)"
        return f"{fetched}{room}, {readable(self.unpacked)} for {venv}"


FREE = Bill(missing={}, unpacked=0, venv=Path(), folders={})


def price_files(
    files: Collection[LockedFile], listed: Mapping[str, int], venv: Path, session: Session
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
    check_cache(session.uv_cache, session.reporter)
    cached = {file for file in files if cached_wheel(file, session.uv_cache)}
    return bill(sizes(files, listed, cached, session), cached, venv, uv_cache=session.uv_cache)


def bill(
    sizes: Mapping[LockedFile, int], cached: Collection[LockedFile], venv: Path, *, uv_cache: Path
) -> Bill:
    """Reckon what ``sizes`` cost where ``cached`` need no transfer: uv unpacks into its cache what comes.

    On one file system the environment is made of links into uv's cache; on two, of copies.
    """
    new = {file: size for file, size in sizes.items() if file not in cached}
    missing = {file: size for file, size in new.items() if local_path(file.url) is None}
    unpacked, unpacked_new = int(UNPACKED * sum(sizes.values())), int(UNPACKED * sum(new.values()))
    folders = {uv_cache: unpacked_new, venv: 0 if _device(venv) == _device(uv_cache) else unpacked}
    return Bill(missing, unpacked, venv, folders)


def sizes(
    files: Iterable[LockedFile],
    listed: Mapping[str, int],
    cached: Collection[LockedFile],
    session: Session,
) -> dict[LockedFile, int]:
    """Find the size of every file: ``listed`` by address, kept of one that is ``cached``, said by its host; else 0.

    Hosts are asked side by side, and what they say is kept by sha256.
    """
    record = session.cache.folder / "sizes.json"
    kept = _read(record)
    found = {
        file: listed.get(file.url) or (kept.get(file.sha256 or "") if file in cached else None)
        for file in files
    }
    asked = [file for file, size in found.items() if size is None]
    said = dict(
        zip(asked, side_by_side(lambda file: _size(file, session.client), asked), strict=True)
    )
    if new := {file.sha256: size for file, size in said.items() if size and file.sha256}:
        with suppress(InstallationError):
            write_atomically(record, json.dumps({**kept, **new}))
    return {file: size or said.get(file, 0) for file, size in found.items()}


def _read(record: Path) -> dict[str, int]:
    with suppress(OSError, ValueError):
        kept = read_json(record)
        return (
            {key: size for key, size in kept.items() if isinstance(size, int)}
            if isinstance(kept, dict)
            else {}
        )
    return {}


def _size(file: LockedFile, client: Client) -> int:
    if path := local_path(file.url):
        return path.stat().st_size if path.is_file() else 0
    try:
        return client.head(file.url).size or 0
    except UnreachableError:
        return 0


def _listed(folders: Iterable[Path]) -> str:
    return " and ".join(map(display_path, folders))


def _device(folder: Path) -> int:
    return _there(folder).stat().st_dev


def _free(folder: Path) -> int:
    return shutil.disk_usage(_there(folder)).free


def _there(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.exists())
