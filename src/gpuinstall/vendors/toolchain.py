"""What compiles code for a maker's GPUs, as far as it is on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.machine import Machine


class Compiler(NamedTuple):
    """A compiler that was found: its path, and the version of its toolkit, ``12.6`` (empty where it says none)."""

    path: str
    version: str


class Toolchain(Protocol):
    """A maker's compiler; torch takes the one of its own toolkit."""

    @property
    def compiler(self) -> str:
        """What people call it, ``nvcc``."""

    @property
    def software(self) -> str:
        """What its versions are of, ``CUDA``."""

    def find(self, environ: Mapping[str, str]) -> Compiler | None:
        """Find the compiler that torch would take."""

    def serves(self, compiler: str, wanted: str) -> bool:
        """Say whether torch of one toolkit takes the compiler of another."""

    def wheels(self, wanted: str) -> tuple[str, ...]:
        """The requirements that bring the compiler of a toolkit as wheels; none where there are no such wheels."""

    def home_in(self, site_packages: str, versions: Mapping[str, str]) -> str | None:
        """The folder of the toolkit that such wheels make, where they are among ``versions``."""

    def from_wheels(self, versions: Mapping[str, str]) -> Compiler | None:
        """The compiler that the packages of an environment bring."""

    def settings(self, home: str) -> Mapping[str, str]:
        """The variables with which torch finds a toolkit."""

    def fix(self, wanted: str, machine: Machine) -> str | None:
        """How to have the compiler of a toolkit on a machine, as commands."""
