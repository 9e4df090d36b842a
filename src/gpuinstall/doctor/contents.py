"""What an environment's folder holds: its packages by their records, and their files; nothing is imported or run."""

from __future__ import annotations

import csv
import re
from contextlib import suppress
from dataclasses import dataclass, field
from struct import unpack_from
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

CUDA_LIBRARY = r"nvidia-(cu|nccl|nvjitlink|nvshmem|nvtx)"
ELF_64 = b"\x7fELF\x02"
SEGMENT = 56
GNU_STACK = 0x6474E551
EXECUTABLE = 1


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


@dataclass(frozen=True)
class InstalledPackages:
    """The packages of an environment, a name twice where it is so; ``conda`` are the names of conda's records.

    ``demands`` are the torch that a package was built for, ``apart`` the CUDA libraries in another folder than torch,
    ``executable_stack`` says that torch's library asks for one.
    """

    packages: tuple[tuple[str, str], ...]
    conda: tuple[str, ...] = ()
    demands: tuple[tuple[str, str], ...] = ()
    apart: tuple[str, ...] = ()
    executable_stack: bool = False

    def versions(self, name: str) -> tuple[str, ...]:
        """Every version of a package that is there."""
        return tuple(version for package, version in self.packages if package == name)

    def version(self, name: str) -> str:
        """The version of a package; empty where it is not there."""
        return next(iter(self.versions(name)), "")


def read_installed(venv: Path) -> InstalledPackages:
    """List an environment's packages, with what their records say of torch."""
    sites = {path.resolve() for path in (*venv.glob("lib*/python*/site-packages"), *venv.glob("Lib/site-packages"))}
    records = [record for site in sorted(sites) for record in sorted(site.glob("*.dist-info"))]
    return InstalledPackages(
        packages=tuple(map(_named, records)),
        conda=tuple(path.stem for path in sorted(venv.glob("conda-meta/*.json"))),
        demands=tuple(_demands(records)),
        apart=tuple(_lying_apart(records)),
        executable_stack=any(asks_for_executable_stack(site / "torch" / "lib" / "libtorch_cpu.so") for site in sites),
    )


def asks_for_executable_stack(library: Path) -> bool:
    """Say whether a 64-bit ELF library has an executable PT_GNU_STACK (elf(5)); False where there is none."""
    try:
        with open_regular(library) as file:
            header = file.read(64)
            if not header.startswith(ELF_64) or len(header) < 64:
                return False
            (start,), (size, count) = unpack_from("<Q", header, 32), unpack_from("<HH", header, 54)
            file.seek(start)
            segments = [unpack_from("<II", file.read(min(size, SEGMENT)).ljust(8, b"\0")) for _ in range(count)]
    except OSError:
        return False
    return any(kind == GNU_STACK and flags & EXECUTABLE for kind, flags in segments)


def _python(venv: Path, sites: list[Path]) -> str | None:
    with suppress(OSError, ValueError):
        if found := _VERSION_OF_PYTHON.search(read_document(venv / "pyvenv.cfg", venv)):
            return found[1]
    names = (re.fullmatch(r"python(3\.\d+)", site.parent.name) for site in sites)
    return next((name[1] for name in names if name), None)


def _is_hollow(torch: Path) -> bool:
    return torch.is_dir() and not (torch / "__init__.py").exists()


def _named(record: Path) -> tuple[str, str]:
    name, _, version = record.stem.partition("-")
    return canonicalize_name(name), version


def _package(record: Path) -> PackageContents | None:
    name, version = _named(record)
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
        if header.startswith(ELF_64):
            return PROCESSORS.get(int.from_bytes(header[18:20], "little"))
    return None


def _demands(records: list[Path]) -> Iterator[tuple[str, str]]:
    """Find the packages that demand one minor of torch, by a pin or by the local version of their build."""
    for record in records:
        name, version = _named(record)
        built = re.search(r"(?:pt|torch)2\.?(\d|1\d)(?!\d)", version.partition("+")[2])
        pinned = re.search(r"^Requires-Dist: torch ?\(?==2\.(\d+)", _text(record / "METADATA"), re.MULTILINE)
        if found := built or pinned:
            yield name, f"2.{found[1]}"


def _lying_apart(records: list[Path]) -> Iterator[str]:
    homes = {record.parent for record in records if _named(record)[0] == "torch"}
    for record in records:
        name, _ = _named(record)
        if homes and re.match(CUDA_LIBRARY, name) and record.parent not in homes:
            yield name
