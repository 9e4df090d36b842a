"""The unit of a fleet's work: one step on this node, told in one record, whatever started it.

A survey says what the node has beside its GPUs: room for environments and its network.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.environments.environment import fingerprint, read_origin
from gpuinstall.environments.paths import EnvironmentPaths, interpreter
from gpuinstall.errors import GpuInstallError, LockError, UsageError, VerificationError
from gpuinstall.files import own_cache_folder
from gpuinstall.fleet.documents import LockGroup, NodeRecord
from gpuinstall.fleet.environment import (
    Placing,
    install_group,
    keep_proof,
    own_environment,
)
from gpuinstall.probe import read_machine
from gpuinstall.shell import quoted
from gpuinstall.values import dataclass
from gpuinstall.verify.runner import verify_environment
from gpuinstall.verify.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpuinstall.fleet.hostlist import NodeName
    from gpuinstall.fleet.run_folder import RunFolder
    from gpuinstall.reporter import Reporter


_NETWORK = Path("/sys/class/net")
_INFINIBAND = Path("/sys/class/infiniband")
_PLACES = (
    "/local_scratch",
    "/localscratch",
    "/scratch/local",
    "/local",
    "/scratch",
    "/var/tmp",  # noqa: S108
)
"""The usual names of local scratch."""
_SHARED = frozenset(
    {
        "nfs",
        "nfs4",
        "lustre",
        "beegfs",
        "gpfs",
        "cephfs",
        "ceph",
        "glusterfs",
        "fuse.glusterfs",
        "9p",
        "cifs",
    }
    | {
        "panfs",
        "orangefs",
        "fuse.juicefs",
        "fuse.sshfs",
        "wekafs",
        "afs",
        "smb3",
        "virtiofs",
    }
)
"""File systems that other nodes see too."""


@dataclass(frozen=True)
class NodeOrder:
    """Which step to take for which run."""

    folder: RunFolder
    step: str
    node: NodeName
    run: str | None = None
    """The id that the driver gave; None without a driver."""
    attempt: int = 1

    def carry_out(self, work: Callable[[], Mapping[str, Any]]) -> NodeRecord:
        """Do the work and keep a record of it: one that it has begun, and then how it ended.

        If the run's folder is not the driver's, nothing is done and nothing is written.
        """
        record = NodeRecord(
            run=self.run or "",
            node=self.node,
            step=self.step,
            attempt=self.attempt,
            started=time.time(),
        )
        try:
            record = replace(record, run=self._run_id())
        except GpuInstallError as error:
            return record.failed(error, 0.0)
        start = time.monotonic()
        try:
            self.folder.keep(record)
            done = replace(
                record,
                status="ok",
                data=work(),
            )
        except GpuInstallError as error:
            done = record.failed(error, 0.0)
        done = replace(done, seconds=time.monotonic() - start)
        try:
            self.folder.keep(done)
        except GpuInstallError as error:
            return done.failed(error, done.seconds)
        return done

    def _run_id(self) -> str:
        """Return the id of the run; raise UsageError if the folder is not the driver's."""
        if self.run is None:
            self.folder.path.mkdir(parents=True, exist_ok=True)
            return self.folder.read().id
        is_shared = self.folder.path.is_dir() and self.folder.read().id == self.run
        if not is_shared:
            message = f"{self.node} cannot see the run folder {self.folder.path}"
            hint = "Use a --run-dir on a file system that all nodes share"
            raise UsageError(
                "run-folder-not-shared",
                message,
                hint=hint,
            )
        return self.run


def survey_node(reporter: Reporter) -> dict[str, Any]:
    """Return what this node is, and what an installation needs to know of it beside its GPUs."""
    scratch = read_scratch(os.environ)
    return {
        "machine": read_machine(reporter).to_dict(),
        "scratch": asdict(scratch) | {"path": str(scratch.path)},
        "gigabits": _network_gigabits(),
    }


def _network_gigabits() -> float | None:
    """Return the rate each way: of InfiniBand's links together, else of the fastest card."""
    links = [_gigabits(rate) for rate in _INFINIBAND.glob("*/ports/*/rate")]
    speeds = [card / "speed" for card in _NETWORK.glob("*") if card.name != "lo"]
    cards = [_gigabits(speed, 1000) for speed in speeds]
    return sum(filter(None, links)) or max(filter(None, cards), default=None)


def install_node(
    folder: RunFolder,
    node: NodeName,
    placing: Placing,
    reporter: Reporter,
) -> dict[str, Any]:
    """Install the lock that the plan has for this node; raise what installing raises."""
    group = group_of(folder, node)
    done = install_group(group, folder, placing, reporter)
    keep_proof(placing.place(group), node, fingerprint(read_machine()), done["verdict"])
    return {"lock": group.name, "sha256": group.sha256, **done}


