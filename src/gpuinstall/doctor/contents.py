"""What lies in an environment's folder beside what its records say of it; nothing of it is imported or run."""

from __future__ import annotations

import csv
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from gpuinstall.environments.paths import packages_folders
from gpuinstall.files import DOCUMENT_BYTES, open_regular, read_document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

PROCESSORS = {62: "x86_64", 183: "aarch64"}
"""The machines of elf(5) that PyTorch is built for."""

_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_VERSION = re.compile(r"[\w.+!]+")
_PYTHON = re.compile(r"\.(?:cpython-|cp)(3)(\d+)")
_VERSION_OF_PYTHON = re.compile(r"^version(?:_info)? *= *(\d+\.\d+)", re.MULTILINE)


@dataclass(frozen=True)
class PackageContents:
    """One package by its record: what it requires, and of its files those that are gone or cut.

    ``pythons`` are the Pythons (``3.12``) that its modules were compiled for, ``processor`` what its libraries run on.
    """

    name: str
    version: str
    requires: tuple[Requirement, ...] = ()
    lost: tuple[str, ...] = ()
    files: int = 0
    pythons: frozenset[str] = frozenset()
    processor: str | None = None


@dataclass(frozen=True)
class EnvironmentContents:
    """The packages of an environment by name, its Python ``X.Y``, and what no record knows.

    ``leftovers`` are folders that a broken uninstall has left, ``hollow`` is a folder torch without a torch in it.
    """

    packages: Mapping[str, PackageContents] = field(default_factory=dict)
    python: str | None = None
    leftovers: tuple[Path, ...] = ()
    hollow: Path | None = None


def read_contents(venv: Path) -> EnvironmentContents:
    """Read the records of an environment, and look at the files that they name."""
    sites = packages_folders(venv)
    python = _python(venv, sites)
    records = [record for site in sites for record in sorted(site.glob("*.dist-info"))]
    packages = {package.name: package for package in map(_package, records) if package}
    return EnvironmentContents(
        packages,
        python,
        tuple(path for site in sites for path in sorted(site.glob("~*"))),
        next((site / "torch" for site in sites if _is_hollow(site / "torch")), None),
    )


def _python(venv: Path, sites: list[Path]) -> str | None:
    with suppress(OSError, ValueError):
        if found := _VERSION_OF_PYTHON.search(read_document(venv / "pyvenv.cfg", venv)):
            return found[1]
    names = (re.fullmatch(r"python(3\.\d+)", site.parent.name) for site in sites)
    return next((name[1] for name in names if name), None)


def _is_hollow(torch: Path) -> bool:
    return torch.is_dir() and not (torch / "__init__.py").exists()


def _package(record: Path) -> PackageContents | None:
    name, _, version = record.stem.partition("-")
    name = canonicalize_name(name)
    if not (_NAME.fullmatch(name) and _VERSION.fullmatch(version)):
        return None
    rows = list(_files(record))
    paths = [path for path, _ in rows]
    return PackageContents(
        name,
        version,
        tuple(_requires(record)),
        tuple(path for path, size in rows if not _is_whole(record.parent / path, size)),
        len(rows),
        frozenset(f"{found[1]}.{found[2]}" for path in paths if (found := _PYTHON.search(path))),
        next(filter(None, (_processor(record.parent / path) for path in paths if path.endswith(".so"))), None),
    )


def _files(record: Path) -> Iterator[tuple[str, int]]:
    """List the files that hold something, and their sizes; not what Python makes, nor what lies outside the folder."""
    with suppress(OSError, ValueError, csv.Error):
        for path, _, size in csv.reader(_text(record / "RECORD").splitlines()):
            if size.isdigit() and int(size) and not path.endswith(".pyc") and ".." not in path and path[:1] != "/":
                yield path, int(size)


def _requires(record: Path) -> Iterator[Requirement]:
    head = _text(record / "METADATA").partition("\n\n")[0]
    for asked in re.findall(r"^Requires-Dist: *(.+)$", head, re.MULTILINE):
        with suppress(InvalidRequirement):
            yield Requirement(asked)


def _text(file: Path) -> str:
    try:
        with open_regular(file) as opened:
            return opened.read(DOCUMENT_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _is_whole(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size >= size
    except OSError:
        return False


def _processor(library: Path) -> str | None:
    """Name what a library runs on; None where it is no library for Linux, or for a processor without PyTorch."""
    with suppress(OSError), open_regular(library) as file:
        header = file.read(20)
        if header.startswith(b"\x7fELF\x02"):
            return PROCESSORS.get(int.from_bytes(header[18:20], "little"))
    return None
