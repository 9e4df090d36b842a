"""The unit of a fleet's work: one step on this node, told in one record, whatever started it.

A survey says what the node has beside its GPUs: room for environments and its network.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.environments.environment import fingerprint, read_origin
from gpuinstall.environments.paths import EnvironmentPaths, interpreter
from gpuinstall.errors import GpuInstallError, LockError, UsageError, VerificationError
from gpuinstall.files import own_cache_folder
from gpuinstall.fleet.documents import LockGroup, NodeRecord
from gpuinstall.fleet.environment import Placing, install_group, keep_proof, own_environment
from gpuinstall.probe import read_machine
from gpuinstall.shell import quoted
from gpuinstall.verify.runner import verify_environment
from gpuinstall.verify.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpuinstall.fleet.hostlist import NodeName
    from gpuinstall.fleet.run_folder import RunFolder
    from gpuinstall.reporter import Reporter


_NETWORK, _INFINIBAND = Path("/sys/class/net"), Path("/sys/class/infiniband")
_PLACES = ("/local_scratch", "/localscratch", "/scratch/local", "/local", "/scratch", "/var/tmp")  # noqa: S108
_SHARED = frozenset(
    {"nfs", "nfs4", "lustre", "beegfs", "gpfs", "cephfs", "ceph", "glusterfs", "fuse.glusterfs", "9p", "cifs"}
    | {"panfs", "orangefs", "fuse.juicefs", "fuse.sshfs", "wekafs", "afs", "smb3", "virtiofs"}
)
"""File systems that other nodes see too."""


@dataclass(frozen=True)
class NodeOrder:
    """Which step to take for which run; ``run`` is the id that the driver gave, None where nobody drives."""

    folder: RunFolder
    step: str
    node: NodeName
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
        identity = self.folder.read().id if self.folder.path.is_dir() else ""
        if identity != self.run:
            message = f"{self.node} cannot see the run folder {self.folder.path}"
            hint = "Use a --run-dir on a file system that all nodes share"
            raise UsageError("run-folder-not-shared", message, hint=hint)
        return identity


def survey_node(reporter: Reporter) -> dict[str, Any]:
    """What this node is, and what an installation needs to know of it beside its GPUs."""
    scratch = read_scratch(os.environ)
    # In Gbit/s each way: InfiniBand's links where there are any, else the fastest card; None where nothing is said.
    fabric = [_gigabits(rate) for rate in _INFINIBAND.glob("*/ports/*/rate")]
    cards = [_gigabits(speed, 1000) for speed in _NETWORK.glob("*/speed") if speed.parent.name != "lo"]
    return {
        "machine": read_machine(reporter).to_dict(),
        "scratch": asdict(scratch) | {"path": str(scratch.path)},
        "gigabits": sum(filter(None, fabric)) or max(filter(None, cards), default=None),
    }


def install_node(folder: RunFolder, node: NodeName, placing: Placing, reporter: Reporter) -> dict[str, Any]:
    """Install the lock that the plan has for this node; raise what installing raises."""
    group = group_of(folder, node)
    done = install_group(group, folder, placing, reporter)
    keep_proof(placing.place(group), node, fingerprint(read_machine()), done["verdict"])
    return {"lock": group.name, "sha256": group.sha256, **done}


def verify_node(
    folder: RunFolder, node: NodeName, root: Path | None, reporter: Reporter, *, deep: bool = False
) -> dict[str, Any]:
    """Run the kernels on every GPU of this node; raise VerificationError where one fails."""
    group = group_of(folder, node)
    venv = group_environment(folder, group, node, root)
    machine = read_machine(reporter)
    origin = read_origin(venv, machine)
    meant: dict[str, Any] = {"asked_cpu": origin.for_cpu, "gpus": origin.gpus}
    verdict = verify_environment(interpreter(venv), machine, **meant, deep=deep, reporter=reporter)
    data = {"lock": group.name, "sha256": group.sha256, "environment": str(venv), "verdict": verdict_summary(verdict)}
    keep_proof(venv.parent, node, fingerprint(machine), verdict.status)
    if verdict.status == "failed":
        device = next(device for device in verdict.devices if device.status == "failed")
        fault = device.faults[0]
        message = f"{device.label} ({device.name}): {fault.message}"
        raise VerificationError("kernel-failed", message, hint=fault.fix, id=fault.id, data=data)
    return data


def verdict_summary(verdict: Verdict) -> dict[str, Any]:
    """Say what became of each device; the checks only of one that failed."""
    devices = []
    for device in verdict.devices:
        failed = [check.to_dict() for check in device.checks if check.status == "failed"]
        devices.append({"index": device.index, "name": device.name, "status": device.status, "failed": failed})
    return {"status": verdict.status, "devices": devices}


def group_of(folder: RunFolder, node: NodeName) -> LockGroup:
    """The lock that the plan has for a node; raise UsageError where it has none."""
    for group in folder.plan().groups:
        if node in group.nodes:
            return group
    raise UsageError("node-not-planned", f"no lock is planned for {node}", hint="gpuinstall fleet report --run-dir DIR")


def group_environment(folder: RunFolder, group: LockGroup, node: NodeName, root: Path | None) -> Path:
    """Where a node's environment lies, as its installation said; raise UsageError where there was none.

    Others may have written the record: the place is one that this node itself would have chosen for the plan's lock.
    """
    record = folder.record("install", node)
    if record is None or record.status != "ok":
        hint = f"gpuinstall fleet install --run-dir {quoted(folder.path)}"
        raise UsageError("step-missing", f"nothing is installed on {node} yet", hint=hint)
    roots = [root] if root else [read_scratch(os.environ).path, folder.place("environments")]
    places = [EnvironmentPaths.at(place / group.digest / ".venv").venv for place in roots]
    named = record.data.get("environment")
    venv = next((place for place in places if str(place) == named), None)
    if venv is None:
        message = f"install/{node}.json: the environment {named!r} is not {' or '.join(map(str, places))}"
        raise UsageError("environment-elsewhere", message, hint="the same with --root DIR   # where it was installed")
    if own_environment(venv.parent, group) is None:
        message = f"{venv} is not the environment of {group.name}"
        raise LockError("environment-stale", message, hint="gpuinstall fleet install --run-dir DIR")
    return venv


@dataclass(frozen=True)
class Scratch:
    """A folder for environments, the file system that it lies on and the bytes that are free; ``shared``: not local."""

    path: Path
    type: str
    free: int
    shared: bool


def read_scratch(environ: Mapping[str, str]) -> Scratch:
    """Find the node's own scratch: the place that is named, a usual one that is local, or else the user's cache."""
    named = environ.get("GPUINSTALL_SCRATCH")
    usual = [Path(place) for place in ((named,) if named else _PLACES)]
    mounts: dict[str, str] = {}  # the type of each file system by its mount point: proc(5), mountinfo
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text("utf-8", "replace").splitlines():
            head, _, tail = line.partition(" - ")
            mounts[head.split(" ")[4].replace("\\040", " ")] = tail.split(" ")[0]
    for place in usual:
        if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
            user = os.getuid() if hasattr(os, "getuid") else "user"
            scratch = _measured(place / f"gpuinstall-{user}", place, mounts)
            if named or not scratch.shared:
                return scratch
    cache = own_cache_folder()
    there = next(folder for folder in (cache, *cache.parents) if folder.exists())
    return _measured(cache / "environments", there, mounts)


def _measured(path: Path, there: Path, mounts: Mapping[str, str]) -> Scratch:
    point = next((str(folder) for folder in (there.resolve(), *there.resolve().parents) if str(folder) in mounts), "/")
    kind = mounts.get(point, "unknown")
    return Scratch(path, kind, shutil.disk_usage(there).free, kind in _SHARED)


def _gigabits(file: Path, unit: int = 1) -> float | None:
    """Read ``400 Gb/sec (4X NDR)`` or a number of Mbit/s; a link that is down says nothing, or -1."""
    with suppress(OSError, ValueError, IndexError):
        rate = float(file.read_text(encoding="ascii").split()[0]) / unit
        return rate if rate > 0 else None
    return None
