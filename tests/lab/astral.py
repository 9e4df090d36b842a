"""Astral's index as its documents say that it is: for which torch, CUDA, Python and GPUs each project is built.

Every file is a small wheel with a library that is compiled here: it needs the CUDA, uses symbols of the torch and has
code for the GPUs that the documents name; where they name none, those that the project's own setup.py has. The lists
are of 2026-11-21 (README tables and plan-matrix.py of astral-sh-build's builders); the live ones may be longer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from tests.lab.extension_index import ExtensionIndex
from tests.lab.native import native_library
from tests.unit.wheels.made import fatbin
from tests.unit.wheels.test_needs import FROM_2_9, UNTIL_2_8

MATRIX = {
    "2.4": "12.1 12.4",
    "2.5": "12.1 12.4",
    "2.6": "12.4 12.6",
    "2.7": "12.6 12.8",
    "2.8": "12.6 12.8 12.9",
    "2.9": "12.6 12.8 12.9 13.0",
    "2.10": "12.6 12.8 12.9 13.0",
    "2.11": "12.6 12.8 12.9 13.0",
    "2.12": "12.6 13.0 13.2",
}
"""The CUDAs of each torch, for Linux on x86_64."""
EVERY = MATRIX | {"2.13": "12.6 13.0 13.2"}
PYG = {
    "2.10": "12.6 12.8 13.0",
    "2.11": "12.6 12.8 13.0",
    "2.12": "12.6 13.0 13.2",
    "2.13": "12.6 13.0 13.2",
    "2.14": "12.6 13.0 13.2",
}
OWN = {"flash-attn": "80 90 100 110 120", "flash-attn-3": "90a", "sageattn3": "100 120"}
"""Architectures that a project's own setup.py has: those that CUDA knows."""


def _torches(first: str, last: str) -> dict[str, str]:
    """A part of the matrix."""
    minors = list(EVERY)
    return {minor: EVERY[minor] for minor in minors[minors.index(first) : minors.index(last) + 1]}


PROJECTS = {
    "flash-attn": ("2.8.3 2.8.3.post1", MATRIX),
    "flash-attn-3": ("3.0.0b1", _torches("2.6", "2.12")),
    "sageattention": ("2.2.0", MATRIX),
    "sageattn3": ("2.2.0", _torches("2.7", "2.11")),
    "mamba-ssm": ("2.3.1 2.3.2.post1", _torches("2.4", "2.11")),
    "causal-conv1d": ("1.6.2.post1 1.7.0", MATRIX),
    "deepspeed": ("0.19.1 0.19.2", _torches("2.7", "2.13")),
    "transformer-engine-torch": ("2.15 2.16", EVERY),
    "pyg-lib": ("0.9.0", PYG),
    "torch-scatter": ("2.1.2", _torches("2.4", "2.10")),
    "pytorch3d": (
        "0.7.8 0.7.9",
        {minor: re.sub(r" 13\.\d", "", cudas) for minor, cudas in MATRIX.items()},
    ),
    "mmcv": ("2.2.0", MATRIX),
    "detectron2": ("0.6", _torches("2.4", "2.10")),
}
PYTHONS = ("cp310", "cp311", "cp312", "cp313")


def astral_index(
    folder: Path, names: Iterable[str] = PROJECTS, more: bytes = b""
) -> ExtensionIndex:
    """List what the projects have; the libraries are compiled in ``folder``, with ``more`` bytes of code."""
    index, libraries = ExtensionIndex(), dict[tuple[str, ...], Path]()
    for name in names:
        versions, matrix = PROJECTS[name]
        for minor, cudas in matrix.items():
            for cuda in cudas.split():
                numbers = _architectures(name, minor, cuda)
                key = (*numbers, cuda.partition(".")[0], _symbol(minor))
                if key not in libraries:
                    libraries[key] = _library(
                        folder / f"{len(libraries)}.so", numbers, key[-2], key[-1], more
                    )
                for version in versions.split():
                    for python in PYTHONS:
                        index.add(
                            f"cu{cuda.replace('.', '')}",
                            name,
                            f"cu.{cuda}.torch.{minor}",
                            libraries[key],
                            version=version,
                            requires=f"torch=={minor}.*",
                            tag=f"{python}-{python}-manylinux_2_28_x86_64",
                        )
    return index


def _architectures(name: str, minor: str, cuda: str) -> list[str]:
    """The architectures of the code; ``+90`` is PTX."""
    newest = 90 if cuda < "12.8" else 120
    if name in OWN:
        unknown = {"110"} if cuda < "13" else set()
        return [
            one
            for one in OWN[name].split()
            if int(one.rstrip("a")) <= newest and one not in unknown
        ]
    old = ["70", "75"] if cuda < "13" else ["75"]
    later = ["110"] if cuda == "13.0" and minor in {"2.9", "2.10", "2.11"} else []
    return [
        *old,
        "80",
        "86",
        "90",
        *(["100", *later, "120"] if newest == 120 else []),
        f"+{newest}",
    ]


def _symbol(minor: str) -> str:
    return UNTIL_2_8 if tuple(map(int, minor.split("."))) < (2, 9) else FROM_2_9


def _library(file: Path, numbers: Iterable[str], cuda: str, symbol: str, more: bytes) -> Path:
    code = fatbin(
        *(
            (1 if "+" in one else 2, int(one.rstrip("a")), 0x100000 * one.endswith("a"))
            for one in numbers
        )
    )
    needs = ("libtorch.so", "libc10.so", f"libcudart.so.{cuda}")
    return native_library(file, undefined=[symbol], needs=needs, code=code * 3 + more)
