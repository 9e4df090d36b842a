"""Which devices are put to the proof, which cannot be tried, and how they fare by their makers' own libraries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuinstall.vendors import VENDORS, vendor_of
from gpuinstall.vendors.probers import PROBERS
from gpuinstall.verify.verdict import NO_GPU, THE_CPU

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpuinstall.machine import Gpu, Machine
    from gpuinstall.vendors import Vendor
    from gpuinstall.vendors.prober import GpuHealth


@dataclass(frozen=True)
class DeviceTarget:
    """One child to run: ``device`` as torch names it (or "all", or "none"), ``visible`` the GPUs that it shall see.

    ``vendor`` is the maker of the GPU; where there is none, every maker's GPUs are hidden.
    """

    index: int
    name: str
    device: str
    visible: tuple[str, ...] = ()
    gpu: Gpu | None = None
    vendor: str | None = None
    unproven: str | None = None

    @property
    def environment(self) -> dict[str, str]:
        """The variables that show the child these GPUs and no others."""
        return {
            name: value
            for vendor in self._vendors
            for name, value in vendor.visible(self.visible).items()
        }

    @property
    def misleading(self) -> frozenset[str]:
        """The variables that would hide these GPUs all the same, or change what they compute."""
        return frozenset(name for vendor in self._vendors for name in vendor.misleading)

    @property
    def _vendors(self) -> Iterable[Vendor]:
        return [VENDORS[self.vendor]] if self.vendor else VENDORS.values()

    @property
    def part(self) -> str:
        """Its share in a work on several devices."""
        return f"GPU {self.gpu.index}" if self.gpu else self.name

    @property
    def on_gpu(self) -> bool:
        """Say whether kernels run on a GPU."""
        return self.gpu is not None and self.unproven is None


CPU_TARGET = DeviceTarget(0, THE_CPU, "cpu")


def device_targets(
    machine: Machine, *, kind: str | None, gpus: tuple[int, ...] | None, environ: Mapping[str, str]
) -> tuple[DeviceTarget, ...]:
    """List every GPU asked for, as devices of a torch of this ``kind``; those of other makers where it serves none."""
    broken = {
        index: problem.message
        for problem in machine.problems
        if problem.blocking
        for index in problem.gpus
    }
    targets = [
        target if reason is None else replace(target, device="none", visible=(), unproven=reason)
        for vendor in VENDORS
        for ordinal, gpu in enumerate(_gpus_of(vendor, machine, kind))
        if gpus is None or gpu.index in gpus
        for target in _parts(gpu, vendor, ordinal)
        for reason in (
            broken.get(gpu.index) or _withheld(gpu, vendor, ordinal, target.visible[0], environ),
        )
    ]
    served = [target for target in targets if target.vendor and VENDORS[target.vendor].kind == kind]
    if targets:
        return tuple(served or targets)
    if machine.refusing:  # its driver cannot show the GPU
        return (DeviceTarget(0, "GPU", "none", unproven=machine.refusing[0].message),)
    return (DeviceTarget(0, NO_GPU, "none", unproven="this machine has no GPU that torch can use"),)


def all_gpus_target(targets: Sequence[DeviceTarget]) -> DeviceTarget | None:
    """Give the one child that sees all GPUs at once; None where fewer than two can be tried (slices see no peer)."""
    whole = [
        target for target in targets if target.on_gpu and target.gpu and not target.gpu.mig_devices
    ]
    if len(whole) < 2:
        return None
    visible = tuple(name for target in whole for name in target.visible)
    return DeviceTarget(0, "all GPUs", "all", visible, vendor=whole[0].vendor)


def read_health(targets: Sequence[DeviceTarget]) -> dict[int, GpuHealth]:
    """Ask the makers of the GPUs that are tried how they fare, by their indices."""
    makers = {target.vendor for target in targets if target.on_gpu}
    health: dict[int, GpuHealth] = {}
    for prober in (prober for prober in PROBERS if prober.vendor in makers):
        health |= prober.health(len(targets))
    return health


def _gpus_of(vendor: str, machine: Machine, kind: str | None) -> list[Gpu]:
    """List the GPUs of one maker; those that do not say whose they are belong to whoever torch is for."""
    guessed = (
        name for name, other in VENDORS.items() if other.kind == kind and not other.by_architecture
    )
    served = next(guessed, next(iter(VENDORS)))
    gpus = (gpu for gpu in machine.gpus if (vendor_of(gpu, machine) or served) == vendor)
    return sorted(gpus, key=lambda gpu: gpu.index)


def _parts(gpu: Gpu, vendor: str, ordinal: int) -> Iterator[DeviceTarget]:
    name = gpu.name or gpu.label
    device = VENDORS[vendor].torch_device or VENDORS[vendor].kind
    if not gpu.mig_devices:
        yield DeviceTarget(gpu.index, name, device, (gpu.uuid or str(ordinal),), gpu, vendor)
    for part in gpu.mig_devices:
        yield DeviceTarget(
            gpu.index, f"{name} MIG {part.profile or part.uuid}", device, (part.uuid,), gpu, vendor
        )


def _withheld(
    gpu: Gpu, vendor: str, ordinal: int, name: str, environ: Mapping[str, str]
) -> str | None:
    probers = (prober for prober in PROBERS if prober.vendor == vendor)
    return next((prober.withheld(gpu, ordinal, name, environ) for prober in probers), None)
