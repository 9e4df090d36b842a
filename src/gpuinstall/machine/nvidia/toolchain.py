"""nvcc, found where torch's own ``cpp_extension`` looks for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from gpuinstall.base import process
from gpuinstall.base.machine import Machine
from gpuinstall.catalog.failures.problems import FixContext, fix
from gpuinstall.machine.children import output_of

COMPILED_FOR = "TORCH_CUDA_ARCH_LIST"
"""The variable by which torch's builder is told for which compute capabilities."""

_USUAL = "/usr/local/cuda"
_SECONDS = 10.0


class Compiler(NamedTuple):
    """A compiler."""

    path: str
    version: str
    """That of its toolkit, ``12.6``; empty if it tells none."""

    def serves(self, toolkit: str) -> bool:
        """Whether the majors agree; torch refuses another, and of another minor it only warns."""
        return self.version.partition(".")[0] == toolkit.partition(".")[0]


def find_compiler(environ: Mapping[str, str]) -> Compiler | None:
    """Return nvcc: of CUDA_HOME or CUDA_PATH, which may have none, else on PATH, else at the usual place."""
    home = environ.get("CUDA_HOME") or environ.get("CUDA_PATH")
    # torch looks nowhere else if one of them is set.
    if home:
        path = _nvcc_below(home)
    else:
        path = process.find_program("nvcc", environ.get("PATH")) or _nvcc_below(_USUAL)
    if path:
        return Compiler(path, _version(path))
    return None


def toolkit_fix(toolkit: str, machine: Machine) -> str:
    """Return the commands of the failure's entry that install a toolkit, with the numbers put in."""
    context = FixContext.of_machine(machine)
    context = context.knowing(cuda=toolkit, toolkit=toolkit.replace(".", "-"))
    return "\n".join(fix("F57", context))


def _nvcc_below(home: str) -> str | None:
    return process.find_program("nvcc", str(Path(home, "bin")))


def _version(path: str) -> str:
    text = output_of(path, "--version", seconds=_SECONDS)
    release = re.search(r"release (\d+\.\d+)", text)
    return release[1] if release else ""
