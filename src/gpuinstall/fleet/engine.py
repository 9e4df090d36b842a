"""What carries a command to the nodes: three small methods; results never come through it, but as records."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol

from gpuinstall.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ENGINES = ("slurm", "ray", "local")


class Engine(Protocol):
    """A launcher that is there already. What it says of its success is not believed."""

    @property
    def name(self) -> str:
        """Its name on the command line."""

    def nodes(self, asked: Sequence[str] | None) -> Mapping[str, str]:
        """The nodes that are meant (None: all of its own), each with what it says of it, "" for nothing.

        Raise UsageError where it has no such node, or cannot say which are meant.
        """

    def run_each(self, command: Sequence[str], nodes: Sequence[str], seconds: float) -> str:
        """Run a command once on each node that it can reach; return what they printed.

        No end within ``seconds`` is the end for all that still run.
        """

    def run_together(self, command: Sequence[str], nodes: Sequence[str], seconds: float) -> str:
        """The same, on all nodes at one time: they wait for each other."""


def open_engine(name: str) -> Engine:
    """Open an engine by its name; raise UsageError where it is not here."""
    if name == "slurm":
        from gpuinstall.fleet.slurm import open_slurm

        return open_slurm()
    if name == "ray":
        from gpuinstall.fleet.ray import open_ray

        return open_ray()
    if name == "local":
        from gpuinstall.fleet.local import open_local

        return open_local()
    hint = f"--engine {'|'.join(ENGINES)}; without one of them, docs/fleet.md: any program that runs a command"
    raise UsageError("engine-unknown", f"{name or 'nothing'} is no engine that gpuinstall knows", hint=hint)


def own_program() -> list[str]:
    """The command line that started us, up to our own arguments: what the nodes run is the very same."""
    own = len(sys.argv) - 1
    return [sys.executable, *sys.orig_argv[1 : len(sys.orig_argv) - own]]
