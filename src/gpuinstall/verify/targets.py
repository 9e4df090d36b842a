"""Which devices are put to the proof, and which cannot be tried: pure, from the machine and the environment found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuinstall.machine import Gpu, Machine

JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "COBALT_JOBID", "JOB_ID")


@dataclass(frozen=True)
class Target:
    """One child to run: ``device`` as the kernels name it, ``visible`` what CUDA shall see."""

    index: int
    name: str
    device: str
    visible: str = ""
    gpu: Gpu | None = None
    unproven: str | None = None

    @property
    def environment(self) -> dict[str, str]:
        """The variables that show CUDA this device and no other."""
        return {"CUDA_VISIBLE_DEVICES": self.visible, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


CPU = Target(0, "CPU", "cpu")
NOWHERE = Target(0, "no NVIDIA GPU", "none", unproven="there is no NVIDIA GPU here to run kernels on")


def targets(
    machine: Machine, *, for_cpu: bool, gpus: tuple[int, ...] | None, environ: Mapping[str, str]
) -> tuple[Target, ...]:
    """List the devices: the CPU for an environment made for it, else every GPU asked for."""
    if for_cpu:
        return (CPU,)
    found = [
        target
        for position, gpu in enumerate(sorted(machine.gpus, key=lambda gpu: gpu.index))
        if gpus is None or gpu.index in gpus
        for target in _slices(gpu, position)
    ]
    return tuple(_narrowed(target, position, environ) for position, target in enumerate(found)) or (_nowhere(machine),)


def together(wanted: Sequence[Target]) -> Target | None:
    """Give the one child that sees all GPUs at once; None where fewer than two can be tried (slices see no peer)."""
    cards = [target.visible for target in wanted if target.device == "cuda" and not target.visible.startswith("MIG-")]
    return Target(0, "all GPUs", "all", ",".join(cards)) if len(cards) > 1 else None


def _nowhere(machine: Machine) -> Target:
    """Tell a machine without a GPU from one whose GPU its driver cannot show."""
    if not machine.refusing:
        return NOWHERE
    return replace(NOWHERE, name="NVIDIA GPU", unproven=machine.refusing[0].message)


def _slices(gpu: Gpu, position: int) -> Iterator[Target]:
    if not gpu.mig_devices:
        yield Target(gpu.index, gpu.name or gpu.label, "cuda", gpu.uuid or str(position), gpu)
    for piece in gpu.mig_devices:
        yield Target(gpu.index, f"{gpu.name or gpu.label} MIG {piece.profile or piece.uuid}", "cuda", piece.uuid, gpu)


def _narrowed(target: Target, position: int, environ: Mapping[str, str]) -> Target:
    """Inside a scheduler's job, leave alone what CUDA_VISIBLE_DEVICES does not give to this process."""
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None or not any(environ.get(job) for job in JOBS):
        return target
    if any(_names(token.strip(), target, position) for token in visible.split(",")):
        return target
    reason = f"not this job's: CUDA_VISIBLE_DEVICES={visible}"
    return Target(target.index, target.name, "none", gpu=target.gpu, unproven=reason)


def _names(token: str, target: Target, position: int) -> bool:
    return token == str(position) or (token.startswith(("GPU-", "MIG-")) and target.visible.startswith(token))
