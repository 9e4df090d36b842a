"""Prober for AMD GPUs.

The kernel's compute driver (KFD) lists the GPUs in sysfs, where ROCm's environment
variables do not hide them. The kernel's kfd_topology.c (drivers/gpu/drm/amd/amdkfd)
defines the format. A ``gfx_target_version`` of 90010 is gfx90a, and 110501 is gfx1151.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from gpuinstall.base.machine import Gpu
from gpuinstall.base.values import Value
from gpuinstall.catalog import data_files
from gpuinstall.machine.bus import format_devices
from gpuinstall.machine.prober import (
    MachineFacts,
    Prober,
    VendorFindings,
    format_gpus,
)
from gpuinstall.machine.source import Access, Source
from gpuinstall.machine.symptoms import KnownFacts, create_findings

AMD_ON_PCI = 0x1002
KERNEL_DRIVERS = ("amdgpu", "radeon")
KFD = "/dev/kfd"
KFD_NODES = "/sys/class/kfd/kfd/topology/nodes"
MODULE_VERSION = "/sys/module/amdgpu/version"
_VISIBLE_MEMORY = (1, 2)
"""KFD's heap types for dedicated GPU memory, public and private."""


class KfdNode(Value):
    """GPU in KFD's topology."""

    architecture: str
    pci_id: str
    render_minor: int | None
    """The minor number of the GPU's render node in /dev/dri."""
    render: Access | None
    """Whether this process can open the GPU's render node."""
    product: str | None
    memory_bytes: int
    chip: Mapping[str, Any]
    """The row of the GPU's chip in ``amd.toml``."""

    @property
    def is_integrated(self) -> bool:
        """Whether the GPU is part of a CPU and shares system memory."""
        return bool(self.chip.get("integrated"))


def _read_nodes(source: Source) -> tuple[KfdNode, ...]:
    """Read the AMD GPUs from KFD, in the order in which HIP numbers them.

    KFD nodes that belong to other containers are unreadable and are omitted.
    """
    names = [name for name in source.names(KFD_NODES) if name.isdecimal()]
    names.sort(key=int)
    nodes = [_read_node(source, f"{KFD_NODES}/{name}") for name in names]
    return tuple(filter(None, nodes))


def _read_node(source: Source, folder: str) -> KfdNode | None:
    properties = _read_properties(source, folder)
    version = properties.get("gfx_target_version", 0)
    # The topology also lists CPUs, which have no version.
    if properties.get("vendor_id") != AMD_ON_PCI or version < 10000:
        return None
    from gpuinstall.machine.amd.rules import find_chip

    major, rest = divmod(version, 10000)
    minor, stepping = divmod(rest, 100)
    render_minor = properties.get("drm_render_minor") or None
    drm = f"renderD{render_minor}"
    architecture = f"gfx{major}{minor:x}{stepping:x}"
    return KfdNode(
        architecture,
        pci_id=f"{AMD_ON_PCI:04x}:{properties.get('device_id', 0):04x}",
        render_minor=render_minor,
        render=source.access(f"/dev/dri/{drm}"),
        product=_read_line(source, f"/sys/class/drm/{drm}/device/product_name"),
        memory_bytes=_read_memory(source, f"{folder}/mem_banks"),
        chip=find_chip(data_files.read_vendor("amd"), architecture),
    )


def _read_memory(source: Source, folder: str) -> int:
    memory_bytes = 0
    for name in source.names(folder):
        bank = _read_properties(source, f"{folder}/{name}")
        if bank.get("heap_type") in _VISIBLE_MEMORY:
            memory_bytes += bank.get("size_in_bytes", 0)
    return memory_bytes


def _read_properties(source: Source, folder: str) -> dict[str, int]:
    """Parse the ``properties`` file of a KFD node into names and numbers."""
    text = source.text(f"{folder}/properties") or ""
    pairs = re.findall(r"^(\S+) +([0-9]+)$", text, re.MULTILINE)
    return {name: int(number) for name, number in pairs}


def _read_line(source: Source, path: str) -> str | None:
    return (source.text(path) or "").strip() or None


