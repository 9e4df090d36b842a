"""The files of torch and its family against the lists of their installations, and those against the locked wheels.

A torch that answers every kernel as it should may still be another one: its files tell.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from gpuinstall.environments.packages import RecordedFile, file_size, parse_record, read_packages
from gpuinstall.files import open_regular
from gpuinstall.reporter import Meter, Reporter, SilentReporter

_CODE = {".py", ".pyd", ".so", ".dll", ".pth"}


def altered_files(
    site: Path,
    family: Collection[str],
    wheels: Mapping[str, Path],
    reporter: Reporter | None = None,
) -> Iterator[str]:
    """Name the files below ``site`` that are not what was installed; ``wheels`` are those locked, unpacked."""
    packages = [package for package in read_packages([site]) if package.name in family]
    listed = {package: _digests(package.files) for package in packages}
    sizes = {
        package.name: sum(max(0, file_size(site / path)) for path in listed[package])
        for package in packages
    }
    with (reporter or SilentReporter()).progress("Files", sizes) as progress:
        for package, digests in listed.items():
            if package.name in wheels:
                if not digests:
                    yield f"{package.record.name}/RECORD"
                locked = _wheel_digests(wheels[package.name])
                yield from (
                    path for path, digest in locked.items() if digests.get(path, digest) != digest
                )
            meter = partial(progress, package.name)
            yield from (
                path for path, digest in digests.items() if _digest(site / path, meter) != digest
            )
            if package.name == "torch":
                code = (
                    path for path in sorted((site / "torch").rglob("*")) if path.suffix in _CODE
                )
                names = (path.relative_to(site).as_posix() for path in code)
                yield from (name for name in names if name not in digests)


def _digests(files: tuple[RecordedFile, ...]) -> dict[str, str]:
    """The digest of each file by its path; what was written at the installation has none."""
    return {file.path: file.digest for file in files if file.digest}


def _wheel_digests(unpacked: Path) -> dict[str, str]:
    with (
        suppress(OSError, ValueError, StopIteration),
        open_regular(next(unpacked.glob("*.dist-info/RECORD"))) as file,
    ):
        return _digests(parse_record(file.read().decode()))
    return {}


def _digest(path: Path, meter: Meter) -> str | None:
    """The SHA-256 of a file as RECORD writes it; None where it cannot be read."""
    sha256 = hashlib.sha256()
    try:
        with open_regular(path) as file:
            while chunk := file.read(1 << 20):
                sha256.update(chunk)
                meter(len(chunk))
    except OSError:
        return None
    return base64.urlsafe_b64encode(sha256.digest()).decode().rstrip("=")
