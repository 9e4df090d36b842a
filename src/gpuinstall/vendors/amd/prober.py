"""AMD's half of the probe: its own steps, what they show, and what is wrong with it.

The GPUs are those that the kernel's compute driver (KFD) lists: from sysfs, immune to every variable of ROCm. Format:
drivers/gpu/drm/amd/amdkfd/kfd_topology.c; ``gfx_target_version`` 90010 is gfx90a, 110501 is gfx1151.
"""

from __future__ import annotations

import os
import re
import struct
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from gpuinstall.catalog import authored
from gpuinstall.facts.steps import MachineFacts, Step
from gpuinstall.failures.problems import FixContext, finding_for
from gpuinstall.machine import Gpu, Machine
from gpuinstall.vendors.amd.rules import amd_chip, is_integrated, product_named
from gpuinstall.vendors.prober import GpuProof, Preflight, Prober, VendorFindings, format_gpus

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuinstall.facts.bus import PciDevice
    from gpuinstall.facts.source import Access, Source
    from gpuinstall.finding import Finding
    from gpuinstall.reporter import Reporter


KFD_NODES = "/sys/class/kfd/kfd/topology/nodes"
KFD = "/dev/kfd"
AMD_ON_PCI = 0x1002
_VISIBLE_MEMORY = (1, 2)
"""The heaps that are a card's own memory: all of it public, or some of it private."""

MODULE = "amdgpu"


@dataclass(frozen=True)
class KfdNode:
    """One GPU of the topology; ``render`` says whether its node below /dev/dri may be opened, memory is in bytes."""

    architecture: str
    device: int
    render_minor: int | None = None
    render: Access | None = None
    product: str | None = None
    memory_bytes: int = 0

    @property
    def pci_id(self) -> str:
        """Vendor and device as people write them."""
        return f"{AMD_ON_PCI:04x}:{self.device:04x}"


def read_nodes(source: Source) -> tuple[KfdNode, ...]:
    """Read AMD's GPUs in the order in which HIP counts them; those that this process may not see are not readable."""
    numbers = sorted(int(name) for name in source.names(KFD_NODES) if name.isdecimal())
    return tuple(node for number in numbers if (node := _read(source, f"{KFD_NODES}/{number}")))


def parse_properties(text: str) -> dict[str, int]:
    """Read lines of a name and a number; others are left out."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


@dataclass(frozen=True)
class AmdEvidence:
    """The facts of all steps.

    ``module`` is the release of AMD's own kernel module, empty for the kernel's; ``rocm`` that of a ROCm installation,
    which no wheel needs; ``override`` is HSA_OVERRIDE_GFX_VERSION.
    """

    facts: MachineFacts = field(default_factory=MachineFacts)
    nodes: tuple[KfdNode, ...] = ()
    kfd: Access | None = None
    module: str = ""
    rocm: str | None = None
    override: str | None = None

    @property
    def cards(self) -> tuple[PciDevice, ...]:
        """AMD's display controllers and accelerators on the bus."""
        ours = (device for device in self.facts.devices if device.vendor == AMD_ON_PCI)
        return tuple(device for device in ours if device.may_compute and not device.is_reserved)

    @property
    def lent_by_windows(self) -> bool:
        """Say whether WSL has a GPU, and Windows a driver of AMD's alone."""
        wsl = self.facts.wsl
        names = [name.lower() for name in wsl.drivers] if wsl and wsl.gpu else []
        amds, nvidias = (
            any(name.startswith(start) for name in names) for start in (("u0", "amd"), "nv")
        )
        return amds and not nvidias


@cache
def amd_chips() -> dict[str, Any]:
    """Load the rows about chips."""
    return authored.read_data("gpus_amd.toml")


@cache
def has_builds(architecture: str) -> bool:
    """Say whether any build was ever made for a chip."""
    codes = (
        row["linux_x86_64"][0].split() for row in authored.read_data("builds_rocm.toml")["builds"]
    )
    return any(architecture in code for code in codes)


def _read(source: Source, folder: str) -> KfdNode | None:
    properties = parse_properties(source.text(f"{folder}/properties") or "")
    major, rest = divmod(
        properties.get("gfx_target_version", 0), 10000
    )  # minor and step in hexadecimal digits
    architecture = f"gfx{major}{rest // 100:x}{rest % 100:x}" if major else None
    if properties.get("vendor_id") != AMD_ON_PCI or architecture is None:
        return None
    minor = properties.get("drm_render_minor") or None
    files = (
        f"{folder}/mem_banks/{name}/properties" for name in source.names(f"{folder}/mem_banks")
    )
    banks = (parse_properties(source.text(file) or "") for file in files)
    return KfdNode(
        architecture,
        properties.get("device_id", 0),
        minor,
        source.access(f"/dev/dri/renderD{minor}") if minor else None,
        (source.text(f"/sys/class/drm/renderD{minor}/device/product_name") or "").strip() or None,
        sum(
            bank.get("size_in_bytes", 0)
            for bank in banks
            if bank.get("heap_type") in _VISIBLE_MEMORY
        ),
    )


