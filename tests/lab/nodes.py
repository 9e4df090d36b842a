"""Nodes of a fleet that the lab plays: every node is a process with a driver, a scratch and a cache of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.lab.driver import FakeDriver, FakeGpu, environment
from tests.lab.workshop import Workshop

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping
    from pathlib import Path

    from gpuinstall.process import Finished

H100 = FakeDriver(
    gpus=(FakeGpu("NVIDIA H100 80GB HBM3", cc="9.0", memory_mib=81559, pci="10de:2330"),) * 2,
)
A100 = FakeDriver(
    gpus=(FakeGpu("NVIDIA A100-SXM4-80GB", cc="8.0", memory_mib=81920, pci="10de:20b2"),) * 2,
    driver="535.183.01",
    cuda=12020,
)
V100 = FakeDriver(
    gpus=(FakeGpu("Tesla V100-SXM2-32GB", cc="7.0", memory_mib=32768, pci="10de:1db5"),),
    driver="470.256.02",
    cuda=11040,
)
BROKEN = replace(H100, cu_init=803)
CLASSES = {"n1": H100, "n2": A100, "n3": V100, "n4": BROKEN}


@dataclass(frozen=True)
class Nodes:
    """Nodes of a fleet, and the command line that uses them."""

    folder: Path
    """Where each node has a folder, and the run its own."""
    workshop: Workshop
    """Where the command line runs."""
    variables: dict[str, dict[str, str] | None]
    """Those of each node; None for a node that is down."""

    @classmethod
    def played(
        cls,
        folder: Path,
        drivers: Mapping[str, FakeDriver],
        libraries: Path,
        variables: Mapping[str, str],
    ) -> Nodes:
        """Make a node of each driver; ``variables`` are those of all."""
        variables_of: dict[str, dict[str, str] | None] = {}
        for name, driver in drivers.items():
            scratch = folder / name / "scratch"
            scratch.mkdir(parents=True)
            played = environment(driver, libraries, scratch.parent)
            variables_of[name] = {
                "GPUINSTALL_SCRATCH": str(scratch),
                "LAB_GPUS": played["LAB_GPUS"],
                "LD_LIBRARY_PATH": played["LD_LIBRARY_PATH"],
            }
        common = {
            **variables,
            "COLUMNS": "150",
            "GPUINSTALL_LOCAL_NODES": str(folder / "nodes.json"),
        }
        nodes = cls(folder, Workshop(folder, folder / "caches", common), variables_of)
        nodes.write()
        return nodes

    @property
    def run_dir(self) -> Path:
        """The folder of the run."""
        return self.folder / "run"

    def change(self, node: str, **variables: str) -> None:
        """Give a node further variables."""
        self.variables[node] = {**(self.variables[node] or {}), **variables}
        self.write()

    def take_down(self, node: str) -> None:
        """Let a node be down."""
        self.variables[node] = None
        self.write()

    def write(self) -> None:
        """Write the file that the engine reads."""
        (self.folder / "nodes.json").write_text(json.dumps(self.variables), encoding="utf-8")

    def fleet(self, command: str, *arguments: str, exit_code: int = 0) -> Any:
        """Run a command of the fleet with ``--json``; return its data."""
        return self.document(command, *arguments, exit_code=exit_code)["data"]

    def document(self, command: str, *arguments: str, exit_code: int = 0) -> dict[str, Any]:
        """Run a command of the fleet with ``--json``; return the envelope."""
        words = self._words(command, *arguments)
        return self.workshop.document(*words, exit_code=exit_code)

    def run(self, command: str, *arguments: str) -> Finished:
        """Run a command of the fleet as a person does."""
        return self.workshop.run(*self._words(command, *arguments))

    def start(self, command: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a command of the fleet as a person does."""
        return self.workshop.start(*self._words(command, *arguments))

    def states(self, step: str, data: Mapping[str, Any]) -> dict[str, str]:
        """Return what a report says of a step, by node."""
        states = {}
        for node, steps in data["nodes"].items():
            if step in steps:
                states[node] = steps[step]["state"]
        return states

    def _words(self, command: str, *arguments: str) -> tuple[str, ...]:
        return ("fleet", command, "--run-dir", str(self.run_dir), *arguments)
