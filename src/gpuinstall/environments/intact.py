"""Remember for some minutes in which folders no package file was missing.

A folder's time shows that a file was added, removed, or replaced, but not that it was
changed in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from time import time_ns

from gpuinstall.base.cache import JsonCache
from gpuinstall.base.files import own_cache_folder
from gpuinstall.base.values import Value
from gpuinstall.environments.packages import InstalledPackage
from gpuinstall.environments.stamp import FileStamp, read_boot_id, read_file_stamp

COMPARED_S = 600
"""Seconds after which all files are compared again."""

_SETTLED_NS = 2_000_000_000
"""The age of a folder's time from which each later change alters the time."""


class _Folders(Value):
    """The compared folders of an environment."""

    boot: str
    """The ID of the boot. A power cut can truncate files."""
    stamps: Mapping[str, FileStamp]
    """The stamps of each RECORD and of the folders of its files, by path."""


def has_same_folders(venv: Path, packages: Iterable[InstalledPackage]) -> bool:
    """Return whether no folder changed since all files were compared."""
    known = _open_cache().get(str(venv), COMPARED_S)
    if known is None or known.boot != read_boot_id():
        return False
    return known.stamps.keys() >= {*map(_record, packages)} and all(
        read_file_stamp(path) == stamp for path, stamp in known.stamps.items()
    )


def remember_folders(venv: Path, packages: Iterable[InstalledPackage]) -> None:
    """Cache the folders of intact packages, unless one has just changed."""
    paths = set[str]()
    for package in packages:
        place = package.record.parent
        folders = {row.path.rpartition("/")[0] for row in package.read_record()}
        paths.add(_record(package))
        paths.update(f"{place}/{folder}" for folder in folders)
    stamps = {path: read_file_stamp(path) for path in paths}
    boot = read_boot_id()
    newest = max((time for _, time, _ in stamps.values()), default=0)
    if boot and newest < time_ns() - _SETTLED_NS:
        _open_cache().put(str(venv), _Folders(boot, stamps))


def _record(package: InstalledPackage) -> str:
    return f"{package.record}/RECORD"


def _open_cache() -> JsonCache[_Folders]:
    return JsonCache(own_cache_folder() / "intact", _Folders)
