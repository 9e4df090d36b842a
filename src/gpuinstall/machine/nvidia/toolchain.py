"""nvcc, found where torch's own ``cpp_extension`` looks for it, or brought by wheels."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from gpuinstall.base import process
from gpuinstall.base.machine import Machine
from gpuinstall.catalog.failures.problems import FixContext, fix_of

_USUAL = "/usr/local/cuda"
WHEEL = "nvidia-cuda-nvcc"
"""Whole since CUDA 13 (tried: 13.3); that of CUDA 12, nvidia-cuda-nvcc-cu12, has ptxas and no nvcc (tried: 12.9)."""
BESIDE = ("nvidia-cuda-cccl", "nvidia-cuda-crt", "nvidia-nvvm")
"""What it needs of its own minor and does not pin; with headers of another nothing compiles (tried: 13.0 and 13.3)."""
FIRST_WHOLE_WHEEL = 13
_SECONDS = 10.0


class Compiler(NamedTuple):
    """A compiler."""

    path: str
    version: str
    """That of its toolkit, ``12.6``; empty if it tells none."""


class Toolchain:
    """nvcc and its headers: no other maker's compiler builds packages here yet."""

    compiler = "nvcc"
    software = "CUDA"
    compiled_for = "TORCH_CUDA_ARCH_LIST"
    """The variable by which torch's builder is told for which compute capabilities."""

    def find(self, environ: Mapping[str, str]) -> Compiler | None:
        """Return nvcc: of CUDA_HOME or CUDA_PATH, which may have none, else on PATH, else at the usual place."""
        home = environ.get("CUDA_HOME") or environ.get("CUDA_PATH")
        if home:
            path = _nvcc_below(home)
        else:
            path = process.find_program("nvcc", environ.get("PATH")) or _nvcc_below(_USUAL)
        return Compiler(path, _version(path)) if path else None

    def serves(self, compiler: str, toolkit: str) -> bool:
        """Whether the majors agree; torch refuses another, and of another minor it only warns."""
        return _major(compiler) == _major(toolkit)

    def wheels(self, toolkit: str) -> tuple[str, ...]:
        """Return the wheels of nvcc and of what torch's own do not bring."""
        if int(_major(toolkit)) < FIRST_WHOLE_WHEEL:
            return ()
        return tuple(f"{name}=={toolkit}.*" for name in (WHEEL, *BESIDE))

    def home_in(self, site_packages: str, versions: Mapping[str, str]) -> str | None:
        """Return the folder that every wheel of one CUDA major shares."""
        compiler = self.from_wheels(versions)
        if compiler is None:
            return None
        return f"{site_packages}/nvidia/cu{_major(compiler.version)}"

    def from_wheels(self, versions: Mapping[str, str]) -> Compiler | None:
        """Return the nvcc of a wheel."""
        version = versions.get(WHEEL)
        if version is None or int(_major(version)) < FIRST_WHOLE_WHEEL:
            return None
        major, minor = version.split(".")[:2]
        return Compiler(WHEEL, f"{major}.{minor}")

    def settings(self, home: str) -> Mapping[str, str]:
        """Return CUDA_HOME, before which torch looks nowhere."""
        return {"CUDA_HOME": home}

    def fix(self, toolkit: str, machine: Machine) -> str | None:
        """Return the commands of the failure's entry, with the numbers put in."""
        context = FixContext.of_machine(machine)
        dashed = toolkit.replace(".", "-")
        return fix_of("F57", context.knowing(cuda=toolkit, toolkit=dashed))


def _major(version: str) -> str:
    return version.partition(".")[0]


def _nvcc_below(home: str) -> str | None:
    return shutil.which("nvcc", path=str(Path(home, "bin")))


def _version(path: str) -> str:
    try:
        text = process.run([path, "--version"], seconds=_SECONDS).out
    except OSError:
        return ""
    release = re.search(r"release (\d+\.\d+)", text)
    return release[1] if release else ""
