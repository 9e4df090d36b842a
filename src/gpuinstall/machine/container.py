"""Detection of WSL, containers, scheduler jobs, and CI runners."""

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

# The first match counts: Kubernetes uses one of the other engines, and Podman's traces include Docker's.
_ENGINES = (
    ("kubernetes", r"kubepods|/kubelet/pods/|kubernetes\.io"),
    ("podman", r"(?m)libpod|/containers/storage/|crio-|^container=podman$"),
    (
        "docker",
        r"(?m)/docker/|docker-[0-9a-f]{12}|buildkit|/moby/|/containerd/|^container=docker$",
    ),
    (
        "lxc",
        # systemd-nspawn runs system containers too.
        r"(?m)/lxc/|lxc\.payload| - fuse\.lxcfs |^container=(lxc(-libvirt)?|systemd-nspawn)$",
    ),
)
"""Traces of engines in cgroups, mounts, and systemd's ``container=``."""

_WINDOWS_DRIVERS = {
    "nvidia": ("nv",),
    "amd": ("u0", "c0", "amd", "ati"),
    "intel": ("iigd", "igdlh", "ki"),
}
"""The prefixes of each vendor's driver folders."""


class ContainerInfo(Value):
    """The container, job, or CI runner of this process."""

    engine: str | None
    job: str | None
    """The variable that shows the scheduler's job."""
    signs: tuple[str, ...]
    """Signs of a host that prepares other machines, such as a CI runner."""

    @property
    def place(self) -> str:
        """The word for messages."""
        return "container" if self.engine else "job"

    @property
    def shares_the_bus(self) -> bool:
        """Whether sysfs, which is not namespaced, may list other GPUs."""
        return self.engine is not None or self.job is not None


def job_devices(
    environ: Mapping[str, str],
    variables: Sequence[str],
) -> dict[str, str]:
    """Return the variables with the devices of a scheduler's job, if in a job.

    Outside a job, the user may have set them for a single program.
    """
    if any(environ.get(job) for job in JOBS):
        return {name: environ[name] for name in variables if name in environ}
    return {}


def read_container(source: Source) -> ContainerInfo:
    """Detect the container, job, and CI runner of this process."""
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
    # Every pod has this variable, with any engine.
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
    is_image = source.text("/.dockerenv") is not None
    if is_image and (not mounts or has_host_files(mounts)):
        return "docker"
    return None


def engine_of(text: str) -> str | None:
    """Return the container engine with traces in the text."""
    for engine, trace in _ENGINES:
        if re.search(trace, text):
            return engine
    return None


def own_mounts(text: str) -> str:
    """Return the lines of mountinfo for the root and the host files.

    A host's mountinfo also lists the mounts of its containers.
    """
    own = ("/", "/proc/cpuinfo", *HOST_FILES)
    return "\n".join(line for line in text.splitlines() if _mount_point(line) in own)


def has_host_files(text: str) -> bool:
    """Return whether an engine mounted its own host files.

    A virtual machine built from an image has ``/.dockerenv`` without such mounts.
    """
    return any(_mount_point(line) in HOST_FILES for line in text.splitlines())


def _mount_point(line: str) -> str:
    return "".join(line.split()[4:5])


class Wsl(Value):
    """Windows Subsystem for Linux."""

    gpu: bool
    """Whether it has a GPU (/dev/dxg)."""
    vendors: frozenset[str]
    """The vendors of the drivers that Windows shares."""


def read_wsl(source: Source, release: str) -> Wsl | None:
    """Detect WSL, also from a container in WSL.

    The container has WSL's kernel and, with a GPU, the same device.

    Args:
        source: The machine.
        release: The kernel's release.
    """
    gpu = source.access("/dev/dxg") is not None
    if not gpu and "microsoft" not in release.lower():
        return None
    folders = [name.lower() for name in source.names("/usr/lib/wsl/drivers")]
    vendors = set()
    for vendor, prefixes in _WINDOWS_DRIVERS.items():
        if any(folder.startswith(prefixes) for folder in folders):
            vendors.add(vendor)
    return Wsl(gpu, frozenset(vendors))
