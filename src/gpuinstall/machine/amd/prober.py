"""AMD's half of the probe: its own steps, what they show, and what is wrong with it.

The GPUs are those that the kernel's compute driver (KFD) lists: from sysfs, immune to every variable of ROCm. Format:
drivers/gpu/drm/amd/amdkfd/kfd_topology.c; ``gfx_target_version`` 90010 is gfx90a, 110501 is gfx1151.
"""

from __future__ import annotations

import os
import re
import struct
from dataclasses import field
from functools import cache
from typing import TYPE_CHECKING, Any

from gpuinstall.base.machine import Gpu, Machine
from gpuinstall.base.values import dataclass
from gpuinstall.catalog import authored
from gpuinstall.catalog.failures.problems import FixContext, finding_for
from gpuinstall.machine.amd.rules import amd_chip, architecture_of_product, is_integrated
from gpuinstall.machine.prober import (
    GpuProof,
    Preflight,
    Prober,
    VendorFindings,
    format_gpus,
    withheld_cards,
    without_trademarks,
)
from gpuinstall.machine.steps import MachineFacts, Step

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuinstall.base.finding import Finding
    from gpuinstall.base.reporter import Reporter
    from gpuinstall.machine.bus import PciDevice
    from gpuinstall.machine.source import Access, Source

AMD_ON_PCI = 0x1002
MODULE = "amdgpu"
KFD = "/dev/kfd"
KFD_NODES = "/sys/class/kfd/kfd/topology/nodes"
MODULE_VERSION = "/sys/module/amdgpu/version"
ROCM_VERSION = "/opt/rocm/.info/version"
POINTER = "https://rocm.docs.amd.com/projects/radeon-ryzen/"
GET_VERSION = 0x80084B01
"""AMDKFD_IOC_GET_VERSION of linux/kfd_ioctl.h: two numbers of 32 bits are read."""
_VISIBLE_MEMORY = (1, 2)
"""The heaps that are a card's own memory: all of it public, or some of it private."""


@dataclass(frozen=True)
class KfdNode:
    """One GPU of the topology."""

    architecture: str
    device: int
    """Its number on the bus."""
    render_minor: int | None = None
    """The number of its node below /dev/dri."""
    render: Access | None = None
    """Whether that node may be opened."""
    product: str | None = None
    memory_bytes: int = 0

    @property
    def pci_id(self) -> str:
        """Vendor and device as people write them."""
        return f"{AMD_ON_PCI:04x}:{self.device:04x}"


@dataclass(frozen=True)
class AmdEvidence:
    """The facts of all steps."""

    facts: MachineFacts = field(default_factory=MachineFacts)
    nodes: tuple[KfdNode, ...] = ()
    kfd: Access | None = None
    module: str | None = None
    """The release of AMD's own kernel module; None: it is the kernel's."""
    rocm: str | None = None
    """The release of a ROCm installation, which no wheel needs."""
    override: str | None = None
    """HSA_OVERRIDE_GFX_VERSION."""

    @property
    def cards(self) -> tuple[PciDevice, ...]:
        """AMD's display controllers and accelerators on the bus."""
        ours = (device for device in self.facts.devices if device.vendor == AMD_ON_PCI)
        return tuple(device for device in ours if device.may_compute and not device.is_reserved)

    @property
    def is_lent_by_windows(self) -> bool:
        """Whether WSL has a GPU, and of Windows' drivers AMD's but not NVIDIA's."""
        wsl = self.facts.wsl
        if wsl is None or not wsl.gpu:
            return False
        names = [name.lower() for name in wsl.drivers]
        has_amd = any(name.startswith(("u0", "amd")) for name in names)
        return has_amd and not any(name.startswith("nv") for name in names)


def _nodes(source: Source, _: AmdEvidence) -> tuple[KfdNode, ...]:
    """Return AMD's GPUs in the order in which HIP counts them; those that this process may not see are not readable."""
    names = [name for name in source.names(KFD_NODES) if name.isdecimal()]
    nodes = [_read_node(source, f"{KFD_NODES}/{name}") for name in sorted(names, key=int)]
    return tuple(filter(None, nodes))


def _read_node(source: Source, folder: str) -> KfdNode | None:
    properties = _read_properties(source, folder)
    version = properties.get("gfx_target_version", 0)
    if properties.get("vendor_id") != AMD_ON_PCI or version < 10000:
        return None
    major, rest = divmod(version, 10000)
    minor, stepping = divmod(rest, 100)
    render_minor = properties.get("drm_render_minor") or None
    return KfdNode(
        architecture=f"gfx{major}{minor:x}{stepping:x}",
        device=properties.get("device_id", 0),
        render_minor=render_minor,
        render=source.access(f"/dev/dri/renderD{render_minor}") if render_minor else None,
        product=_read_line(source, f"/sys/class/drm/renderD{render_minor}/device/product_name"),
        memory_bytes=_read_memory(source, f"{folder}/mem_banks"),
    )


