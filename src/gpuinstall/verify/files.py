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

from gpuinstall.base.files import open_regular
from gpuinstall.base.reporter import Meter, Reporter
from gpuinstall.environments.packages import (
    InstalledPackage,
    RecordedFile,
    file_size,
    parse_record,
    read_packages,
)

_CODE = {".py", ".pyd", ".so", ".dll", ".pth"}
_CHUNK = 1 << 20
"""How many bytes of a file are read at once."""


def altered_files(
    site: Path,
    family: Collection[str],
    wheels: Mapping[str, Path],
    reporter: Reporter,
) -> Iterator[str]:
    """Yield the files of torch and its family that are not what was installed, by their paths below ``site``.

    Args:
        site: The folder of packages.
        family: The packages to look at.
        wheels: The locked wheel of a package, unpacked, if this machine has it.
        reporter: Shows how far the reading has come.
    """
    recorded = {}
    sizes = {}
    for package in read_packages([site]):
        if package.name not in family:
            continue
        digests = _digests(package.files)
        recorded[package] = digests
        sizes[package.name] = sum(max(0, file_size(site / path)) for path in digests)
    with reporter.progress("Files", sizes) as progress:
        for package, digests in recorded.items():
            wheel = wheels.get(package.name)
            if wheel:
                yield from _unlike_wheel(package, digests, wheel)
            meter = partial(progress, package.name)
            for path, digest in digests.items():
                if _digest(site / path, meter) != digest:
                    yield path
            if package.name == "torch":
                yield from _unrecorded_code(site, digests)


def _unlike_wheel(
    package: InstalledPackage,
    digests: Mapping[str, str],
    wheel: Path,
) -> Iterator[str]:
    """Yield the files whose digests were changed in the installation's list, or the list if it is empty."""
    if not digests:
        yield f"{package.record.name}/RECORD"
    for path, digest in _wheel_digests(wheel).items():
        # A file that the list leaves out was left out by the installer too.
        if digests.get(path, digest) != digest:
            yield path


def _unrecorded_code(site: Path, digests: Mapping[str, str]) -> Iterator[str]:
    """Yield the code in torch's folder that its installation does not list: Python would import it."""
    for path in sorted((site / "torch").rglob("*")):
        name = path.relative_to(site).as_posix()
        if path.suffix in _CODE and name not in digests:
            yield name


def _digests(files: tuple[RecordedFile, ...]) -> dict[str, str]:
    """Return the digest of each file by its path; what was written at the installation has none."""
    return {file.path: file.digest for file in files if file.digest}


def _wheel_digests(unpacked: Path) -> dict[str, str]:
    """Return the digests of a wheel by its own list; empty if that is missing or malformed."""
    for record in unpacked.glob("*.dist-info/RECORD"):
        with suppress(OSError, ValueError), open_regular(record) as file:
            text = file.read().decode()
            return _digests(parse_record(text))
    return {}


def _digest(path: Path, meter: Meter) -> str | None:
    """Return the SHA-256 of a file as RECORD writes it; None if it cannot be read."""
    sha256 = hashlib.sha256()
    try:
        with open_regular(path) as file:
            while chunk := file.read(_CHUNK):
                sha256.update(chunk)
                meter(len(chunk))
    except OSError:
        return None
    encoded = base64.urlsafe_b64encode(sha256.digest())
    return encoded.decode().rstrip("=")
