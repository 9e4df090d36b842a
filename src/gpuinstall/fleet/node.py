"""The unit of a fleet's work: one step on this node, told in one record, whatever started it."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpuinstall.environments.environment import fingerprint, read_marker, read_origin
from gpuinstall.environments.paths import interpreter
from gpuinstall.errors import GpuInstallError, LockError, UsageError, VerificationError
from gpuinstall.fleet import proof
from gpuinstall.fleet.environment import install_group
from gpuinstall.fleet.run_folder import NodeRecord
from gpuinstall.fleet.surroundings import image_tools, link_speed, read_scratch
from gpuinstall.probe import read_machine
from gpuinstall.verify import verify_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from gpuinstall.fleet.environment import Placing
    from gpuinstall.fleet.run_folder import LockGroup, RunFolder
    from gpuinstall.reporter import Reporter
    from gpuinstall.verify import Verdict


@dataclass(frozen=True)
class NodeOrder:
    """Which step to take for which run; ``run`` is the id that the driver gave, None where nobody drives."""

    folder: RunFolder
    step: str
    node: str
    run: str | None = None
    attempt: int = 1

    def carry_out(self, work: Callable[[], Mapping[str, Any]]) -> NodeRecord:
        """Do the work and keep a record of it: one that it has begun, and then how it ended.

        Where the run's folder is not the driver's nothing is done and nothing is written.
        """
        record = NodeRecord(self.run or "", self.node, self.step, self.attempt, started=time.time())
        try:
            record = replace(record, run=self._the_run())
        except GpuInstallError as error:
            return record.failed(error, 0.0)
        return self._kept(record, work)

    def _kept(self, record: NodeRecord, work: Callable[[], Mapping[str, Any]]) -> NodeRecord:
        start = time.monotonic()
        try:
            self.folder.keep(record)
            done = replace(record, status="ok", data=work())
        except GpuInstallError as error:
            done = record.failed(error, time.monotonic() - start)
        done = replace(done, seconds=time.monotonic() - start)
        try:
            self.folder.keep(done)
        except GpuInstallError as error:
            return done.failed(error, done.seconds)
        return done

    def _the_run(self) -> str:
        """The id of the run; raise UsageError where the folder is not the one that the driver wrote it into."""
        if self.run is None:
            self.folder.path.mkdir(parents=True, exist_ok=True)
            return self.folder.read().id
        found = self.folder.read().id if self.folder.path.is_dir() else ""
        if found != self.run:
            raise UsageError(
                "run-folder-not-shared",
                f"{self.node} does not see the run's folder {self.folder.path}",
                hint="--run-dir has to be on a file system that all nodes share",
            )
        return found


def survey(reporter: Reporter) -> dict[str, Any]:
    """What this node is, and what an installation needs to know of it beside its GPUs."""
    return {
        "machine": read_machine(reporter).to_dict(),
        "scratch": read_scratch(os.environ).to_dict(),
        "gigabits": link_speed(),
        "tools": image_tools(),
    }


def install(folder: RunFolder, node: str, placing: Placing, reporter: Reporter) -> dict[str, Any]:
    """Install the lock that the plan has for this node; raise what installing raises."""
    group = group_of(folder, node)
    done = install_group(group, folder, placing, reporter)
    proof.keep(placing.place(group), node, fingerprint(read_machine()), done["verdict"])
    return {"lock": group.name, "sha256": group.sha256, **done}


def verify(folder: RunFolder, node: str, reporter: Reporter, *, deep: bool = False) -> dict[str, Any]:
    """Run the kernels on every GPU of this node; raise VerificationError where one fails."""
    group, venv = group_of(folder, node), environment_of(folder, node)
    marker = read_marker(venv)
    if marker is None or marker.lock_sha256 != group.sha256:
        message = f"{venv} is not the environment of {group.name}"
        raise LockError("environment-stale", message, hint="gpuinstall fleet install")
    machine = read_machine(reporter)
    origin = read_origin(venv, machine)
    verdict = verify_environment(
        interpreter(venv), machine, asked_cpu=origin.for_cpu, gpus=origin.gpus, deep=deep, reporter=reporter
    )
    data = {"lock": group.name, "sha256": group.sha256, "environment": str(venv), "verdict": summary(verdict)}
    proof.keep(venv.parent, node, fingerprint(machine), verdict.status)
    if verdict.status == "failed":
        raise _kernel_failed(verdict, data)
    return data


def summary(verdict: Verdict) -> dict[str, Any]:
    """Say what became of each device; the checks only of one that failed."""
    devices = [
        {
            "index": device.index,
            "name": device.name,
            "status": device.status,
            "failed": [check.to_dict() for check in device.checks if check.status == "failed"],
        }
        for device in verdict.devices
    ]
    return {"status": verdict.status, "devices": devices}


def group_of(folder: RunFolder, node: str) -> LockGroup:
    """The lock that the plan has for a node; raise UsageError where it has none."""
    for group in folder.groups():
        if node in group.nodes:
            return group
    raise UsageError("node-not-planned", f"the plan has no lock for {node}", hint="gpuinstall fleet report says why")


def environment_of(folder: RunFolder, node: str) -> Path:
    """Where a node's environment lies, as its installation said; raise UsageError where there was none."""
    record = folder.record("install", node)
    if record is None or record.status != "ok":
        hint = f"gpuinstall fleet install --run-dir {folder.path}"
        raise UsageError("step-missing", f"nothing is installed on {node} yet", hint=hint)
    return folder.path / str(record.data["environment"])


def _kernel_failed(verdict: Verdict, data: dict[str, Any]) -> VerificationError:
    device = next(device for device in verdict.devices if device.status == "failed")
    fault = device.faults[0]
    message = f"{device.label} ({device.name}): {fault.message}"
    return VerificationError("kernel-failed", message, hint=fault.fix, id=fault.id, data=data)
