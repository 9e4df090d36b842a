"""What differs between the makers of GPUs, each behind one small protocol; what is common never names one.

An entry of ``VENDORS`` is all that a maker needs to be planned for. A maker's modules are imported when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.backend import CPU

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from gpuinstall.catalog import Catalog
    from gpuinstall.machine import Gpu, Machine
    from gpuinstall.vendors.protocol import Rules

PCI_IDS = {"10de": "nvidia", "1002": "amd", "8086": "intel", "106b": "apple"}
"""The makers of GPUs by the vendor's half of a PCI id."""


class Vendor(NamedTuple):
    """A maker whose GPUs are planned for.

    ``kind`` is that of the backends that serve them; ``rules`` binds its rules to a machine and a catalogue;
    ``visible`` gives the environment variables with which a program sees just these devices, in this order; a proof has
    none of ``misleading``, which hide devices too, or change what is counted or computed;
    ``torch_device`` is what torch calls its GPUs, where that is not the kind; ``by_architecture``: only a GPU whose
    architecture is known is planned for, and any other is none for computing. ``idle_causes`` are the failure
    catalogue's entries for a GPU beside the CPU's build, and beside one for another maker's.
    """

    kind: str
    rules: Callable[[Machine, Catalog], Rules]
    visible: Callable[[Sequence[str]], Mapping[str, str]]
    misleading: tuple[str, ...] = ()
    torch_device: str | None = None
    by_architecture: bool = False
    idle_causes: tuple[str, str] = ("F33", "F24")


def _nvidia(machine: Machine, catalog: Catalog) -> Rules:
    from gpuinstall.vendors.nvidia.rules import NvidiaRules

    return NvidiaRules(machine, catalog)


def _amd(machine: Machine, catalog: Catalog) -> Rules:
    from gpuinstall.vendors.amd.rules import AmdRules

    return AmdRules(machine, catalog)


def _intel(machine: Machine, catalog: Catalog) -> Rules:
    from gpuinstall.vendors.intel.rules import IntelRules

    return IntelRules(machine, catalog)


def _visible_to_sycl(devices: Sequence[str]) -> Mapping[str, str]:
    return {"ONEAPI_DEVICE_SELECTOR": f"level_zero:{','.join(devices)}" if devices else "*:cpu"}


def _apple(machine: Machine, catalog: Catalog) -> Rules:
    from gpuinstall.vendors.apple.rules import AppleRules

    return AppleRules(machine, catalog)


def _nothing_hidden(devices: Sequence[str]) -> Mapping[str, str]:  # noqa: ARG001
    return {
        "PYTORCH_ENABLE_MPS_FALLBACK": "0"
    }  # what the GPU cannot do is not to run on the CPU without a word


def _visible_to_hip(devices: Sequence[str]) -> Mapping[str, str]:
    return {"HIP_VISIBLE_DEVICES": ",".join(devices) or "-1"}


def _visible_to_cuda(devices: Sequence[str]) -> Mapping[str, str]:
    return {"CUDA_VISIBLE_DEVICES": ",".join(devices), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


VENDORS: dict[str, Vendor] = {
    # Its libraries obey it before torch's switches, by which the checks ask for exact products in float32.
    "nvidia": Vendor("cuda", _nvidia, _visible_to_cuda, misleading=("NVIDIA_TF32_OVERRIDE",)),
    "amd": Vendor(
        "rocm",
        _amd,
        _visible_to_hip,
        # The first takes GPUs away before HIP counts them, HIP reads the others instead of its own.
        misleading=("ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "CUDA_VISIBLE_DEVICES"),
        torch_device="cuda",
        by_architecture=True,
        idle_causes=("F99", "F99"),
    ),
    "intel": Vendor(
        "xpu", _intel, _visible_to_sycl, by_architecture=True, idle_causes=("F116", "F116")
    ),
    "apple": Vendor(CPU.kind, _apple, _nothing_hidden, torch_device="mps", by_architecture=True),
}
"""By the name in documents; where a machine has GPUs of several, the first is served."""


def vendor_of(gpu: Gpu, machine: Machine) -> str | None:
    """Name a GPU's maker: as it says, else by its PCI id; None where nothing tells.

    One with a compute capability is NVIDIA's, and so is one that says nothing on a machine with NVIDIA's driver.
    """
    if gpu.vendor is not None:
        return gpu.vendor
    if gpu.pci_id is not None:
        return PCI_IDS.get(gpu.pci_id.partition(":")[0].lower())
    return "nvidia" if gpu.compute_capability is not None or machine.driver is not None else None


def rules_for(machine: Machine, catalog: Catalog, kinds: Collection[str] = ()) -> Rules:
    """Bind the rules that decide for a machine: of the maker of the ``kinds`` asked for, else of its GPUs."""
    vendor = vendor_for(machine, kinds)
    return vendor.rules(machine, catalog.serving(vendor.kind))


def vendor_for(machine: Machine, kinds: Collection[str] = ()) -> Vendor:
    """Choose the maker that is served: of the ``kinds`` asked for, else of the machine's GPUs, else the first.

    Who asks for the CPU's build asks for no maker.
    """
    named = [
        vendor for vendor in VENDORS.values() if vendor.kind in kinds and vendor.kind != CPU.kind
    ]
    makers = {vendor_of(gpu, machine) for gpu in machine.gpus if is_planned_for(gpu, machine)}
    present = [vendor for name, vendor in VENDORS.items() if name in makers]
    return (named or present or list(VENDORS.values()))[0]


def is_planned_for(gpu: Gpu, machine: Machine) -> bool:
    """Say whether builds are chosen for a GPU: its maker is one of these, and tells enough of it."""
    vendor = VENDORS.get(vendor_of(gpu, machine) or "")
    return vendor is not None and not (vendor.by_architecture and gpu.architecture is None)
