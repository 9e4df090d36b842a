"""Which devices are put to the proof, and which cannot be tried: pure, from the machine and the environment found."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuinstall.vendors.nvidia.libcuda import is_visible, job_devices

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuinstall.machine import Gpu, Machine


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
    given = job_devices(environ)
    broken = {index: each.message for each in machine.problems if each.blocking for index in each.gpus}
    found = [
        _unless(target, broken.get(gpu.index) or _withheld(given, ordinal, target))
        for ordinal, gpu in enumerate(sorted(machine.gpus, key=lambda gpu: gpu.index))
        if gpus is None or gpu.index in gpus
        for target in _parts(gpu, ordinal)
    ]
    return tuple(found) or (_nowhere(machine),)


def together(wanted: Sequence[Target]) -> Target | None:
    """Give the one child that sees all GPUs at once; None where fewer than two can be tried (slices see no peer)."""
    cards = [target.visible for target in wanted if target.device == "cuda" and not target.visible.startswith("MIG-")]
    return Target(0, "all GPUs", "all", ",".join(cards)) if len(cards) > 1 else None


def _nowhere(machine: Machine) -> Target:
    """Tell a machine without a GPU from one whose GPU its driver cannot show."""
    if not machine.refusing:
        return NOWHERE
    return replace(NOWHERE, name="NVIDIA GPU", unproven=machine.refusing[0].message)


def _parts(gpu: Gpu, ordinal: int) -> Iterator[Target]:
    if not gpu.mig_devices:
        yield Target(gpu.index, gpu.name or gpu.label, "cuda", gpu.uuid or str(ordinal), gpu)
    for piece in gpu.mig_devices:
        yield Target(gpu.index, f"{gpu.name or gpu.label} MIG {piece.profile or piece.uuid}", "cuda", piece.uuid, gpu)


def _unless(target: Target, reason: str | None) -> Target:
    """Leave a device alone where there is a reason to."""
    return target if reason is None else replace(target, device="none", visible="", unproven=reason)


def _withheld(given: str | None, ordinal: int, target: Target) -> str | None:
    """Say that a scheduler's job does not give a device to this process."""
    if given is None or target.gpu is None or is_visible(given, ordinal, target.gpu, target.visible):
        return None
    return f"not this job's: CUDA_VISIBLE_DEVICES={given}"