MODULE_VERSION = "/sys/module/amdgpu/version"
ROCM_VERSION = "/opt/rocm/.info/version"
POINTER = "https://rocm.docs.amd.com/projects/radeon-ryzen/"
GET_VERSION = 0x80084B01
"""AMDKFD_IOC_GET_VERSION of linux/kfd_ioctl.h: two numbers of 32 bits are read."""


class AmdProber(Prober[AmdEvidence]):
    """AMD's GPUs and the kernel's driver for them."""

    vendor = "amd"
    evidence = AmdEvidence
    steps = (
        Step("nodes", lambda source, _: read_nodes(source)),
        Step(
            "kfd",
            lambda source, evidence: (
                source.access(KFD) if evidence.nodes or evidence.cards else None
            ),
        ),
        Step(
            "module",
            lambda source, evidence: _line(source, MODULE_VERSION) or "" if evidence.nodes else "",
        ),
        Step(
            "rocm", lambda source, evidence: _line(source, ROCM_VERSION) if evidence.nodes else None
        ),
        Step("override", lambda source, _: source.variable("HSA_OVERRIDE_GFX_VERSION")),
    )
    systems = frozenset({"linux"})
    job_variables = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")

    def answers(self, evidence: AmdEvidence) -> bool:
        """Say whether the kernel lists a GPU."""
        return bool(evidence.nodes)

    def conclude(self, evidence: AmdEvidence) -> VendorFindings:
        """List the GPUs that this process was given, and what is wrong with them. Pure."""
        facts = evidence.facts
        given, adapters = _given_nodes(evidence), tuple(_named_adapters(facts))
        kernel = {
            "kernel": facts.host.release,
            "amdgpu": evidence.module or None,
            "rocm": evidence.rocm,
        }
        return VendorFindings(
            gpus=(*(_gpu(index, node) for index, node in enumerate(given)), *adapters),
            faults=tuple(_faults(evidence, given)),
            notes=tuple(_notes(evidence, given)),
            shows_gpu=bool(given or adapters),
            facts={key: value for key, value in kernel.items() if value} if given else {},
        )

    def preflight(self, machine: Machine, reporter: Reporter) -> Preflight:
        """Ask the kernel's compute driver for its version, once for all GPUs.

        They stay unproven: a kernel needs ROCm, which only the build brings.
        """
        idle = super().preflight(machine, reporter)
        if machine.blocking or not idle.cards or machine.os != "linux":
            return Preflight()
        try:
            kfd_version()
        except OSError as error:
            gpus = tuple(card.index for card in idle.cards)
            message = f"{KFD} does not answer: {error.strerror}"
            fault = finding_for(
                "kfd-not-answering", message, FixContext.of_machine(machine), gpus=gpus
            )
            return Preflight(tuple(GpuProof(gpu, "failed") for gpu in gpus), (fault,))
        return idle


def kfd_version(path: str = KFD) -> tuple[int, int]:
    """Ask the compute driver for its version; raise OSError where it does not answer."""
    import fcntl

    device = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        major, minor = struct.unpack("II", fcntl.ioctl(device, GET_VERSION, bytes(8)))
    finally:
        os.close(device)
    return major, minor


def _given_nodes(evidence: AmdEvidence) -> tuple[KfdNode, ...]:
    """Leave out what a container was not given, and a processor's graphics that no build was ever made for."""
    shared = evidence.facts.container.shares_the_bus
    if shared and evidence.kfd is None:
        return ()
    nodes = tuple(
        node
        for node in evidence.nodes
        if not (shared and node.render_minor and node.render is None)
    )
    chips = {node.architecture for node in nodes}
    # Beside a card they stay listed, so that the places of the others are those that HIP counts.
    return (
        nodes
        if any(not is_integrated(amd_chips(), chip) or has_builds(chip) for chip in chips)
        else ()
    )


def _named_adapters(facts: MachineFacts) -> Iterator[Gpu]:
    """List Windows' adapters whose name is that of a product with a chip that is known; Windows tells no more."""
    if facts.host.os != "windows":
        return
    cards = (device for device in facts.devices if device.vendor == AMD_ON_PCI and device.name)
    for index, card in enumerate(cards):
        name = re.sub(r"\((R|TM)\)", "", card.name or "")
        if product := product_named(amd_chips(), name):
            yield Gpu(
                index, name, pci_id=card.id, found_via="name", vendor="amd", architecture=product
            )


