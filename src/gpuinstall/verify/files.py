"""The files of torch and its family against the lists of their installations, and those against the locked wheels.

A torch that answers every kernel as it should may still be another one: its files tell.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import zipfile
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from gpuinstall.files import open_regular
from gpuinstall.reporter import SilentReporter

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from gpuinstall.reporter import Meter, Reporter

    Listed = dict[str, str]
    """The digest of each file of a package, by its path, as RECORD writes it."""

_CODE = {".py", ".pyd", ".so", ".dll", ".pth"}


def altered_files(
    site: Path, family: Collection[str], wheels: Mapping[str, Path], reporter: Reporter | None = None
) -> Iterator[str]:
    """Name the files below ``site`` that are not what was installed; ``wheels`` are those that were locked, as here."""
    packages = {
        info: _read_record(info / "RECORD") for info in sorted(site.glob("*.dist-info")) if _name(info) in family
    }
    sizes = {_name(info): sum(map(_size, (site / path for path in listed))) for info, listed in packages.items()}
    with (reporter or SilentReporter()).progress("Files", sizes) as progress:
        for info, listed in packages.items():
            name = _name(info)
            if name in wheels and not listed:
                yield f"{info.name}/RECORD"
            if name in wheels:
                yield from _strange(listed, _wheel_record(wheels[name]))
            meter = partial(progress, name)
            yield from (path for path, digest in listed.items() if not _is(site / path, digest, meter))
            if name == "torch":
                yield from _added(site / "torch", site, listed)


def _name(info: Path) -> str:
    """The package whose ``.dist-info`` folder it is."""
    return canonicalize_name(info.name.partition("-")[0])


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_size
    return 0


def _strange(listed: Listed, original: Listed) -> Iterator[str]:
    """The files that an installation lists otherwise than its wheel."""
    return (path for path, digest in original.items() if listed.get(path, digest) != digest)


def _added(package: Path, site: Path, listed: Listed) -> Iterator[str]:
    """The code in a package that no list has."""
    found = (path.relative_to(site).as_posix() for path in sorted(package.rglob("*")) if path.suffix in _CODE)
    return (path for path in found if path not in listed)


def _read_record(path: Path) -> Listed:
    with suppress(OSError, ValueError, csv.Error), open_regular(path) as file:
        return _parse(file.read().decode())
    return {}


def _wheel_record(wheel: Path) -> Listed:
    with suppress(OSError, ValueError, KeyError, csv.Error, zipfile.BadZipFile), zipfile.ZipFile(wheel) as archive:
        name = next((name for name in archive.namelist() if name.endswith(".dist-info/RECORD")), "")
        return _parse(archive.read(name).decode())
    return {}


def _parse(record: str) -> Listed:
    """Read the rows with a digest; scripts, which are written anew when they are installed, lie elsewhere."""
    rows = (row for row in csv.reader(record.splitlines()) if len(row) > 1 and row[1].startswith("sha256="))
    return {path: digest.removeprefix("sha256=") for path, digest, *_ in rows if not path.startswith(("..", "/"))}


def _is(path: Path, digest: str, meter: Meter) -> bool:
    found = hashlib.sha256()
    try:
        with open_regular(path) as file:
            while chunk := file.read(1 << 20):
                found.update(chunk)
                meter(len(chunk))
    except OSError:
        return False
    return base64.urlsafe_b64encode(found.digest()).decode().rstrip("=") == digest