def _read_memory(source: Source, folder: str) -> int:
    memory_bytes = 0
    for name in source.names(folder):
        bank = _read_properties(source, f"{folder}/{name}")
        if bank.get("heap_type") in _VISIBLE_MEMORY:
            memory_bytes += bank.get("size_in_bytes", 0)
    return memory_bytes


def _read_properties(source: Source, folder: str) -> dict[str, int]:
    """Return the lines of a name and a number; others are left out."""
    text = source.text(f"{folder}/properties") or ""
    pairs = re.findall(r"^(\S+) +([0-9]+)$", text, re.MULTILINE)
    return {name: int(number) for name, number in pairs}


def _read_line(source: Source, path: str) -> str | None:
    return (source.text(path) or "").strip() or None


class AmdProber(Prober[AmdEvidence]):
    """AMD's GPUs and the kernel's driver for them."""

    vendor = "amd"
    evidence = AmdEvidence
    steps = (
        Step("nodes", _nodes),
        Step(
            "kfd",
            lambda source, evidence: (
                source.access(KFD) if evidence.nodes or evidence.cards else None
            ),
        ),
        Step(
            "module",
            lambda source, evidence: _read_line(source, MODULE_VERSION) if evidence.nodes else None,
        ),
        Step(
            "rocm",
            lambda source, evidence: _read_line(source, ROCM_VERSION) if evidence.nodes else None,
        ),
        Step("override", lambda source, _: source.variable("HSA_OVERRIDE_GFX_VERSION")),
    )
    systems = frozenset({"linux"})
    job_variables = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")

    def answers(self, evidence: AmdEvidence) -> bool:
        """Whether the kernel lists a GPU."""
        return bool(evidence.nodes)

    def conclude(self, evidence: AmdEvidence) -> VendorFindings:
        """Return the GPUs that this process was given, and what is wrong with them. Pure."""
        given = _given_nodes(evidence)
        gpus = [_gpu(index, node) for index, node in enumerate(given)]
        gpus += _windows_gpus(evidence.facts)
        facts = {
            "kernel": evidence.facts.host.release,
            "amdgpu": evidence.module,
            "rocm": evidence.rocm,
        }
        return VendorFindings(
            gpus=tuple(gpus),
            faults=tuple(_faults(evidence, given)),
            notes=tuple(_notes(evidence, given)),
            shows_gpu=bool(gpus),
            facts={key: fact for key, fact in facts.items() if fact and given},
        )

    def preflight(self, machine: Machine, reporter: Reporter) -> Preflight:
        """Ask the kernel's compute driver for its version, once for all GPUs.

        They stay unproven: a kernel needs ROCm, which only the build brings.
        """
        unproven = super().preflight(machine, reporter)
        if machine.blocking or not unproven.cards or machine.os != "linux":
            return Preflight()
        try:
            kfd_version()
        except OSError as error:
            gpus = tuple(card.index for card in unproven.cards)
            fault = finding_for(
                "kfd-not-answering",
                f"{KFD} does not answer: {error.strerror}",
                FixContext.of_machine(machine),
                gpus=gpus,
            )
            proofs = tuple(GpuProof(gpu, "failed") for gpu in gpus)
            return Preflight(proofs, (fault,))
        return unproven


def kfd_version(path: str = KFD) -> tuple[int, int]:
    """Return the compute driver's version; raise OSError if it does not answer."""
    import fcntl

    device = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        answer = fcntl.ioctl(device, GET_VERSION, bytes(8))
    finally:
        os.close(device)
    major, minor = struct.unpack("II", answer)
    return major, minor


@cache
def amd_chips() -> dict[str, Any]:
    """Return the rows about chips."""
    return authored.read_data("gpus_amd.toml")


@cache
def _has_builds(architecture: str) -> bool:
    """Whether any build was ever made for a chip."""
    builds = authored.read_data("builds_rocm.toml")["builds"]
    return any(architecture in build["linux_x86_64"][0].split() for build in builds)


def _given_nodes(evidence: AmdEvidence) -> tuple[KfdNode, ...]:
    """Leave out what a container was not given, and a processor's graphics that no build was ever made for."""
    nodes = evidence.nodes
    if evidence.facts.container.shares_the_bus:
        if evidence.kfd is None:
            return ()
        nodes = tuple(node for node in nodes if node.render or not node.render_minor)
    for node in nodes:
        if _has_builds(node.architecture) or not is_integrated(amd_chips(), node.architecture):
            # Beside a card the others stay listed, so that its place is that which HIP counts.
            return nodes
    return ()


def _gpu(index: int, node: KfdNode) -> Gpu:
    chip = amd_chip(amd_chips(), node.architecture)
    name = node.product or (chip.name if chip else "GPU")
    is_shared = chip is not None and chip.integrated
    return Gpu(
        index,
        name=name if name.startswith("AMD") else f"AMD {name}",
        pci_id=node.pci_id,
        memory_mib=None if is_shared else node.memory_bytes >> 20 or None,
        found_via="kfd",
        vendor="amd",
        architecture=node.architecture,
    )


