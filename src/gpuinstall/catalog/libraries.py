"""Which packages and libraries do not work beside which torch: the rows of ``libraries.toml``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from gpuinstall.catalog import authored

if TYPE_CHECKING:
    from collections.abc import Mapping

Numbers = tuple[int, ...]
"""A version as numbers, ``(2, 41)``."""


@dataclass(frozen=True)
class Libraries:
    """The bounds. ``bound_companions`` maps a package to the last torch that it is compiled for one minor of."""

    numpy_2: Mapping[str, Numbers]
    mkl_without_symbol: Numbers
    glibc_without_executable_stacks: Numbers
    bound_companions: Mapping[str, Numbers]

    def first_torch_for_numpy_2(self, os: str) -> Numbers:
        """The first torch that was compiled with NumPy 2."""
        return self.numpy_2.get(os, self.numpy_2["any"])


@cache
def load_libraries() -> Libraries:
    """Load the table as shipped."""
    table = authored.read_data("libraries.toml")
    return Libraries(
        numpy_2={os: _numbers(torch) for os, torch in table["numpy_2"].items() if os != "evidence"},
        mkl_without_symbol=_numbers(table["mkl_without_symbol"]["version"]),
        glibc_without_executable_stacks=_numbers(table["refuses_executable_stacks"]["glibc"]),
        bound_companions={row["package"]: _numbers(row["last_torch"]) for row in table["bound_companions"]},
    )


def _numbers(version: str) -> Numbers:
    return tuple(map(int, version.split(".")))
