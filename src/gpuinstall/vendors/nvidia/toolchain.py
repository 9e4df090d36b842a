"""nvcc, found where torch's own ``cpp_extension`` looks for it, or brought by wheels."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from gpuinstall import process
from gpuinstall.failures.problems import FixContext, fix_of
from gpuinstall.machine import Machine

_USUAL = "/usr/local/cuda"
WHEEL = "nvidia-cuda-nvcc"
"""Whole since CUDA 13 (tried: 13.3); that of CUDA 12, nvidia-cuda-nvcc-cu12, has ptxas and no nvcc (tried: 12.9)."""
BESIDE = ("nvidia-cuda-cccl", "nvidia-cuda-crt", "nvidia-nvvm")
"""What it needs of its own minor and does not pin; with headers of another nothing compiles (tried: 13.0 and 13.3)."""
FIRST_WHOLE_WHEEL = 13
_SECONDS = 10.0


class Compiler(NamedTuple):
    """A compiler: its path, and the version of its toolkit, ``12.6`` (empty where it says none)."""

    path: str
    version: str


class Toolchain:
    """nvcc and its headers: no other maker's compiler builds packages here yet."""

    compiler = "nvcc"
    software = "CUDA"
    compiled_for = "TORCH_CUDA_ARCH_LIST"
    """The variable by which torch's builder is told for which compute capabilities."""

    def find(self, environ: Mapping[str, str]) -> Compiler | None:
        """Find nvcc: in CUDA_HOME, CUDA_PATH, on PATH, at the usual place; what is named and not there is not found."""
        path = next(_places(environ), None)
        return Compiler(path, _version(path)) if path and Path(path).is_file() else None

    def serves(self, compiler: str, wanted: str) -> bool:
        """Say whether the majors agree; torch refuses another, and of another minor it only warns."""
        return compiler.partition(".")[0] == wanted.partition(".")[0]

    def wheels(self, wanted: str) -> tuple[str, ...]:
        """The wheels of nvcc and of what torch's own do not bring."""
        if int(wanted.partition(".")[0]) < FIRST_WHOLE_WHEEL:
            return ()
        return tuple(f"{name}=={wanted}.*" for name in (WHEEL, *BESIDE))

    def home_in(self, site_packages: str, versions: Mapping[str, str]) -> str | None:
        """The folder that every wheel of one CUDA major shares."""
        compiler = self.from_wheels(versions)
        return (
            f"{site_packages}/nvidia/cu{compiler.version.partition('.')[0]}" if compiler else None
        )

    def from_wheels(self, versions: Mapping[str, str]) -> Compiler | None:
        """The nvcc that a wheel brings."""
        version = ".".join(versions.get(WHEEL, "").split(".")[:2])
        return (
            Compiler(WHEEL, version)
            if version and int(version.partition(".")[0]) >= FIRST_WHOLE_WHEEL
            else None
        )

    def settings(self, home: str) -> Mapping[str, str]:
        """CUDA_HOME, before which torch looks nowhere."""
        return {"CUDA_HOME": home}

    def fix(self, wanted: str, machine: Machine) -> str | None:
        """The commands of the failure's entry, with the numbers put in."""
        context = FixContext.of_machine(machine).knowing(
            cuda=wanted, toolkit=wanted.replace(".", "-")
        )
        return fix_of("F57", context)


def _places(environ: Mapping[str, str]) -> Iterator[str]:
    if home := environ.get("CUDA_HOME") or environ.get("CUDA_PATH"):
        yield shutil.which("nvcc", path=str(Path(home) / "bin")) or str(Path(home) / "bin" / "nvcc")
    if path := process.find_program("nvcc", environ.get("PATH")):
        yield path
    if path := shutil.which("nvcc", path=str(Path(_USUAL) / "bin")):
        yield path


def _version(path: str) -> str:
    try:
        text = process.run([path, "--version"], seconds=_SECONDS).out
    except OSError:
        return ""
    release = re.search(r"release (\d+\.\d+)", text)
    return release[1] if release else ""
