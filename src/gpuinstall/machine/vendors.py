"""What differs between the makers of GPUs, each behind one small protocol; what is common never names one.

An entry of ``VENDORS`` is all that a maker needs to be planned for; ``PROBERS`` in ``probe.py`` read its GPUs.
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
"""The makers of GPUs by the vendor's half of a PCI id."""


class Vendor(Value):
    """A maker whose GPUs are planned for."""

    kind: str
    """That of the backends that serve its GPUs."""
    rules: Callable[[], type[Rules]]
    """Returns its rules, to be bound to a machine and a catalogue; a plan loads those of one maker."""
    variables: Mapping[str, str]
    """The environment variables with which a program sees just some devices, which stand for the braces."""
    prefix: str = ""
    """What stands before the devices there."""
    no_device: str = ""
    """What stands there for none."""
    misleading: tuple[str, ...] = ()
    """The variables that no proof has: they hide devices too, or change what is counted or computed."""
    torch_device: str | None = None
    """What torch calls its GPUs, if that is not the kind."""
    by_architecture: bool = False
    """Whether only a GPU whose architecture is known is planned for; any other is none for computing."""
    idle_causes: tuple[str, str] = ("F33", "F24")
    """The failure catalogue's entries for a GPU beside the CPU's build, and beside one for another maker's."""


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
        # Its libraries obey it before torch's switches, by which the checks ask for exact products in float32.
        misleading=("NVIDIA_TF32_OVERRIDE",),
    ),
    "amd": Vendor(
        "rocm",
        _rules_of_amd,
        {"HIP_VISIBLE_DEVICES": "{}"},
        no_device="-1",
        # The first takes GPUs away before HIP counts them, HIP reads the others instead of its own.
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
            # Level Zero counts cards before the processor's graphics, and each tile of a card, unless told otherwise.
            "ZE_ENABLE_PCI_ID_DEVICE_ORDER": "1",
            "ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE",
        },
        prefix="level_zero:",
        no_device="*:cpu",
        # It takes GPUs away before the selector counts them.
        misleading=("ZE_AFFINITY_MASK",),
        by_architecture=True,
        idle_causes=("F116", "F116"),
    ),
    "apple": Vendor(
        CPU.kind,
        _rules_of_apple,
        # What the GPU cannot do is not to run on the CPU without a word.
        {"PYTORCH_ENABLE_MPS_FALLBACK": "0"},
        torch_device="mps",
        by_architecture=True,
    ),
}
"""By the name in documents; if a machine has GPUs of several, the first is served."""

FIRST_VENDOR = next(iter(VENDORS))
"""Whose a GPU of no known maker counts as, such as a Jetson's, which has no PCI id."""


def served_backend(tag: str) -> Backend | None:
    """Return the backend of a tag; None if it is none of the CPU's or of a maker's."""
    backend = known_backend(tag)
    kinds = {CPU.kind, *(vendor.kind for vendor in VENDORS.values())}
    return backend if backend and backend.kind in kinds else None


def vendor_of(gpu: Gpu, machine: Machine) -> str | None:
    """Return a GPU's maker: as it tells, else by its PCI id; None if it has neither.

    One with a compute capability is NVIDIA's, and so is one that tells nothing on a machine with NVIDIA's driver.
    """
    if gpu.vendor is not None:
        return gpu.vendor
    if gpu.pci_id is not None:
        maker, _, _ = gpu.pci_id.lower().partition(":")
        return PCI_IDS.get(maker, "other")
    if gpu.compute_capability is not None or machine.driver is not None:
        return "nvidia"
    return None


def rules_for(
    machine: Machine,
    catalog: Catalog,
    kinds: Collection[str] = (),
) -> Rules:
    """Return the rules that decide for a machine: of the maker of the requested ``kinds``, else of its GPUs.

    Args:
        machine: The machine.
        catalog: The builds; those of another kind are read if the maker needs them.
        kinds: The kinds of the backends that were requested; none: the GPUs decide.
    """
    vendor = vendor_for(machine, kinds)
    return vendor.rules()(machine, catalog.serving(vendor.kind))


def vendor_for(
    machine: Machine,
    kinds: Collection[str] = (),
) -> Vendor:
    """Return the maker that is served: of the requested ``kinds``, else of the machine's GPUs, else the first.

    A request for the CPU's build is for no maker.
    """
    for vendor in VENDORS.values():
        if vendor.kind in kinds and vendor.kind != CPU.kind:
            return vendor
    gpus = [gpu for gpu in machine.gpus if is_planned_for(gpu, machine)]
    makers = [vendor_of(gpu, machine) for gpu in gpus]
    for name, vendor in VENDORS.items():
        if name in makers:
            return vendor
    return VENDORS[FIRST_VENDOR]


def is_planned_for(gpu: Gpu, machine: Machine) -> bool:
    """Whether builds are chosen for a GPU: its maker is one of these, and tells enough of it."""
    vendor = VENDORS.get(vendor_of(gpu, machine) or "")
    if vendor is None:
        return False
    return gpu.architecture is not None or not vendor.by_architecture
