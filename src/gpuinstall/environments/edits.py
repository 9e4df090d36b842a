"""Files of packages that were edited after the installation, by RECORD: size and time first, the hash only then."""

from __future__ import annotations

import base64
import hashlib
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from gpuinstall.base.files import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpuinstall.environments.packages import InstalledPackage, RecordedFile


def edited_files(package: InstalledPackage) -> Iterator[RecordedFile]:
    """Yield the files of a package that do not hold what its RECORD says; one that is gone or empty is damage.

    Scripts and data outside the folder of the packages are not among them.
    """
    folder = f"{package.record.parent}{os.sep}"
    unpacked = _time(package.record / "METADATA")
    installed = _time(package.record / "RECORD")
    for row in package.files:
        if not row.digest:
            continue
        with suppress(OSError):
            status = os.stat(folder + row.path)  # noqa: PTH116  a Path takes longer than its stat
            # A file that several environments have was written when its wheel was unpacked into the cache.
            written = unpacked if status.st_nlink > 1 else installed
            is_as_installed = (
                status.st_size == row.size and status.st_mtime_ns <= written
            )
            if status.st_size and not (is_as_installed or _holds(folder, row)):
                yield row


def _time(file: Path) -> int:
    with suppress(OSError):
        return file.stat().st_mtime_ns
    return 0


def _holds(folder: str, row: RecordedFile) -> bool:
    """Whether a file has the hash that its row has."""
    sha256 = hashlib.sha256()
    with open_regular(folder + row.path) as file:
        while chunk := file.read(1 << 20):
            sha256.update(chunk)
    return base64.urlsafe_b64encode(sha256.digest()).decode().rstrip("=") == row.digest
