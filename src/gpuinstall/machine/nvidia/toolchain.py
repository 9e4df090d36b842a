"""Search for nvcc in the same order as torch's ``cpp_extension``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from gpuinstall.base import process
from gpuinstall.base.advice import Hint
from gpuinstall.base.machine import Machine
from gpuinstall.catalog.failures.problems import FixContext, fix
from gpuinstall.machine.children import read_output

_USUAL = "/usr/local/cuda"
_SECONDS = 10.0


class Compiler(NamedTuple):
    """CUDA compiler nvcc, with its path and version."""

    path: str
    version: str
    """The toolkit's version, such as ``12.6``, or empty if unknown."""

    def supports_toolkit(self, toolkit: str) -> bool:
        """Return whether the CUDA major versions match, as torch requires."""
        return self.version.partition(".")[0] == toolkit.partition(".")[0]


def find_compiler(environ: Mapping[str, str]) -> Compiler | None:
    """Return nvcc from CUDA_HOME, CUDA_PATH, PATH, or its default folder."""
    home = environ.get("CUDA_HOME") or environ.get("CUDA_PATH")
    # If one of these variables is set, torch searches nowhere else.
    if home:
        path = _find_nvcc(home)
    else:
        path = process.find_program("nvcc", environ.get("PATH")) or _find_nvcc(_USUAL)
    if path:
        return Compiler(path, _read_version(path))
    return None


def create_toolkit_fix(
    toolkit: str, machine: Machine, package: str
) -> tuple[Hint, ...]:
    """Return the commands that install a CUDA toolkit to build a package."""
    words = {"cuda": toolkit, "toolkit": toolkit.replace(".", "-")}
    context = FixContext.of_machine(machine)
    return fix("F57", context.knowing(**words, extension=package))


def _find_nvcc(home: str) -> str | None:
    return process.find_program("nvcc", str(Path(home, "bin")))


def _read_version(path: str) -> str:
    text = read_output(path, "--version", seconds=_SECONDS)
    release = re.search(r"release (\d+\.\d+)", text)
    return release[1] if release else ""
