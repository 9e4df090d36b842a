"""The GPUs or CPU on which to verify an environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gpuinstall.base.finding import CheckResult
from gpuinstall.base.machine import Gpu, Machine
from gpuinstall.base.values import Value, replace
from gpuinstall.machine.probe import PROBERS
from gpuinstall.machine.prober import GpuPart
from gpuinstall.machine.vendors import VENDORS, load_rules
from gpuinstall.verify.verdict import CPU_NAME, Device, DeviceKind


class DeviceTarget(Value):
    """GPU or other device that one child process tests."""

    index: int
    name: str
    device: str
    """torch's name for the device, or "all" or "none"."""

    visible: tuple[str, ...] = ()
    """The GPUs that the child process can see."""

    gpu: Gpu | None = None
    vendor: str | None = None
    """The vendor whose GPUs stay visible. None hides all GPUs."""

    unproven: str | None = None
    """The reason why the device cannot be tested, if any."""
    kind: DeviceKind = "gpu"

    def select_environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Hide all other GPUs, and remove variables that change results."""
        variables = dict(environ)
        vendors = [*map(load_rules, [self.vendor] if self.vendor else VENDORS)]
        names = ",".join(self.visible)
        for vendor in vendors:
            for name in vendor.misleading_variables:
                variables.pop(name, None)
        for vendor in vendors:
            devices = f"{vendor.prefix}{names}" if names else vendor.no_device
            for name, value in vendor.variables.items():
                variables[name] = value.format(devices)
        return variables

    @property
    def on_gpu(self) -> bool:
        """Whether the child process runs kernels on a GPU."""
        return self.gpu is not None and self.unproven is None

    def remove_gpu(self, reason: str) -> DeviceTarget:
        """Return a copy of the target without its GPU."""
        return replace(self, device="none", visible=(), unproven=reason)

    def result(
        self,
        checks: Iterable[CheckResult] = (),
        unproven: str | None = None,
    ) -> Device:
        """Create the Device with the results of these checks."""
        return Device(self.index, self.name, tuple(checks), unproven, self.kind)


CPU_TARGET = DeviceTarget(0, CPU_NAME, "cpu", kind="cpu")


def select_targets(
    machine: Machine,
    *,
    kind: str | None,
    gpus: tuple[int, ...] | None,
) -> tuple[DeviceTarget, ...]:
    """Return the GPUs to test in an environment.

    Args:
        machine: The machine.
        kind: The kind of GPU that torch supports. If the machine has none of this kind,
            all GPUs are returned.
        gpus: The requested indices; None for all.
    """
    targets = [
        _create_target(part, prober.vendor)
        for prober in PROBERS
        for part in prober.list_parts(machine)
        if gpus is None or part.gpu.index in gpus
    ]
    served = [
        target
        for target in targets
        if target.vendor and VENDORS[target.vendor].kind == kind
    ]
    if targets:
        return tuple(served or targets)
    if machine.fatal_problems:
        # A faulty driver may not list the GPU.
        reason = machine.fatal_problems[0].message
        return (DeviceTarget(0, "GPU", "none", unproven=reason),)
    reason = "this machine has no GPU that torch can use"
    target = DeviceTarget(0, "no usable GPU", "none", unproven=reason, kind="none")
    return (target,)


def _create_target(part: GpuPart, vendor: str) -> DeviceTarget:
    gpu = part.gpu
    name = gpu.name or gpu.label
    if part.slice:
        name = f"{name} MIG {part.slice.profile or part.name}"
    target = DeviceTarget(
        gpu.index,
        name,
        load_rules(vendor).torch_device,
        visible=(part.name,),
        gpu=gpu,
        vendor=vendor,
    )
    return target.remove_gpu(part.withheld) if part.withheld else target


def create_all_gpus_target(targets: Sequence[DeviceTarget]) -> DeviceTarget | None:
    """Return one target for all GPUs that are not in MIG mode."""
    whole = [
        target
        for target in targets
        if target.on_gpu and target.gpu and not target.gpu.mig_devices
    ]
    if not whole:
        return None
    return DeviceTarget(
        0,
        "all GPUs",
        "all",
        visible=tuple(name for target in whole for name in target.visible),
        vendor=whole[0].vendor,
    )
