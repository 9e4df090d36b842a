"""NVIDIA's half of the probe: its own steps, what they show, what is wrong with it, and how each card fares."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpuinstall.facts.bus import OTHER_BRIDGE
from gpuinstall.facts.children import run_children, time_limit
from gpuinstall.facts.source import json_or_none
from gpuinstall.facts.steps import Step
from gpuinstall.finding import CheckResult
from gpuinstall.vendors.nvidia import libraries, linux
from gpuinstall.vendors.nvidia.card_diagnosis import card_faults
from gpuinstall.vendors.nvidia.diagnosis import diagnose_machine
from gpuinstall.vendors.nvidia.evidence import (
    NVIDIA_ON_PCI,
    NvidiaEvidence,
    ToolkitVariables,
    drivers,
    read_jetson,
)
from gpuinstall.vendors.nvidia.gpus import driver_of, list_gpus
from gpuinstall.vendors.nvidia.notes import driver_notes
from gpuinstall.vendors.nvidia.smi import ask_smi
from gpuinstall.vendors.prober import GpuHealth, Preflight, Prober, VendorFindings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.facts.source import Source
    from gpuinstall.machine import Gpu, Machine
    from gpuinstall.reporter import Reporter

# Where nobody counts the cards: eight of them without persistence start within the seconds that five are given.
UNCOUNTED = 5
SYSTEM_NOT_READY = 802
TOOLKIT_VARIABLES = ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_REQUIRE_CUDA")


def _is_broken_on_linux(evidence: NvidiaEvidence) -> bool:
    return evidence.facts.host.os == "linux" and not (evidence.nvml.works and evidence.cuda_works)


def _recounted(evidence: NvidiaEvidence) -> int:
    """Count the cards of a library that had time for one card where there are more, which no file shows."""
    if evidence.shown:
        return 0
    silent = evidence.nvml.fault == evidence.cuda.fault == "timeout" and evidence.nvml.init is None
    gpus = UNCOUNTED if silent else max(evidence.nvml.count, len(evidence.cuda.devices))
    return gpus if gpus > 1 else 0


def _nvml_again(source: Source, evidence: NvidiaEvidence) -> libraries.NvmlFacts:
    again = evidence.recounted and evidence.nvml.fault == "timeout"
    return libraries.ask_nvml(source, evidence.recounted) if again else evidence.nvml


def _libcuda_again(source: Source, evidence: NvidiaEvidence) -> libraries.LibcudaFacts:
    again = evidence.recounted and evidence.cuda.fault == "timeout"
    return libraries.ask_libcuda(source, evidence.recounted) if again else evidence.cuda


def _fabric(source: Source, evidence: NvidiaEvidence) -> linux.Fabric | None:
    if evidence.cuda.init != SYSTEM_NOT_READY:
        return None
    kinds = [(device.vendor, device.kind) for device in evidence.facts.devices]
    return linux.read_fabric(source, kinds.count((NVIDIA_ON_PCI, OTHER_BRIDGE)))


def _nvml_or_smi(source: Source, evidence: NvidiaEvidence) -> libraries.NvmlFacts:
    """Return NVML's answer, or nvidia-smi's if neither library could answer; a recording has both."""
    is_needed = _needs_smi(evidence)
    if not is_needed and not source.is_recorded:
        return evidence.nvml
    answer = ask_smi(source, evidence.shown or 1)
    return answer if is_needed and answer.error else evidence.nvml


def _needs_smi(evidence: NvidiaEvidence) -> bool:
    """Say whether NVML was not there to answer, and nothing hung or crashed: what did is not asked again."""
    unasked = evidence.nvml.fault == "missing" or not evidence.nvml.was_asked
    silent = unasked and evidence.cuda.fault not in ("timeout", "crash")
    return silent and not evidence.cuda_works and evidence.facts.host.os != "macos"


def _nodes_given(source: Source, evidence: NvidiaEvidence) -> tuple[str, ...]:
    """List the nodes that a container or a job may open; a card that NVML has reached is not opened once more."""
    if not evidence.facts.container.shares_the_bus:
        return evidence.nodes
    reached = {gpu.bus_id for gpu in evidence.nvml.gpus if gpu.error is None}
    addresses = enumerate(device.address for device in evidence.usable)
    known = {
        linux.node_of(source, address, place) for place, address in addresses if address in reached
    }
    asked = tuple(node for node in evidence.nodes if node not in known)
    refused = linux.refused_cards(source, asked)
    return tuple(node for node in evidence.nodes if node not in refused)


def _opened(source: Source, evidence: NvidiaEvidence) -> frozenset[str]:
    """Find the cards of a container or a job: those whose nodes it may open."""
    if not evidence.facts.container.shares_the_bus:
        return frozenset()
    addresses = enumerate(device.address for device in evidence.usable)
    return frozenset(
        address
        for place, address in addresses
        if linux.node_of(source, address, place) in evidence.nodes
    )


NVIDIA_STEPS: tuple[Step[NvidiaEvidence], ...] = (
    Step("nodes", lambda source, _: linux.card_nodes(source)),
    Step("shown", lambda _, evidence: max(len(evidence.usable), len(evidence.nodes))),
    Step("jetson", lambda source, evidence: read_jetson(source, evidence.facts.host.release)),
    Step(
        "windows", lambda source, evidence: linux.read_lent_by_windows(source, evidence.facts.wsl)
    ),
    Step("toolkit", lambda source, _: ToolkitVariables(*map(source.variable, TOOLKIT_VARIABLES))),
    Step("visible", lambda source, _: source.variable("CUDA_VISIBLE_DEVICES")),
    Step(
        "nvml",
        lambda source, evidence: libraries.ask_nvml(source, evidence.shown or 1),
        together=True,
    ),
    Step(
        "cuda",
        lambda source, evidence: libraries.ask_libcuda(source, evidence.shown or 1),
        together=True,
    ),
    Step("recounted", lambda _, evidence: _recounted(evidence)),
    Step("nvml", _nvml_again, together=True),
    Step("cuda", _libcuda_again, together=True),
    Step(
        "kernel",
        lambda source, evidence: linux.read_linux_kernel(
            source, obstacles=_is_broken_on_linux(evidence)
        ),
    ),
    Step(
        "refused",
        lambda source, evidence: (
            linux.refused_nodes(source) if _is_broken_on_linux(evidence) else ()
        ),
    ),
    Step("fabric", _fabric),
    Step("nvml", _nvml_or_smi),
    Step("nodes", _nodes_given),
    Step("opened", _opened),
)


class NvidiaProber(Prober[NvidiaEvidence]):
    """NVIDIA's GPUs and their driver."""

    vendor = "nvidia"
    evidence = NvidiaEvidence
    steps = NVIDIA_STEPS

    def answers(self, evidence: NvidiaEvidence) -> bool:
        """Say whether NVML answered."""
        return evidence.nvml.works

    def conclude(self, evidence: NvidiaEvidence) -> VendorFindings:
        """List the GPUs that this process was given, and what is wrong with them. Pure."""
        if evidence.facts.container.shares_the_bus:
            evidence = replace(evidence, nvml=libraries.permitted(evidence.nvml))
        detected_gpus, fault = list_gpus(evidence), diagnose_machine(evidence)
        return VendorFindings(
            gpus=tuple(detected.gpu for detected in detected_gpus),
            driver=driver_of(evidence),
            faults=(
                *((fault,) if fault else ()),
                *card_faults(evidence, detected_gpus, driver_works=fault is None),
            ),
            notes=tuple(driver_notes(evidence)),
            shows_gpu=evidence.shows_gpu,
            l4t=evidence.jetson.l4t if evidence.jetson else None,
        )

    def preflight(self, machine: Machine, reporter: Reporter) -> Preflight:
        """Run a kernel on each usable GPU."""
        from gpuinstall.vendors.nvidia.preflight import run_preflight

        return run_preflight(machine, reporter)

    def withheld(self, gpu: Gpu, ordinal: int, name: str, environ: Mapping[str, str]) -> str | None:
        """Say that a scheduler's job does not give a GPU to this process."""
        given = libraries.job_devices(environ)
        if given is None or libraries.is_visible(given, ordinal, gpu, name):
            return None
        return f"not assigned to this job: CUDA_VISIBLE_DEVICES={given}"

    def health(self, gpus: int) -> Mapping[int, GpuHealth]:
        """Ask NVML about memory, clocks and link of every card; empty where it does not answer."""
        (done,) = run_children(
            [(libraries.nvml_command("health"), os.environ)], time_limit(gpus), waiting=lambda: None
        )
        answers = (
            answer
            for answer in map(json_or_none, done.out.splitlines())
            if isinstance(answer, dict)
        )
        return {
            card["index"]: judge_health(card)
            for card in answers
            if "index" in card and "error" not in card
        }


