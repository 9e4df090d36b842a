"""Which devices are put to the proof, and which cannot be tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.base.values import Value, replace
from gpuinstall.machine.probe import PROBERS
from gpuinstall.machine.vendors import FIRST_VENDOR, VENDORS, vendor_of
from gpuinstall.verify.verdict import Device, DeviceKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpuinstall.base.finding import CheckResult
    from gpuinstall.base.machine import Gpu, Machine
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
    targets = []
    for prober in PROBERS:
        ours = [
            gpu
            for gpu in sorted(machine.gpus, key=lambda gpu: gpu.index)
            if (vendor_of(gpu, machine) or FIRST_VENDOR) == prober.vendor
        ]
        for ordinal, gpu in enumerate(ours):
            if gpus is not None and gpu.index not in gpus:
                continue
            fault = None
            for problem in machine.problems:
                if problem.blocking and gpu.index in problem.gpus:
                    fault = problem.message
            for target in _parts(gpu, prober.vendor, ordinal):
                reason = fault or prober.withheld(
                    gpu, ordinal, target.visible[0], environ
                )
                targets.append(target.untried(reason) if reason else target)
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


def _parts(
    gpu: Gpu,
    vendor: str,
    ordinal: int,
) -> Iterator[DeviceTarget]:
    """Yield a GPU, or each of its slices.

    Args:
        gpu: The GPU.
        vendor: Its maker.
        ordinal: Its place among those of its maker, by which it is named if it has no UUID.
    """
    whole = DeviceTarget(
        gpu.index,
        gpu.name or gpu.label,
        VENDORS[vendor].torch_device or VENDORS[vendor].kind,
        visible=(gpu.uuid or str(ordinal),),
        gpu=gpu,
        vendor=vendor,
    )
    if not gpu.mig_devices:
        yield whole
    for part in gpu.mig_devices:
        name = f"{whole.name} MIG {part.profile or part.uuid}"
        yield replace(whole, name=name, visible=(part.uuid,))


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
