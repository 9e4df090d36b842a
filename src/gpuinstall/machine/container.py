"""What this process was put into: WSL, a container engine, a scheduler's job, a continuous-integration runner."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence

from gpuinstall.base.values import Value
from gpuinstall.machine.source import Source

JOBS = (
    "SLURM_JOB_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "FLUX_JOB_ID",
    "SGE_TASK_ID",
    "COBALT_JOBID",
    "_CONDOR_SLOT",
)

HOST_FILES = ("/etc/hostname", "/etc/hosts", "/etc/resolv.conf")

# Kubernetes runs its containers by one of the others, and Podman leaves traces that look like Docker's.
_ENGINES = (
    ("kubernetes", r"kubepods|/kubelet/pods/|kubernetes\.io"),
    ("podman", r"(?m)libpod|/containers/storage/|crio-|^container=podman$"),
    (
        "docker",
        r"(?m)/docker/|docker-[0-9a-f]{12}|buildkit|/moby/|/containerd/|^container=docker$",
    ),
    (
        "lxc",
        # systemd's own containers are system containers, as LXC's are.
        r"(?m)/lxc/|lxc\.payload| - fuse\.lxcfs |^container=(lxc(-libvirt)?|systemd-nspawn)$",
    ),
)
"""The engines, by the traces in a process's control groups, in its own mounts, and in what systemd says of it."""

_WINDOWS_DRIVERS = {
    "nvidia": ("nv",),
    "amd": ("u0", "c0", "amd", "ati"),
    "intel": ("iigd", "igdlh", "ki"),
}
"""How the folders of each maker's drivers begin."""


class ContainerInfo(Value):
    """What this process was put into."""

    engine: str | None
    """The container's."""

    job: str | None
    """The variable of the scheduler."""

    signs: tuple[str, ...]
    """What a builder looks like."""

    @property
    def place(self) -> str:
        """What it is called within a sentence."""
        return "container" if self.engine else "job"

    @property
    def shares_the_bus(self) -> bool:
        """Whether the bus may show cards that this process was not given: sysfs is not namespaced."""
        return self.engine is not None or self.job is not None


def job_devices(
    environ: Mapping[str, str],
    variables: Sequence[str],
) -> dict[str, str]:
    """Return those of the variables that list the devices of a scheduler's job; none outside a job.

    There they are the user's for some program, and say nothing about what the machine has.
    """
    if any(environ.get(job) for job in JOBS):
        return {name: environ[name] for name in variables if name in environ}
    return {}


def read_container(source: Source) -> ContainerInfo:
    """Read where this process runs."""
    signs = []
    if source.variable("CI"):
        signs.append("a CI runner")
    if source.answer("slurm.txt", lambda: shutil.which("sbatch") or ""):
        signs.append("Slurm's commands")
    return ContainerInfo(
        _engine(source),
        next(filter(source.variable, JOBS), None),
        tuple(signs),
    )


def _engine(source: Source) -> str | None:
    if source.variable("APPTAINER_CONTAINER") or source.variable(
        "SINGULARITY_CONTAINER"
    ):
        return "apptainer"
    # Every pod has this variable, whatever engine runs its containers.
    if source.variable("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    mounts = source.answer(
        "own-mounts.txt",
        lambda: own_mounts(Source().text("/proc/self/mountinfo") or ""),
    )
    manager = source.text("/run/systemd/container") or source.variable("container")
    traces = (
        source.text("/proc/self/cgroup") or "",
        mounts,
        f"container={(manager or '').strip()}",
    )
    by_traces = engine_of("\n".join(traces))
    if by_traces:
        return by_traces
    if source.text("/run/.containerenv") is not None:
        return "podman"
    if source.text("/.dockerenv") is not None and (
        not mounts or has_host_files(mounts)
    ):
        return "docker"
    return None


def engine_of(text: str) -> str | None:
    """Return the engine whose traces stand in a process's control groups or in its own mounts."""
    for engine, trace in _ENGINES:
        if re.search(trace, text):
            return engine
    return None


def own_mounts(text: str) -> str:
    """Return the lines of mountinfo that an engine makes for the process itself: its root and its host files.

    On a host the mounts of other people's containers are listed as well, and tell nothing of this process.
    """
    own = ("/", "/proc/cpuinfo", *HOST_FILES)
    return "\n".join(line for line in text.splitlines() if _mount_point(line) in own)


def has_host_files(text: str) -> bool:
    """Whether an engine laid its own files over the host's: a virtual machine made of an image keeps its marks."""
    return any(_mount_point(line) in HOST_FILES for line in text.splitlines())


def _mount_point(line: str) -> str:
    return "".join(line.split()[4:5])


class Wsl(Value):
    """Windows Subsystem for Linux."""

    gpu: bool
    """Whether it lent a GPU (/dev/dxg)."""

    makers: frozenset[str]
    """Whose drivers Windows has."""


def read_wsl(source: Source, release: str) -> Wsl | None:
    """Read WSL's side; None elsewhere. Containers inside WSL have the same kernel and, with a GPU, the same device."""
    gpu = source.access("/dev/dxg") is not None
    if not gpu and "microsoft" not in release.lower():
        return None
    folders = [name.lower() for name in source.names("/usr/lib/wsl/drivers")]
    makers = set()
    for maker, beginnings in _WINDOWS_DRIVERS.items():
        if any(folder.startswith(beginnings) for folder in folders):
            makers.add(maker)
    return Wsl(gpu, frozenset(makers))