class AmdProber(Prober):
    """Prober for AMD GPUs."""

    vendor = "amd"
    job_variables = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")

    def findings(self, source: Source, facts: MachineFacts) -> VendorFindings:
        """Read GPUs from KFD on Linux, or from display adapters on Windows."""
        nodes = _read_nodes(source)
        kfd = source.access(KFD)
        given = _select_usable_nodes(nodes, kfd, facts)
        gpus = [_create_gpu(index, node) for index, node in enumerate(given)]
        gpus += _find_windows_gpus(facts)
        circumstances = {
            **_collect_facts(nodes, given, facts),
            f"kfd-{kfd or 'missing'}": True,
            "override": given and source.variable("HSA_OVERRIDE_GFX_VERSION"),
        }
        lines = [
            f"{node.architecture} ({node.pci_id}) in the kernel's topology"
            for node in nodes
        ]
        evidence = " · ".join([*lines, f"{KFD}: {kfd or 'missing'}"])
        own = {
            "kernel": facts.host.release,
            # Only AMD's separate kernel module has a version. The module in Linux itself has none.
            "amdgpu": _read_line(source, MODULE_VERSION),
        }
        return VendorFindings(
            gpus=tuple(gpus),
            problems=create_findings(
                "amd", circumstances, facts.create_fix_context, evidence
            ),
            facts={key: fact for key, fact in own.items() if fact and given},
        )


@cache
def _has_builds(architecture: str) -> bool:
    """Return whether any ROCm build of torch has ever supported a chip."""
    builds = data_files.read_vendor("amd")["builds"]
    return any(architecture in build["linux_x86_64"][0].split() for build in builds)


def _select_usable_nodes(
    nodes: tuple[KfdNode, ...], kfd: Access | None, facts: MachineFacts
) -> tuple[KfdNode, ...]:
    """Return this process's AMD GPUs, or an empty tuple if none is usable.

    A GPU is usable if it is discrete or if any ROCm build supports it.
    """
    if facts.container.has_shared_bus:
        if kfd is None:
            return ()
        nodes = tuple(node for node in nodes if node.render or not node.render_minor)
    for node in nodes:
        if _has_builds(node.architecture) or not node.is_integrated:
            # Keep the unusable GPUs too, so that indices match HIP's.
            return nodes
    return ()


def _create_gpu(index: int, node: KfdNode) -> Gpu:
    name = node.product or node.chip.get("chip", "GPU")
    return Gpu(
        index,
        name=name if name.startswith("AMD") else f"AMD {name}",
        pci_id=node.pci_id,
        memory_mib=None if node.is_integrated else node.memory_bytes >> 20 or None,
        found_via="kfd",
        vendor="amd",
        architecture=node.architecture,
    )


def _find_windows_gpus(facts: MachineFacts) -> Iterator[Gpu]:
    """Yield Windows display adapters with a known product name.

    The product name determines the architecture, which Windows does not report.
    """
    if facts.machine.os != "windows":
        return
    for index, card in enumerate(facts.cards("amd")):
        # An example is "AMD Radeon(TM) RX 7900 XT".
        name = re.sub(r"\((R|TM)\)", "", card.product or "")
        product = " ".join(name.removeprefix("AMD ").split())
        for row in data_files.read_vendor("amd")["chips"]:
            if product in row["products"]:
                yield Gpu(
                    index,
                    name,
                    pci_id=card.id,
                    found_via="name",
                    vendor="amd",
                    architecture=row["architecture"],
                )


def _collect_facts(
    nodes: Sequence[KfdNode], given: Sequence[KfdNode], facts: MachineFacts
) -> KnownFacts:
    closed = {}
    integrated = {}
    for index, node in enumerate(given):
        if node.render_minor and node.render != "open":
            closed[index] = f"/dev/dri/renderD{node.render_minor}"
        if node.is_integrated:
            integrated[index] = node.architecture
    # Programs crash if they use integrated graphics next to a discrete GPU.
    cards = tuple(index for index in range(len(given)) if index not in integrated)
    displays = [device for device in facts.devices if device.is_display]
    others = [device for device in displays if device.vendor != "amd"]
    ours = facts.cards("amd")
    idle = [
        card for card in ours if card.is_display and card.driver not in KERNEL_DRIVERS
    ]
    may_be_idle = facts.machine.os == "linux" and not nodes and not others
    is_whole_machine = not facts.container.has_shared_bus
    is_shared_by_windows = False
    if facts.wsl and facts.wsl.gpu:
        is_shared_by_windows = facts.wsl.vendors & {"amd", "nvidia"} == {"amd"}
    return {
        "given": tuple(range(len(given))),
        "closed": tuple(closed),
        "closed-nodes": ", ".join(closed.values()),
        "integrated": tuple(integrated) if cards else (),
        "chips": ", ".join(integrated.values()),
        "cards": format_gpus(cards),
        "visible": ",".join(map(str, cards)),
        # GPUs without a kernel driver count only if no other vendor's GPU is present.
        "idle": format_devices(idle) if may_be_idle and is_whole_machine else "",
        "place": facts.container.place,
        "withheld": "" if is_whole_machine or given else format_devices(ours),
        "lent-by-windows": is_shared_by_windows,
    }