def _faults(evidence: AmdEvidence, given: Sequence[KfdNode]) -> Iterator[Finding]:
    """Name what stands between the GPUs and every program, then what takes single ones out."""
    context = evidence.facts.fix_context
    if given and evidence.kfd != "open":
        message = f"{KFD} {'may not be opened' if evidence.kfd else 'is missing'}"
        why, gpus = "every program that uses an AMD GPU opens it", tuple(range(len(given)))
        yield finding_for(
            "kfd-not-permitted", message, context, why=why, evidence=_seen(evidence), gpus=gpus
        )
        return
    closed = {
        index: node
        for index, node in enumerate(given)
        if node.render_minor and node.render != "open"
    }
    if closed:
        names = ", ".join(f"/dev/dri/renderD{node.render_minor}" for node in closed.values())
        message = f"{names} not accessible: {format_gpus(tuple(closed))} cannot be used"
        why = "each card has its own device node, besides /dev/kfd"
        yield finding_for(
            "kfd-not-permitted",
            message,
            context,
            why=why,
            evidence=_seen(evidence),
            gpus=tuple(closed),
        )
    yield from _integrated(evidence, given)
    if (
        evidence.facts.host.os == "linux"
        and not evidence.nodes
        and not evidence.facts.container.shares_the_bus
    ):
        yield from _not_loaded(evidence)


def _notes(evidence: AmdEvidence, given: Sequence[KfdNode]) -> Iterator[Finding]:
    """List what should be known and stops nothing."""
    context = evidence.facts.fix_context
    room = "container" if evidence.facts.container.engine else "job"
    if evidence.facts.container.shares_the_bus and evidence.cards and not given:
        cards = ", ".join(f"AMD {card.id} at {card.address}" for card in evidence.cards)
        message, why = (
            f"not given to this {room}: {cards}",
            f"{KFD} and their render nodes are missing here",
        )
        yield finding_for("gpu-not-ours", message, context, why=why, blocking=False)
    if evidence.override and given:
        message = f"HSA_OVERRIDE_GFX_VERSION={evidence.override} makes every program treat the GPU as another chip"
        why = "the build is for the chip that the kernel reports; code for another may crash or compute wrongly"
        yield finding_for("gfx-override-set", message, context, why=why, blocking=False)
    if evidence.lent_by_windows:
        message = "in WSL an AMD GPU requires librocdxg, which PyTorch's builds do not include"
        yield finding_for(
            "not-in-wsl", message, context, why=f"AMD's guide: {POINTER}", blocking=False
        )


def _gpu(index: int, node: KfdNode) -> Gpu:
    chip = amd_chip(amd_chips(), node.architecture)
    name = node.product or (chip.name if chip else "GPU")
    name, code = name if name.startswith("AMD") else f"AMD {name}", node.architecture
    memory = None if chip and chip.integrated else node.memory_bytes >> 20 or None
    return Gpu(
        index,
        name,
        pci_id=node.pci_id,
        memory_mib=memory,
        found_via="kfd",
        vendor="amd",
        architecture=code,
    )


def _line(source: Source, path: str) -> str | None:
    return (source.text(path) or "").strip() or None


def _integrated(evidence: AmdEvidence, given: Sequence[KfdNode]) -> Iterator[Finding]:
    """Take a processor's graphics out where a card of its own is there: programs that take both crash."""
    inside = tuple(
        index for index, node in enumerate(given) if is_integrated(amd_chips(), node.architecture)
    )
    cards = tuple(index for index in range(len(given)) if index not in inside)
    if inside and cards:
        chips = ", ".join(given[index].architecture for index in inside)
        message = f"{format_gpus(inside)} ({chips}) is the processor's own and is not used with {format_gpus(cards)}"
        context = evidence.facts.fix_context.knowing(gpu=",".join(map(str, cards)))
        why = "programs that see both crash, or use the slower one"
        yield finding_for("integrated-gpu-left-out", message, context, why=why, gpus=inside)


def _not_loaded(evidence: AmdEvidence) -> Iterator[Finding]:
    """Nothing drives a card: the kernel's module was kept out."""
    idle = [
        card for card in evidence.cards if card.is_display and card.driver not in {MODULE, "radeon"}
    ]
    if idle and not any(
        device.vendor != idle[0].vendor and device.is_display for device in evidence.facts.devices
    ):
        names = ", ".join(f"AMD {card.id} at {card.address}" for card in idle)
        why = f"the kernel module {MODULE} supports none of them"
        yield finding_for(
            "amdgpu-not-loaded",
            f"no driver is loaded for {names}",
            evidence.facts.fix_context,
            why=why,
        )


def _seen(evidence: AmdEvidence) -> str:
    chips = [
        f"{node.architecture} ({node.pci_id}) in the kernel's topology" for node in evidence.nodes
    ]
    return " · ".join((*chips, f"{KFD}: {evidence.kfd or 'missing'}"))
