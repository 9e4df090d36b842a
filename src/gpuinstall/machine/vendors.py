"""The supported GPU vendors, and the vendor of each GPU.

``VENDORS`` has the rules that plan builds, and ``PROBERS`` in ``probe.py`` read the
GPUs. No other module depends on a vendor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.base.values import Value
from gpuinstall.base.versions import CPU, Backend, known_backend

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from gpuinstall.base.machine import Gpu, Machine
    from gpuinstall.catalog import Catalog
    from gpuinstall.machine.protocol import Rules

PCI_IDS = {"10de": "nvidia", "1002": "amd", "8086": "intel", "106b": "apple"}
"""The vendors by the first half of a PCI ID."""


class Vendor(Value):
    """A vendor with builds of torch."""

    kind: str
    """The kind of its backends: ``cuda``."""
    rules: Callable[[], type[Rules]]
    """Imports its rules. A plan imports one vendor's rules only."""
    variables: Mapping[str, str]
    """The variables that select devices, with ``{}`` for the devices."""
    prefix: str = ""
    """The text before the devices."""
    no_device: str = ""
    """The value that selects no device."""
    misleading: tuple[str, ...] = ()
    """Variables to unset. They hide devices or change results."""
    torch_device: str | None = None
    """The device type in torch, unless it is the kind."""
    by_architecture: bool = False
    """Whether GPUs of unknown architecture are ignored."""
    idle_causes: tuple[str, str] = ("F33", "F24")
    """The failures of a GPU with a CPU build and with another vendor's."""


def _rules_of_nvidia() -> type[Rules]:
    from gpuinstall.machine.nvidia.rules import NvidiaRules

    return NvidiaRules


def _rules_of_amd() -> type[Rules]:
    from gpuinstall.machine.amd.rules import AmdRules

    return AmdRules


def _rules_of_intel() -> type[Rules]:
    from gpuinstall.machine.intel.rules import IntelRules

    return IntelRules


def _rules_of_apple() -> type[Rules]:
    from gpuinstall.machine.apple.rules import AppleRules

    return AppleRules


VENDORS: dict[str, Vendor] = {
    "nvidia": Vendor(
        "cuda",
        _rules_of_nvidia,
        {"CUDA_VISIBLE_DEVICES": "{}", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        # It overrides torch's settings, and verification sets exact float32 products.
        misleading=("NVIDIA_TF32_OVERRIDE",),
    ),
    "amd": Vendor(
        "rocm",
        _rules_of_amd,
        {"HIP_VISIBLE_DEVICES": "{}"},
        no_device="-1",
        # The first hides GPUs before HIP numbers them. HIP also reads the others as its own variable.
        misleading=(
            "ROCR_VISIBLE_DEVICES",
            "GPU_DEVICE_ORDINAL",
            "CUDA_VISIBLE_DEVICES",
        ),
        torch_device="cuda",
        by_architecture=True,
        idle_causes=("F99", "F99"),
    ),
    "intel": Vendor(
        "xpu",
        _rules_of_intel,
        {
            "ONEAPI_DEVICE_SELECTOR": "{}",
            # By default, Level Zero lists discrete GPUs first and each tile as a device.
            "ZE_ENABLE_PCI_ID_DEVICE_ORDER": "1",
            "ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE",
        },
        prefix="level_zero:",
        no_device="*:cpu",
        # It hides GPUs before the selector numbers them.
        misleading=("ZE_AFFINITY_MASK",),
        by_architecture=True,
        idle_causes=("F116", "F116"),
    ),
    "apple": Vendor(
        CPU.kind,
        _rules_of_apple,
        # Unsupported operations must fail, and not silently run on the CPU.
        {"PYTORCH_ENABLE_MPS_FALLBACK": "0"},
        torch_device="mps",
        by_architecture=True,
    ),
}
"""The vendors by name. On a machine with several, the first counts."""

FIRST_VENDOR = next(iter(VENDORS))
"""The vendor of GPUs without a PCI ID, such as a Jetson's."""


def served_backend(tag: str) -> Backend | None:
    """Return the backend of a tag if it is for the CPU or a known vendor."""
    backend = known_backend(tag)
    kinds = {CPU.kind, *(vendor.kind for vendor in VENDORS.values())}
    return backend if backend and backend.kind in kinds else None


def vendor_of(gpu: Gpu, machine: Machine) -> str | None:
    """Return a GPU's vendor, as recorded or by PCI ID, if known.

    A GPU with a compute capability is NVIDIA's. So is a GPU without any fact on a machine with NVIDIA's driver.
    """
    if gpu.vendor is not None:
        return gpu.vendor
    if gpu.pci_id is not None:
        vendor, _, _ = gpu.pci_id.lower().partition(":")
        return PCI_IDS.get(vendor, "other")
    if gpu.compute_capability is not None or machine.driver is not None:
        return "nvidia"
    return None


def rules_for(
    machine: Machine,
    catalog: Catalog,
    kinds: Collection[str] = (),
) -> Rules:
    """Return the rules of the vendor that ``vendor_for`` selects.

    Args:
        machine: The machine.
        catalog: The builds. The vendor's builds are read if they are missing.
        kinds: The kinds of the requested backends.
    """
    vendor = vendor_for(machine, kinds)
    return vendor.rules()(machine, catalog.serving(vendor.kind))


def vendor_for(
    machine: Machine,
    kinds: Collection[str] = (),
) -> Vendor:
    """Return the vendor of the requested kinds, else of the GPUs.

    A request for the CPU build selects no vendor. The first vendor is the default.
    """
    for vendor in VENDORS.values():
        if vendor.kind in kinds and vendor.kind != CPU.kind:
            return vendor
    gpus = [gpu for gpu in machine.gpus if is_planned_for(gpu, machine)]
    names = [vendor_of(gpu, machine) for gpu in gpus]
    for name, vendor in VENDORS.items():
        if name in names:
            return vendor
    return VENDORS[FIRST_VENDOR]


def is_planned_for(gpu: Gpu, machine: Machine) -> bool:
    """Return whether builds can be selected for a GPU.

    Its vendor must be supported, and its architecture known if the vendor requires that.
    """
    vendor = VENDORS.get(vendor_of(gpu, machine) or "")
    if vendor is None:
        return False
    return gpu.architecture is not None or not vendor.by_architecture
