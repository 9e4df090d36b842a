"""Wheels that were compiled here, kept for the next environment.

One lies below a folder of what it was compiled from, beside and for, in one that is named by its SHA-256.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING
from zipfile import BadZipFile, ZipFile

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.files import is_folder, is_of_this_user, remove_path, sha256_of, written

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.base.reporter import Reporter

_IN_CACHE = [f"sdists-v*/{'*/' * depth}" for depth in (4, 5, 6)]
"""Where uv keeps what it builds: by index, address, path or commit, then revision and settings (seen with 0.13.8)."""


def kept_wheel(folder: Path, reporter: Reporter) -> Path | None:
    """Return the wheel that is kept in a folder.

    One that is not what was compiled is removed, one that another user put there is left: its own folder says its hash.
    """
    if not is_folder(folder):
        return None
    for wheel in folder.glob("*/*.whl"):
        if not is_folder(wheel.parent):
            continue
        if not all(is_of_this_user(path) for path in (folder, wheel.parent, wheel)):
            reporter.warn(f"{wheel} belongs to another user, and is not used")
            continue
        with suppress(OSError):
            if not wheel.is_symlink() and sha256_of(wheel) == wheel.parent.name:
                return wheel
        reporter.warn(f"{wheel} has changed since it was compiled, and is not used")
        remove_path(wheel)
    return None


def keep_wheel(
    folder: Path,
    name: str,
    uv_cache: Path,
    packages: Path,
) -> None:
    """Keep what uv has just built, if it compiled: the wheel in its cache whose libraries are installed."""
    stem = name.replace("-", "_").replace(" ", "-")
    with suppress(OSError, BadZipFile, KeyError, InstallationError):
        record = packages / f"{stem}.dist-info" / "RECORD"
        installed = _libraries(record.read_text(encoding="utf-8"))
        if not installed:
            return
        patterns = [f"{levels}{stem}-*.whl" for levels in _IN_CACHE]
        for wheel in chain.from_iterable(map(uv_cache.glob, patterns)):
            with ZipFile(wheel) as archive:
                record_of_wheel = archive.read(f"{stem}.dist-info/RECORD")
            if _libraries(record_of_wheel.decode()) == installed:
                path = folder / sha256_of(wheel) / wheel.name
                with wheel.open("rb") as file, written(path) as copy:
                    shutil.copyfileobj(file, copy)
                return


def _libraries(record: str) -> set[str]:
    lines = record.splitlines()
    return {line for line in lines if ".so,sha256=" in line or ".pyd,sha256=" in line}
