"""What the records in an environment's folder say; nothing of it is imported or run."""

from __future__ import annotations

import re
from dataclasses import dataclass
from struct import unpack_from
from typing import TYPE_CHECKING

from gpuinstall.files import DOCUMENT_BYTES, open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CUDA_LIBRARY = r"nvidia-(cu|nccl|nvjitlink|nvshmem|nvtx)"
ELF_64 = b"\x7fELF\x02"
SEGMENT = 56
GNU_STACK = 0x6474E551
EXECUTABLE = 1


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
        packages=tuple(map(_package, records)),
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


def _package(record: Path) -> tuple[str, str]:
    name, _, version = record.stem.partition("-")
    return re.sub(r"[-_.]+", "-", name).lower(), version


def _demands(records: list[Path]) -> Iterator[tuple[str, str]]:
    """Find the packages that demand one minor of torch, by a pin or by the local version of their build."""
    for record in records:
        name, version = _package(record)
        built = re.search(r"(?:pt|torch)2\.?(\d|1\d)(?!\d)", version.partition("+")[2])
        pinned = re.search(r"^Requires-Dist: torch ?\(?==2\.(\d+)", _metadata(record), re.MULTILINE)
        if found := built or pinned:
            yield name, f"2.{found[1]}"


def _metadata(record: Path) -> str:
    try:
        with open_regular(record / "METADATA") as file:
            return file.read(DOCUMENT_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def _lying_apart(records: list[Path]) -> Iterator[str]:
    homes = {record.parent for record in records if _package(record)[0] == "torch"}
    for record in records:
        name, _ = _package(record)
        if homes and re.match(CUDA_LIBRARY, name) and record.parent not in homes:
            yield name