# NVML's clock event reasons that mean trouble: nvml.h, nvmlClocksEventReason*
SLOWED = {
    0x08: "the hardware's slowdown",
    0x20: "heat (the driver's limit)",
    0x40: "heat (the hardware's limit)",
    0x80: "the power supply's brake",
}

# GB/s of one lane after line coding, by generation: PCI Express Base Specification
LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}


def judge_health(card: Mapping[str, Any]) -> GpuHealth:
    """Judge one card's facts: memory errors are a fault; ECC, slowed clocks and narrow links are worth a word."""
    # Beside the processor's memory there is no such link; NVML names one of its first generation, one lane wide.
    if tuple(card.get("compute_capability") or ()) in drivers().unified_memory:
        card = {**card, "width": None, "generation": None}
    lane = LANE.get(card.get("generation") or 0)
    rate = lane * card["width"] if lane and card.get("width") else None
    return GpuHealth((_memory(card), _clocks(card), _link(card)), rate)


def _memory(card: Mapping[str, Any]) -> CheckResult:
    _corrected, _uncorrected, rows_pending, rows_failed = card.get("rows") or (0, 0, 0, 0)
    signs = {
        f"{card.get('uncorrected')} uncorrected memory errors": card.get("uncorrected"),
        "a memory page waits to be retired": card.get("pages_pending"),
        "a memory row waits to be remapped": rows_pending,
        "remapping a memory row failed": rows_failed,
    }
    faults = [text for text, sign in signs.items() if sign]
    if faults:
        return CheckResult("ecc", "failed", message="; ".join(faults), id="F09")
    mode, pending = card.get("ecc") or (-1, -1)
    text = {0: "ECC is off: memory errors are not counted", 1: "ECC is on"}.get(mode)
    if text and pending != mode:
        text += f"; {'on' if pending else 'off'} after the next restart"
    if all(card.get(fact) is None for fact in ("uncorrected", "pages_pending", "rows")):
        return CheckResult(
            "ecc", "skipped", message=text or "this GPU does not count memory errors"
        )
    return CheckResult("ecc", "passed", message=text)


def _clocks(card: Mapping[str, Any]) -> CheckResult:
    if card.get("slowed") is None:
        return CheckResult(
            "clocks", "skipped", message="this driver does not report why clocks are reduced"
        )
    reasons = [text for bit, text in SLOWED.items() if card["slowed"] & bit]
    return CheckResult(
        "clocks", "passed", message=f"slowed by {' and '.join(reasons)}" if reasons else None
    )


def _link(card: Mapping[str, Any]) -> CheckResult:
    width, widest = card.get("width"), card.get("widest")
    if not width or not widest:
        return CheckResult(
            "pcie-link",
            "skipped",
            message="this card has no PCI Express link of its own to measure",
        )
    narrow = f"x{width}, where card and slot could have x{widest}"
    return CheckResult("pcie-link", "passed", message=narrow if width < widest else f"x{width}")
