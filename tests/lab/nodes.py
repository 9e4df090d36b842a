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
    (FakeGpu("NVIDIA H100 80GB HBM3", cc="9.0", memory_mib=81559, pci="10de:2330"),) * 2
)
A100 = FakeDriver(
    (FakeGpu("NVIDIA A100-SXM4-80GB", cc="8.0", memory_mib=81920, pci="10de:20b2"),) * 2,
    "535.183.01",
    12020,
)
V100 = FakeDriver(
    (FakeGpu("Tesla V100-SXM2-32GB", cc="7.0", memory_mib=32768, pci="10de:1db5"),),
    "470.256.02",
    11040,
)
BROKEN = replace(H100, cu_init=803)
CLASSES = {"n1": H100, "n2": A100, "n3": V100, "n4": BROKEN}


@dataclass(frozen=True)
class Nodes:
    """Nodes below ``folder``, each with its driver; the command line runs in ``workshop``."""

    folder: Path
    workshop: Workshop
    variables: dict[str, dict[str, str] | None]

    @classmethod
    def played(
        cls,
        folder: Path,
        drivers: Mapping[str, FakeDriver],
        libraries: Path,
        variables: Mapping[str, str],
    ) -> Nodes:
        """Make a node of each driver; ``variables`` are those of all."""
        told: dict[str, dict[str, str] | None] = {}
        for name, driver in drivers.items():
            own = folder / name
            (own / "scratch").mkdir(parents=True)
            played = environment(driver, libraries, own)
            keys = ("LAB_GPUS", "LD_LIBRARY_PATH")
            told[name] = {
                "GPUINSTALL_SCRATCH": str(own / "scratch"),
                **{key: played[key] for key in keys},
            }
        nodes = cls(
            folder, Workshop(folder, folder / "caches", {**variables, "COLUMNS": "150"}), told
        )
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

    def take_down(self, node: str) -> dict[str, str] | None:
        """Let a node be down; return what brings it up again."""
        before, self.variables[node] = self.variables[node], None
        self.write()
        return before

    def bring_up(self, node: str, variables: dict[str, str] | None) -> None:
        """Let it be up."""
        self.variables[node] = variables
        self.write()

    def write(self) -> None:
        """Write the file that the engine reads."""
        (self.folder / "nodes.json").write_text(json.dumps(self.variables), encoding="utf-8")

    def fleet(self, command: str, *arguments: str, exit_code: int = 0) -> Any:
        """Run a command of the fleet with ``--json``; return its data."""
        return self.document(command, *arguments, exit_code=exit_code)["data"]

    def document(self, command: str, *arguments: str, exit_code: int = 0) -> dict[str, Any]:
        """Run a command of the fleet with ``--json``; return the envelope."""
        return self._local.document("fleet", command, *self._where, *arguments, exit_code=exit_code)

    def run(self, command: str, *arguments: str) -> Finished:
        """Run a command of the fleet as a person does."""
        return self._local.run("fleet", command, *self._where, *arguments)

    def start(self, command: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a command of the fleet as a person does."""
        return self._local.start("fleet", command, *self._where, *arguments)

    def states(self, step: str, data: Mapping[str, Any]) -> dict[str, str]:
        """What a report says of a step, by node."""
        return {
            node: steps[step]["state"] for node, steps in data["nodes"].items() if step in steps
        }

    @property
    def _where(self) -> tuple[str, ...]:
        return ("--run-dir", str(self.run_dir))

    @property
    def _local(self) -> Workshop:
        told = {
            **self.workshop.variables,
            "GPUINSTALL_LOCAL_NODES": str(self.folder / "nodes.json"),
        }
        return replace(self.workshop, variables=told)
