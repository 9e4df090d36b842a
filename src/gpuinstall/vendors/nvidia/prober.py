"""NVIDIA's half of the probe: its own steps, what they show, and what is wrong with it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.facts.steps import Step, take
from gpuinstall.vendors.nvidia.card_diagnosis import card_faults
from gpuinstall.vendors.nvidia.chips import read_jetson
from gpuinstall.vendors.nvidia.diagnosis import machine_fault
from gpuinstall.vendors.nvidia.evidence import (
    PCI_VENDOR,
    NvidiaEvidence,
    gpus_on_bus,
    read_toolkit_variables,
)
from gpuinstall.vendors.nvidia.gpus import driver_of, list_gpus
from gpuinstall.vendors.nvidia.kernel_module import read_linux_kernel
from gpuinstall.vendors.nvidia.libcuda import LibcudaFacts, ask_libcuda
from gpuinstall.vendors.nvidia.nodes import (
    Fabric,
    card_nodes,
    may_open,
    read_fabric,
    read_lent_by_windows,
    refused_nodes,
)
from gpuinstall.vendors.nvidia.notes import notes
from gpuinstall.vendors.nvidia.nvml import NvmlFacts, ask_nvml, permitted
from gpuinstall.vendors.nvidia.preflight import preflight
from gpuinstall.vendors.nvidia.smi import ask_smi
from gpuinstall.vendors.prober import VendorFindings

if TYPE_CHECKING:
    from gpuinstall.facts.source import Source
    from gpuinstall.facts.steps import MachineFacts
    from gpuinstall.machine import Machine
    from gpuinstall.reporter import Reporter
    from gpuinstall.vendors.prober import Preflight

# Where nobody counts the cards: eight of them without persistence start within the seconds that five are given.
UNCOUNTED = 5
NVSWITCH = 0x0680
SYSTEM_NOT_READY = 802


def _is_linux(seen: NvidiaEvidence) -> bool:
    return seen.facts.host.os == "linux"


def _works(seen: NvidiaEvidence) -> bool:
    return seen.nvml.works and seen.cuda_works


def _given_on_bus(seen: NvidiaEvidence) -> int:
    return sum(not device.is_reserved for device in gpus_on_bus(seen.facts))


def _recounted(seen: NvidiaEvidence) -> int:
    """Count the cards of a library that had time for one card where there are more, which no file shows."""
    if seen.shown:
        return 0
    silent = seen.nvml.fault == seen.cuda.fault == "timeout" and seen.nvml.init is None
    gpus = UNCOUNTED if silent else max(seen.nvml.count, len(seen.cuda.devices))
    return gpus if gpus > 1 else 0


def _nvml_again(source: Source, seen: NvidiaEvidence) -> NvmlFacts:
    return ask_nvml(source, seen.recounted) if seen.recounted and seen.nvml.fault == "timeout" else seen.nvml


def _libcuda_again(source: Source, seen: NvidiaEvidence) -> LibcudaFacts:
    return ask_libcuda(source, seen.recounted) if seen.recounted and seen.cuda.fault == "timeout" else seen.cuda


def _fabric(source: Source, seen: NvidiaEvidence) -> Fabric | None:
    if seen.cuda.init != SYSTEM_NOT_READY:
        return None
    return read_fabric(source, sum(_is_switch(device.vendor, device.kind) for device in seen.facts.devices))


def _is_switch(vendor: int, kind: int) -> bool:
    """An NVSwitch is a bridge of NVIDIA's."""
    return vendor == PCI_VENDOR and kind == NVSWITCH


def _smi(source: Source, seen: NvidiaEvidence) -> NvmlFacts:
    return ask_smi(source, seen.shown or 1) if source.is_recorded or _needs_smi(seen) else seen.smi


def _needs_smi(seen: NvidiaEvidence) -> bool:
    """Say whether NVML was not there to answer, and nothing hung or crashed: what did is not asked again."""
    unasked = seen.nvml.fault == "missing" or not seen.nvml.was_asked
    silent = unasked and seen.cuda.fault not in ("timeout", "crash")
    return silent and not seen.cuda_works and seen.facts.host.os != "macos"


def _opened(source: Source, seen: NvidiaEvidence) -> frozenset[str]:
    """Find the cards of a container or a job: those whose nodes it may open."""
    if not seen.facts.container.shares_the_bus:
        return frozenset()
    usable = [device for device in gpus_on_bus(seen.facts) if not device.is_reserved]
    return frozenset(each.address for place, each in enumerate(usable) if may_open(source, each.address, place))


def _nodes_given(source: Source, seen: NvidiaEvidence) -> tuple[str, ...]:
    if not seen.facts.container.shares_the_bus:
        return seen.nodes
    return tuple(node for node in seen.nodes if source.access(f"/dev/{node}") == "open")


STEPS: tuple[Step[NvidiaEvidence], ...] = (
    Step("nodes", lambda source, _: card_nodes(source)),
    Step("shown", lambda _, seen: max(_given_on_bus(seen), len(seen.nodes))),
    Step("jetson", lambda source, seen: read_jetson(source, seen.facts.host.release)),
    Step("windows", lambda source, seen: read_lent_by_windows(source, seen.facts.wsl)),
    Step("toolkit", lambda source, _: read_toolkit_variables(source)),
    Step("visible", lambda source, _: source.variable("CUDA_VISIBLE_DEVICES")),
    Step("nvml", lambda source, seen: ask_nvml(source, seen.shown or 1), together=True),
    Step("cuda", lambda source, seen: ask_libcuda(source, seen.shown or 1), together=True),
    Step("recounted", lambda _, seen: _recounted(seen)),
    Step("nvml", _nvml_again, together=True),
    Step("cuda", _libcuda_again, together=True),
    Step("kernel", lambda source, seen: read_linux_kernel(source, hindrances=_is_linux(seen) and not _works(seen))),
    Step("refused", lambda source, seen: refused_nodes(source) if _is_linux(seen) and not _works(seen) else ()),
    Step("fabric", _fabric),
    Step("smi", _smi),
    Step("nvml", lambda _, seen: seen.smi if _needs_smi(seen) and seen.smi.error else seen.nvml),
    Step("opened", _opened),
    Step("nodes", _nodes_given),
)


class NvidiaProber:
    """NVIDIA's GPUs and their driver."""

    vendor = "nvidia"
    pci_vendor = PCI_VENDOR

    def read(self, source: Source, facts: MachineFacts) -> NvidiaEvidence:
        """Take NVIDIA's steps."""
        return take(STEPS, NvidiaEvidence(facts), source)

    def answers(self, evidence: NvidiaEvidence) -> bool:
        """Say whether NVML answered."""
        return evidence.nvml.works

    def conclude(self, evidence: NvidiaEvidence, facts: MachineFacts) -> VendorFindings:
        """List the GPUs that this process was given, and what is wrong with them. Pure."""
        shared = facts.container.shares_the_bus
        seen = replace(evidence, facts=facts, nvml=permitted(evidence.nvml) if shared else evidence.nvml)
        found, fault = list_gpus(seen), machine_fault(seen)
        return VendorFindings(
            gpus=tuple(detected.gpu for detected in found),
            driver=driver_of(seen),
            faults=(*((fault,) if fault else ()), *card_faults(seen, found, driver_works=fault is None)),
            notes=tuple(notes(seen)),
            shows_gpu=seen.shows_gpu,
            l4t=seen.jetson.l4t if seen.jetson else None,
        )

    def preflight(self, machine: Machine, reporter: Reporter, seconds: float | None) -> Preflight:
        """Run a kernel on each usable GPU."""
        return preflight(machine, reporter, seconds=seconds)
