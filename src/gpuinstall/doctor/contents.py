"""What the folder of an environment holds: its packages, and what no record knows. Nothing is imported or run."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from struct import unpack_from
from typing import TYPE_CHECKING

from gpuinstall.environments.packages import InstalledPackage, read_packages
from gpuinstall.environments.paths import packages_folders
from gpuinstall.files import open_regular, read_document

if TYPE_CHECKING:
    from collections.abc import Mapping


PROCESSORS = {62: "x86_64", 183: "aarch64"}
"""The machines of elf(5) that PyTorch is built for."""

_VERSION_OF_PYTHON = re.compile(r"^version(?:_info)? *= *(\d+\.\d+)", re.MULTILINE)
_ACTIVATED = re.compile(r"^ *(?:export )?VIRTUAL_ENV=(['\"]?)(/[^'\"$\n]+)\1$", re.MULTILINE)

ELF_64, SEGMENT, GNU_STACK, EXECUTABLE = b"\x7fELF\x02", 56, 0x6474E551, 1
"""Of elf(5): how a 64-bit file begins, the bytes of a segment's header, PT_GNU_STACK, PF_X."""


@dataclass(frozen=True)
class EnvironmentContents:
    """What an environment's folder holds: its packages, a name twice where it is so, and its Python ``X.Y``.

    ``leftovers`` are folders that a broken uninstall has left, ``hollow`` is a folder torch without a torch in it,
    ``conda`` the names of conda's records. ``executable_stack`` says that torch's library asks for one.
    ``activated`` is the folder that its ``activate`` leads to.
    """

    packages: tuple[InstalledPackage, ...] = ()
    python: str | None = None
    leftovers: tuple[Path, ...] = ()
    hollow: Path | None = None
    conda: tuple[str, ...] = ()
    executable_stack: bool = False
    activated: Path | None = None

    @property
    def by_name(self) -> Mapping[str, InstalledPackage]:
        """The packages by their names."""
        return {package.name: package for package in self.packages}

    def version(self, name: str) -> str:
        """The version of a package; empty where it is not there."""
        return next((package.version for package in self.packages if package.name == name), "")


def read_contents(venv: Path) -> EnvironmentContents:
    """Look into the folder of an environment; of its packages the records are read once a check asks for them."""
    sites = packages_folders(venv)
    torches = [site / "torch" for site in sites]
    return EnvironmentContents(
        packages=read_packages(sites),
        python=_python(venv, sites),
        leftovers=tuple(path for site in sites for path in sorted(site.glob("~*"))),
        hollow=next((torch for torch in torches if torch.is_dir() and not (torch / "__init__.py").exists()), None),
        conda=tuple(path.stem for path in sorted(venv.glob("conda-meta/*.json"))),
        executable_stack=any(asks_for_executable_stack(torch / "lib" / "libtorch_cpu.so") for torch in torches),
        activated=_activated(venv / "bin" / "activate"),
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


def processor_of(library: Path) -> str | None:
    """Name what a library runs on; None where it is no library for Linux, or for a processor without PyTorch."""
    with suppress(OSError), open_regular(library) as file:
        header = file.read(20)
        if header.startswith(ELF_64):
            return PROCESSORS.get(int.from_bytes(header[18:20], "little"))
    return None


def _python(venv: Path, sites: list[Path]) -> str | None:
    with suppress(OSError, ValueError):
        if version := _VERSION_OF_PYTHON.search(read_document(venv / "pyvenv.cfg", venv)):
            return version[1]
    names = (re.fullmatch(r"python(3\.\d+)", site.parent.name) for site in sites)
    return next((name[1] for name in names if name), None)


def _activated(script: Path) -> Path | None:
    """Read the folder that a script of activation names; None where it finds out by itself, or is not there."""
    with suppress(OSError, ValueError):
        if line := _ACTIVATED.search(read_document(script)):
            return Path(line[2])
    return None