def _windows_gpus(facts: MachineFacts) -> Iterator[Gpu]:
    """Yield Windows' adapters whose name is that of a product with a chip that is known; Windows tells no more."""
    if facts.host.os != "windows":
        return
    ours = [device for device in facts.devices if device.vendor == AMD_ON_PCI]
    cards = [device for device in ours if device.name]
    for index, card in enumerate(cards):
        name = without_trademarks(card.name or "")
        architecture = architecture_of_product(amd_chips(), name)
        if architecture:
            yield Gpu(
                index,
                name,
                pci_id=card.id,
                found_via="name",
                vendor="amd",
                architecture=architecture,
            )


def _faults(evidence: AmdEvidence, given: Sequence[KfdNode]) -> Iterator[Finding]:
    """Yield what stands between the GPUs and every program, else what takes single ones out."""
    if given and evidence.kfd != "open":
        yield finding_for(
            "kfd-not-permitted",
            f"{KFD} {'may not be opened' if evidence.kfd else 'is missing'}",
            evidence.facts.fix_context,
            why="every program that uses an AMD GPU opens it",
            evidence=_evidence_line(evidence),
            gpus=tuple(range(len(given))),
        )
        return
    for rule in (_closed_nodes, _integrated_gpus, _idle_cards):
        yield from rule(evidence, given)


def _closed_nodes(evidence: AmdEvidence, given: Sequence[KfdNode]) -> Iterator[Finding]:
    """Yield the GPUs whose render nodes may not be opened."""
    closed = {}
    for index, node in enumerate(given):
        if node.render_minor and node.render != "open":
            closed[index] = f"/dev/dri/renderD{node.render_minor}"
    if closed:
        gpus = tuple(closed)
        yield finding_for(
            "kfd-not-permitted",
            f"{', '.join(closed.values())} not accessible: {format_gpus(gpus)} cannot be used",
            evidence.facts.fix_context,
            why="each card has its own device node, besides /dev/kfd",
            evidence=_evidence_line(evidence),
            gpus=gpus,
        )


def _integrated_gpus(evidence: AmdEvidence, given: Sequence[KfdNode]) -> Iterator[Finding]:
    """Yield a processor's graphics beside a card: programs that take both crash."""
    integrated = {}
    for index, node in enumerate(given):
        if is_integrated(amd_chips(), node.architecture):
            integrated[index] = node.architecture
    cards = tuple(index for index in range(len(given)) if index not in integrated)
    if integrated and cards:
        gpus = tuple(integrated)
        numbers = ",".join(map(str, cards))
        yield finding_for(
            "integrated-gpu-left-out",
            f"{format_gpus(gpus)} ({', '.join(integrated.values())}) is the processor's own"
            f" and is not used with {format_gpus(cards)}",
            evidence.facts.fix_context.knowing(gpu=numbers),
            why="programs that see both crash, or use the slower one",
            gpus=gpus,
        )


def _idle_cards(evidence: AmdEvidence, _: Sequence[KfdNode]) -> Iterator[Finding]:
    """Yield that nothing drives a card, and no other maker's is there: the kernel's module was kept out."""
    facts = evidence.facts
    if facts.host.os != "linux" or evidence.nodes or facts.container.shares_the_bus:
        return
    cards = [card for card in evidence.cards if card.is_display]
    idle = [card for card in cards if card.driver not in {MODULE, "radeon"}]
    others = [
        device for device in facts.devices if device.is_display and device.vendor != AMD_ON_PCI
    ]
    if idle and not others:
        yield finding_for(
            "amdgpu-not-loaded",
            f"no driver is loaded for {', '.join(map(_name_card, idle))}",
            facts.fix_context,
            why=f"the kernel module {MODULE} supports none of them",
        )


def _notes(evidence: AmdEvidence, given: Sequence[KfdNode]) -> Iterator[Finding]:
    """Yield what should be known and stops nothing."""
    facts = evidence.facts
    if facts.container.shares_the_bus and evidence.cards and not given:
        why = f"{KFD} and their render nodes are missing here"
        yield withheld_cards(facts, map(_name_card, evidence.cards), why)
    if evidence.override and given:
        yield finding_for(
            "gfx-override-set",
            f"HSA_OVERRIDE_GFX_VERSION={evidence.override} makes every program treat the GPU as another chip",
            facts.fix_context,
            why="the build is for the chip that the kernel reports; code for another may crash or compute wrongly",
            blocking=False,
        )
    if evidence.is_lent_by_windows:
        yield finding_for(
            "not-in-wsl",
            "in WSL an AMD GPU requires librocdxg, which PyTorch's builds do not include",
            facts.fix_context,
            why=f"AMD's guide: {POINTER}",
            blocking=False,
        )


def _name_card(card: PciDevice) -> str:
    return f"AMD {card.id} at {card.address}"


def _evidence_line(evidence: AmdEvidence) -> str:
    facts = [
        f"{node.architecture} ({node.pci_id}) in the kernel's topology" for node in evidence.nodes
    ]
    facts.append(f"{KFD}: {evidence.kfd or 'missing'}")
    return " · ".join(facts)