def verify_node(
    folder: RunFolder,
    node: NodeName,
    root: Path | None,
    reporter: Reporter,
    *,
    deep: bool = False,
) -> dict[str, Any]:
    """Run the kernels on every GPU of this node; raise VerificationError if one fails."""
    group = group_of(folder, node)
    venv = group_environment(folder, group, node, root)
    machine = read_machine(reporter)
    origin = read_origin(venv, machine)
    verdict = verify_environment(
        interpreter(venv),
        machine,
        for_cpu=origin.for_cpu,
        gpus=origin.gpus,
        deep=deep,
        reporter=reporter,
    )
    data = {
        "lock": group.name,
        "sha256": group.sha256,
        "environment": str(venv),
        "verdict": verdict_summary(verdict),
    }
    keep_proof(venv.parent, node, fingerprint(machine), verdict.status)
    if verdict.status == "failed":
        device = next(device for device in verdict.devices if device.status == "failed")
        fault = device.faults[0]
        message = f"{device.label} ({device.name}): {fault.message}"
        raise VerificationError(
            "kernel-failed",
            message,
            hint=fault.fix,
            id=fault.id,
            data=data,
        )
    return data


def verdict_summary(verdict: Verdict) -> dict[str, Any]:
    """Return what became of each device; the checks only of one that failed."""
    devices = []
    for device in verdict.devices:
        failed = [check.to_dict() for check in device.checks if check.status == "failed"]
        devices.append(
            {
                "index": device.index,
                "name": device.name,
                "status": device.status,
                "failed": failed,
            }
        )
    return {"status": verdict.status, "devices": devices}


def group_of(folder: RunFolder, node: NodeName) -> LockGroup:
    """Return the lock that the plan has for a node; raise UsageError if it has none."""
    for group in folder.plan().groups:
        if node in group.nodes:
            return group
    hint = "gpuinstall fleet report --run-dir DIR"
    raise UsageError(
        "node-not-planned",
        f"no lock is planned for {node}",
        hint=hint,
    )


def group_environment(
    folder: RunFolder,
    group: LockGroup,
    node: NodeName,
    root: Path | None,
) -> Path:
    """Return where a node's environment lies, as the record of its installation says.

    Others may have written the record: the place must be one that this node itself would have
    chosen for the plan's lock.

    Raises:
        UsageError: if nothing is installed, or elsewhere.
        LockError: if the environment is another lock's.
    """
    record = folder.record("install", node)
    if record is None or record.status != "ok":
        hint = f"gpuinstall fleet install --run-dir {quoted(folder.path)}"
        raise UsageError(
            "step-missing",
            f"nothing is installed on {node} yet",
            hint=hint,
        )
    roots = [root] if root else [read_scratch(os.environ).path, folder.place("environments")]
    places = {}
    for own_root in roots:
        venv = EnvironmentPaths.at(own_root / group.digest / ".venv").venv
        places[str(venv)] = venv
    recorded = record.data.get("environment")
    if not isinstance(recorded, str) or recorded not in places:
        message = f"install/{node}.json: the environment {recorded!r} is not {' or '.join(places)}"
        hint = "the same with --root DIR   # where it was installed"
        raise UsageError(
            "environment-elsewhere",
            message,
            hint=hint,
        )
    venv = places[recorded]
    if own_environment(venv.parent, group) is None:
        message = f"{venv} is not the environment of {group.name}"
        hint = "gpuinstall fleet install --run-dir DIR"
        raise LockError(
            "environment-stale",
            message,
            hint=hint,
        )
    return venv


@dataclass(frozen=True)
class Scratch:
    """A folder for environments."""

    path: Path
    type: str
    """Of the file system."""
    free: int
    """In bytes."""
    shared: bool
    """Whether other nodes see it too."""


def read_scratch(environ: Mapping[str, str]) -> Scratch:
    """Return the node's own scratch: the given place, a usual local one, or the user's cache."""
    named = environ.get("GPUINSTALL_SCRATCH")
    user = os.getuid() if hasattr(os, "getuid") else "user"
    mounts = _mounts()
    for place in map(Path, [named] if named else _PLACES):
        if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
            scratch = _measured(place / f"gpuinstall-{user}", place, mounts)
            if named or not scratch.shared:
                return scratch
    cache = own_cache_folder()
    there = next(folder for folder in (cache, *cache.parents) if folder.exists())
    return _measured(cache / "environments", there, mounts)


def _mounts() -> dict[str, str]:
    """Return the type of each file system by its mount point: proc(5), mountinfo."""
    mounts: dict[str, str] = {}
    with suppress(OSError):
        text = Path("/proc/self/mountinfo").read_text("utf-8", "replace")
        for line in text.splitlines():
            mount, _, source = line.partition(" - ")
            point = mount.split(" ")[4].replace("\\040", " ")
            mounts[point] = source.split(" ")[0]
    return mounts


def _measured(
    path: Path,
    there: Path,
    mounts: Mapping[str, str],
) -> Scratch:
    kind = "unknown"
    for folder in (there.resolve(), *there.resolve().parents):
        if str(folder) in mounts:
            kind = mounts[str(folder)]
            break
    return Scratch(
        path=path,
        type=kind,
        free=shutil.disk_usage(there).free,
        shared=kind in _SHARED,
    )


def _gigabits(file: Path, unit: int = 1) -> float | None:
    """Read ``400 Gb/sec (4X NDR)`` or a number of Mbit/s; None for a link that is down."""
    with suppress(OSError, ValueError, IndexError):
        rate = float(file.read_text(encoding="ascii").split()[0]) / unit
        if rate > 0:
            return rate
    return None
