"""Detection of WSL, containers, scheduler jobs, and CI runners."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from os.path import isfile

from gpuinstall.base.values import Value
from gpuinstall.base.vendors import VENDOR_ROWS
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

# The first matching pattern determines the engine. Kubernetes uses one of the other engines, and Podman's cgroups and
# mounts also match the pattern of Docker.
_ENGINES = (
    ("kubernetes", r"kubepods|/kubelet/pods/|kubernetes\.io"),
    ("podman", r"(?m)libpod|/containers/storage/|crio-|^container=podman$"),
    (
        "docker",
        r"(?m)/docker/|docker-[0-9a-f]{12}|buildkit|/moby/|/containerd/|^container=docker$",
    ),
    (
        "lxc",
        # systemd-nspawn also runs system containers.
        r"(?m)/lxc/|lxc\.payload| - fuse\.lxcfs |^container=(lxc(-libvirt)?|systemd-nspawn)$",
    ),
)
"""Patterns that identify container engines in cgroups, mounts, and systemd."""


class ContainerInfo(Value):
    """Container, scheduler job, or CI runner in which this process runs."""

    engine: str | None
    job: str | None
    """The environment variable that identifies the scheduler job."""
    signs: tuple[str, ...]
    """Evidence that this host builds or submits jobs for other machines."""

    @property
    def place(self) -> str:
        """The surroundings in messages: ``container`` or ``job``."""
        return "container" if self.engine else "job"

    @property
    def has_shared_bus(self) -> bool:
        """Whether sysfs may list GPUs that belong to other processes."""
        return self.engine is not None or self.job is not None


def read_job_devices(variables: Sequence[str]) -> dict[str, str]:
    """Return the environment variables that list a scheduler job's GPUs.

    The result is empty outside a job, where the user may have set these variables for
    another program.
    """
    if any(map(os.environ.get, JOBS)):
        return {name: os.environ[name] for name in variables if name in os.environ}
    return {}


def read_container(source: Source) -> ContainerInfo:
    """Detect the container, job, and CI runner of this process."""
    signs = []
    if source.variable("CI"):
        signs.append("a CI runner")
    if source.answer("slurm.txt", _find_sbatch):
        signs.append("Slurm's commands")
    return ContainerInfo(
        _read_engine(source),
        next(filter(source.variable, JOBS), None),
        tuple(signs),
    )


def _find_sbatch() -> str:
    """Return the path of Slurm's sbatch, or ""."""
    # shutil.which is slow to import.
    paths = (f"{folder}/sbatch" for folder in os.get_exec_path())
    return next(filter(isfile, paths), "")


def _read_engine(source: Source) -> str | None:
    if source.variable("APPTAINER_CONTAINER") or source.variable(
        "SINGULARITY_CONTAINER"
    ):
        return "apptainer"
    # Kubernetes sets this variable in every pod, whatever the engine.
    if source.variable("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    mounts = source.answer(
        "own-mounts.txt",
        lambda: select_own_mounts(Source().text("/proc/self/mountinfo") or ""),
    )
    manager = source.text("/run/systemd/container") or source.variable("container")
    traces = (
        source.text("/proc/self/cgroup") or "",
        mounts,
        f"container={(manager or '').strip()}",
    )
    by_traces = detect_engine("\n".join(traces))
    if by_traces:
        return by_traces
    if source.text("/run/.containerenv") is not None:
        return "podman"
    is_image = source.text("/.dockerenv") is not None
    if is_image and (not mounts or has_host_file_mounts(mounts)):
        return "docker"
    return None


def detect_engine(text: str) -> str | None:
    """Return the container engine that the text identifies, if any."""
    for engine, trace in _ENGINES:
        if re.search(trace, text):
            return engine
    return None


def select_own_mounts(text: str) -> str:
    """Return the mountinfo lines of the root and of files from the host.

    On a host, mountinfo also lists the mounts of containers.
    """
    own = ("/", "/proc/cpuinfo", *HOST_FILES)
    return "\n".join(
        line for line in text.splitlines() if _parse_mount_point(line) in own
    )


def has_host_file_mounts(text: str) -> bool:
    """Return whether a container engine mounted host files.

    A virtual machine that was built from an image has ``/.dockerenv`` but no such mounts.
    """
    return any(_parse_mount_point(line) in HOST_FILES for line in text.splitlines())


def _parse_mount_point(line: str) -> str:
    return "".join(line.split()[4:5])


class Wsl(Value):
    """Windows Subsystem for Linux."""

    gpu: bool
    """Whether WSL has a GPU, which is the device /dev/dxg."""
    vendors: frozenset[str]
    """The vendors whose GPU drivers Windows shares with WSL."""


def read_wsl(source: Source, release: str) -> Wsl | None:
    """Detect WSL, even from a container in WSL.

    A container uses WSL's kernel and, if it has a GPU, the same device.

    Args:
        source: The source of machine facts.
        release: The kernel release.
    """
    gpu = source.access("/dev/dxg") is not None
    if not gpu and "microsoft" not in release.lower():
        return None
    folders = [name.lower() for name in source.names("/usr/lib/wsl/drivers")]
    vendors = {
        row.name
        for row in VENDOR_ROWS
        if any(folder.startswith(row.windows_drivers) for folder in folders)
    }
    return Wsl(gpu, frozenset(vendors))
