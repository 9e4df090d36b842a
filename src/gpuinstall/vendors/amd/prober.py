"""AMD's half of the probe: its own steps, what they show, and what is wrong with it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.facts.container import JOBS
from gpuinstall.facts.steps import Step, take
from gpuinstall.machine import Gpu
from gpuinstall.vendors.amd.chips import chip_of, is_integrated, product_named
from gpuinstall.vendors.amd.diagnosis import faults, notes
from gpuinstall.vendors.amd.evidence import AmdEvidence, has_builds, load_chips
from gpuinstall.vendors.amd.topology import KFD, MIB, PCI_VENDOR, read_nodes
from gpuinstall.vendors.prober import VendorFindings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuinstall.facts.source import Source
    from gpuinstall.facts.steps import MachineFacts
    from gpuinstall.machine import Machine
    from gpuinstall.reporter import Reporter
    from gpuinstall.vendors.amd.topology import KfdNode
    from gpuinstall.vendors.health import GpuHealth
    from gpuinstall.vendors.prober import Preflight

MODULE_VERSION = "/sys/module/amdgpu/version"
ROCM_VERSION = "/opt/rocm/.info/version"
VISIBLE = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")

STEPS: tuple[Step[AmdEvidence], ...] = (
    Step("nodes", lambda source, _: read_nodes(source)),
    Step("kfd", lambda source, evidence: source.access(KFD) if evidence.nodes or evidence.cards else None),
    Step("module", lambda source, evidence: _line(source, MODULE_VERSION) or "" if evidence.nodes else ""),
    Step("rocm", lambda source, evidence: _line(source, ROCM_VERSION) if evidence.nodes else None),
    Step("override", lambda source, _: source.variable("HSA_OVERRIDE_GFX_VERSION")),
)


class AmdProber:
    """AMD's GPUs and the kernel's driver for them."""

    vendor = "amd"

    def read(self, source: Source, facts: MachineFacts) -> AmdEvidence:
        """Take AMD's steps: files on Linux, nothing elsewhere."""
        return take(STEPS, AmdEvidence(facts), source) if facts.host.os == "linux" else AmdEvidence(facts)

    def answers(self, evidence: AmdEvidence) -> bool:
        """Say whether the kernel lists a GPU."""
        return bool(evidence.nodes)

    def conclude(self, evidence: AmdEvidence, facts: MachineFacts) -> VendorFindings:
        """List the GPUs that this process was given, and what is wrong with them. Pure."""
        evidence = replace(evidence, facts=facts)
        given = given_nodes(evidence)
        kernel = {"kernel": facts.host.release, "amdgpu": evidence.module or None, "rocm": evidence.rocm}
        adapters = tuple(named_adapters(facts))
        return VendorFindings(
            gpus=(*(_gpu(index, node) for index, node in enumerate(given)), *adapters),
            faults=tuple(faults(evidence, given)),
            notes=tuple(notes(evidence, given)),
            shows_gpu=bool(given or adapters),
            facts={key: value for key, value in kernel.items() if value} if given else {},
        )

    def preflight(self, machine: Machine, reporter: Reporter, seconds: float | None) -> Preflight:  # noqa: ARG002
        """Ask the kernel's compute driver for its version: a kernel needs ROCm, which only the build brings."""
        from gpuinstall.vendors.amd.preflight import preflight

        return preflight(machine)

    def withheld(self, gpu: Gpu, ordinal: int, name: str, environ: Mapping[str, str]) -> str | None:  # noqa: ARG002
        """Say that a scheduler's job does not give a GPU to this process."""
        if not any(environ.get(job) for job in JOBS):
            return None
        given = next(((key, environ[key]) for key in VISIBLE if environ.get(key)), None)
        if given is None or str(ordinal) in given[1].split(","):
            return None
        return f"not this job's: {given[0]}={given[1]}"

    def health(self, gpus: int) -> Mapping[int, GpuHealth]:  # noqa: ARG002
        """Ask nothing: no library of AMD's is on every machine."""
        return {}


def given_nodes(evidence: AmdEvidence) -> tuple[KfdNode, ...]:
    """Leave out what a container was not given, and a processor's graphics that no build was ever made for.

    Such graphics stay listed beside a card, so that the places of the others are those that HIP counts.
    """
    if evidence.facts.container.shares_the_bus and evidence.kfd is None:
        return ()
    nodes = tuple(node for node in evidence.nodes if not _is_not_lent(evidence, node))
    return nodes if any(map(_is_useful, nodes)) else ()


def named_adapters(facts: MachineFacts) -> Iterator[Gpu]:
    """List Windows' adapters whose name is that of a product with a chip that is known; Windows tells no more."""
    if facts.host.os != "windows":
        return
    cards = (each for each in facts.devices if each.vendor == PCI_VENDOR and each.name)
    for index, card in enumerate(cards):
        name = re.sub(r"\((R|TM)\)", "", card.name or "")
        if product := product_named(load_chips(), name):
            yield Gpu(index, name, pci_id=card.id, found_via="name", vendor="amd", architecture=product)


def _is_useful(node: KfdNode) -> bool:
    return not is_integrated(load_chips(), node.architecture) or has_builds(node.architecture)


def _is_not_lent(evidence: AmdEvidence, node: KfdNode) -> bool:
    return evidence.facts.container.shares_the_bus and node.render_minor is not None and node.render is None


def _gpu(index: int, node: KfdNode) -> Gpu:
    chip = chip_of(load_chips(), node.architecture)
    name = node.product or (chip.name if chip else "GPU")
    return Gpu(
        index,
        name if name.startswith("AMD") else f"AMD {name}",
        pci_id=node.pci_id,
        memory_mib=None if chip and chip.integrated else node.memory_bytes // MIB or None,
        found_via="kfd",
        vendor="amd",
        architecture=node.architecture,
    )


def _line(source: Source, path: str) -> str | None:
    return (source.text(path) or "").strip() or None
