"""Which devices are put to the proof, and which cannot be tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.base.values import Value, replace
from gpuinstall.machine.probe import PROBERS
from gpuinstall.machine.vendors import VENDORS
from gpuinstall.verify.verdict import Device, DeviceKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpuinstall.base.finding import CheckResult
    from gpuinstall.base.machine import Gpu, Machine
    from gpuinstall.machine.prober import GpuPart
    from gpuinstall.machine.vendors import Vendor


class DeviceTarget(Value):
    """One child to run."""

    index: int
    name: str
    device: str
    """The device as torch names it, or "all", or "none"."""

    visible: tuple[str, ...] = ()
    """The GPUs that it shall see."""

    gpu: Gpu | None = None
    vendor: str | None = None
    """The maker of the GPU; None: every maker's GPUs are hidden."""

    unproven: str | None = None
    """Why it cannot be tried."""
    kind: DeviceKind = "gpu"

    @property
    def environment(self) -> dict[str, str]:
        """The variables that show the child these GPUs and no others."""
        variables: dict[str, str] = {}
        names = ",".join(self.visible)
        for vendor in self._vendors:
            devices = f"{vendor.prefix}{names}" if names else vendor.no_device
            for name, value in vendor.variables.items():
                variables[name] = value.format(devices)
        return variables

    @property
    def misleading(self) -> frozenset[str]:
        """The variables that would hide these GPUs all the same, or change what they compute."""
        return frozenset[str]().union(*(vendor.misleading for vendor in self._vendors))

    @property
    def _vendors(self) -> Iterable[Vendor]:
        if self.vendor:
            return [VENDORS[self.vendor]]
        return VENDORS.values()

    @property
    def on_gpu(self) -> bool:
        """Whether kernels run on a GPU."""
        return self.gpu is not None and self.unproven is None

    def untried(self, reason: str) -> DeviceTarget:
        """Return the same without its GPU."""
        return replace(self, device="none", visible=(), unproven=reason)

    def tested(
        self, checks: Iterable[CheckResult] = (), unproven: str | None = None
    ) -> Device:
        """Return what became of it."""
        return Device(self.index, self.name, tuple(checks), unproven, self.kind)


CPU_TARGET = DeviceTarget(0, "CPU", "cpu", kind="cpu")


def device_targets(
    machine: Machine,
    *,
    kind: str | None,
    gpus: tuple[int, ...] | None,
    environ: Mapping[str, str],
) -> tuple[DeviceTarget, ...]:
    """Return the GPUs to try.

    Args:
        machine: The machine that has them.
        kind: The kind of GPU that torch was built for; if there is none of it, the GPUs of other makers are returned.
        gpus: The indices that were requested; None: all.
        environ: The variables by which a scheduler's job has some of them alone.
    """
    targets = [
        _target(part, prober.vendor)
        for prober in PROBERS
        for part in prober.parts(machine, environ)
        if gpus is None or part.gpu.index in gpus
    ]
    served = [
        target
        for target in targets
        if target.vendor and VENDORS[target.vendor].kind == kind
    ]
    if targets:
        return tuple(served or targets)
    if machine.refusing:
        # Its driver cannot show the GPU.
        reason = machine.refusing[0].message
        return (DeviceTarget(0, "GPU", "none", unproven=reason),)
    reason = "this machine has no GPU that torch can use"
    target = DeviceTarget(0, "no usable GPU", "none", unproven=reason, kind="none")
    return (target,)


def _target(part: GpuPart, vendor: str) -> DeviceTarget:
    gpu = part.gpu
    name = gpu.name or gpu.label
    if part.slice:
        name = f"{name} MIG {part.slice.profile or part.name}"
    target = DeviceTarget(
        gpu.index,
        name,
        VENDORS[vendor].torch_device or VENDORS[vendor].kind,
        visible=(part.name,),
        gpu=gpu,
        vendor=vendor,
    )
    return target.untried(part.withheld) if part.withheld else target


def all_gpus_target(targets: Sequence[DeviceTarget]) -> DeviceTarget | None:
    """Return the one child that sees all GPUs at once; None if none can be tried as a whole (slices see no peer)."""
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
