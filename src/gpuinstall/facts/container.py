"""What this process was put into: WSL, a container engine, a scheduler's job, a continuous-integration runner."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass

from gpuinstall.facts.source import Source, ThisMachine

JOBS = (
    "SLURM_JOB_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "FLUX_JOB_ID",
    "SGE_TASK_ID",
    "COBALT_JOBID",
    "_CONDOR_SLOT",
)

CGROUP = "/proc/self/cgroup"
MOUNTS = "/proc/self/mountinfo"
WSL_DRIVERS = "/usr/lib/wsl/drivers"
HOST_FILES = ("/etc/hostname", "/etc/hosts", "/etc/resolv.conf")

_ENGINES = (
    ("kubernetes", re.compile(r"kubepods|/kubelet/pods/|kubernetes\.io")),
    ("podman", re.compile(r"libpod|/containers/storage/|crio-")),
    ("docker", re.compile(r"/docker/|docker-[0-9a-f]{12}|buildkit|/moby/|/containerd/")),
    ("lxc", re.compile(r"/lxc/|lxc\.payload| - fuse\.lxcfs ")),
)


@dataclass(frozen=True)
class ContainerInfo:
    """``engine`` is the container's, ``job`` the variable of the scheduler, ``signs`` what a builder looks like."""

    engine: str | None = None
    job: str | None = None
    signs: tuple[str, ...] = ()

    @property
    def shares_the_bus(self) -> bool:
        """Say whether the bus may show cards that this process was not given: sysfs is not namespaced."""
        return self.engine is not None or self.job is not None


@dataclass(frozen=True)
class Wsl:
    """Windows Subsystem for Linux: whether it lent a GPU (/dev/dxg), and the folders of Windows' drivers."""

    gpu: bool = False
    drivers: tuple[str, ...] = ()


def read_container(source: Source) -> ContainerInfo:
    """Read where this process runs."""
    job = next((name for name in JOBS if source.variable(name)), None)
    runner = source.variable("CI")
    slurm = source.answer("slurm.txt", lambda: shutil.which("sbatch") or "")
    signs = (("a CI runner",) if runner else ()) + (("Slurm's commands",) if slurm else ())
    return ContainerInfo(_engine(source), job, signs)


def read_wsl(source: Source, release: str) -> Wsl | None:
    """Read WSL's side; None elsewhere. Containers inside WSL have the same kernel and, with a GPU, the same device."""
    gpu = source.access("/dev/dxg") is not None
    return Wsl(gpu, source.names(WSL_DRIVERS)) if gpu or "microsoft" in release.lower() else None


def _engine(source: Source) -> str | None:
    if source.variable("APPTAINER_CONTAINER") or source.variable("SINGULARITY_CONTAINER"):
        return "apptainer"
    if source.variable("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    mounts = source.answer("own-mounts.txt", lambda: own_mounts(ThisMachine().text(MOUNTS) or ""))
    by_traces = engine_of((source.text(CGROUP) or "") + mounts)
    if by_traces:
        return by_traces
    if source.text("/run/.containerenv") is not None:
        return "podman"
    if source.text("/.dockerenv") is not None and (not mounts or has_host_files(mounts)):
        return "docker"
    return manager_of(source.text("/run/systemd/container") or source.variable("container") or "")


def engine_of(text: str) -> str | None:
    """Name the engine whose traces stand in a process's control groups or in its own mounts."""
    return next((engine for engine, trace in _ENGINES if trace.search(text)), None)


def manager_of(text: str) -> str | None:
    """Name the engine as systemd does; its own containers are system containers, as LXC's are."""
    engines = {
        "docker": "docker",
        "podman": "podman",
        "lxc": "lxc",
        "lxc-libvirt": "lxc",
        "systemd-nspawn": "lxc",
    }
    return engines.get(text.strip())


def own_mounts(text: str) -> str:
    """Keep the lines of mountinfo that an engine makes for the process itself: its root and its host files.

    On a host the mounts of other people's containers are listed as well, and say nothing of this process.
    """
    return "\n".join(
        line
        for line in text.splitlines()
        if _mount_point(line) in ("/", "/proc/cpuinfo", *HOST_FILES)
    )


def has_host_files(text: str) -> bool:
    """Say whether an engine laid its own files over the host's: a virtual machine made of an image keeps its marks."""
    return any(_mount_point(line) in HOST_FILES for line in text.splitlines())


def _mount_point(line: str) -> str:
    fields = line.split()
    return fields[4] if len(fields) > 4 else ""
