"""NVIDIA's half of the probe: its own steps, what they show, what is wrong with it, and how each card fares."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.base.finding import CheckResult
from gpuinstall.machine.bus import OTHER_BRIDGE
from gpuinstall.machine.children import DRIVER_SECONDS, run_children
from gpuinstall.machine.nvidia import linux
from gpuinstall.machine.nvidia.card_diagnosis import card_faults
from gpuinstall.machine.nvidia.diagnosis import diagnose_machine
from gpuinstall.machine.nvidia.evidence import (
    NVIDIA_ON_PCI,
    NvidiaEvidence,
    ToolkitVariables,
    drivers,
    read_jetson,
)
from gpuinstall.machine.nvidia.gpus import driver_of, list_gpus
from gpuinstall.machine.nvidia.libraries import (
    JsonObject,
    ask_libcuda,
    ask_nvml,
    is_visible,
    job_devices,
    json_lines,
    nvml_command,
    permitted,
)
from gpuinstall.machine.nvidia.notes import driver_notes
from gpuinstall.machine.prober import Preflight, Prober, VendorFindings
from gpuinstall.machine.steps import Step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.base.machine import Gpu, Machine
    from gpuinstall.base.reporter import Reporter
    from gpuinstall.machine.source import Source

SYSTEM_NOT_READY = 802
"""CUDA's number."""

# NVML's clock event reasons that mean trouble: nvml.h, nvmlClocksEventReason*
SLOWED = {
    0x08: "the hardware's slowdown",
    0x20: "heat (the driver's limit)",
    0x40: "heat (the hardware's limit)",
    0x80: "the power supply's brake",
}


def _toolkit(source: Source, _: NvidiaEvidence) -> ToolkitVariables:
    return ToolkitVariables(
        devices=source.variable("NVIDIA_VISIBLE_DEVICES"),
        capabilities=source.variable("NVIDIA_DRIVER_CAPABILITIES"),
        required=source.variable("NVIDIA_REQUIRE_CUDA"),
    )


def _is_broken_on_linux(evidence: NvidiaEvidence) -> bool:
    works = evidence.nvml.works and evidence.cuda_works
    return evidence.facts.host.os == "linux" and not works


def _fabric(source: Source, evidence: NvidiaEvidence) -> linux.Fabric | None:
    if evidence.cuda.init != SYSTEM_NOT_READY:
        return None
    bridges = [device for device in evidence.facts.devices if device.kind == OTHER_BRIDGE]
    return linux.Fabric(
        switches=sum(bridge.vendor == NVIDIA_ON_PCI for bridge in bridges),
        running=bool(source.text(linux.FABRIC_PID_FILE)),
    )


def _own_nodes(_: Source, evidence: NvidiaEvidence) -> tuple[str, ...]:
    """Return the nodes of this process's cards: a job sees those of the whole host, and NVML lists its own."""
    container = evidence.facts.container
    is_bare_job = container.engine is None and container.job is not None
    return () if is_bare_job and evidence.nvml.works else evidence.nodes


NVIDIA_STEPS: tuple[Step[NvidiaEvidence], ...] = (
    Step("nodes", lambda source, _: linux.card_nodes(source)),
    Step(
        "jetson",
        lambda source, evidence: read_jetson(source, evidence.facts.host.release),
    ),
    Step(
        "windows",
        lambda source, evidence: linux.read_lent_by_windows(source, evidence.facts.wsl),
    ),
    Step("toolkit", _toolkit),
    Step("visible", lambda source, _: source.variable("CUDA_VISIBLE_DEVICES")),
    Step("nvml", lambda source, _: ask_nvml(source), together=True),
    Step("cuda", lambda source, _: ask_libcuda(source), together=True),
    Step(
        "kernel",
        lambda source, evidence: linux.read_linux_kernel(
            source,
            obstacles=_is_broken_on_linux(evidence),
        ),
    ),
    Step(
        "refused",
        lambda source, evidence: (
            linux.refused_nodes(source) if _is_broken_on_linux(evidence) else ()
        ),
    ),
    Step("fabric", _fabric),
    Step("nodes", _own_nodes),
)


class NvidiaProber(Prober[NvidiaEvidence]):
    """NVIDIA's GPUs and their driver."""

    vendor = "nvidia"
    evidence = NvidiaEvidence
    steps = NVIDIA_STEPS

    def answers(self, evidence: NvidiaEvidence) -> bool:
        """Whether NVML answered."""
        return evidence.nvml.works

    def conclude(self, evidence: NvidiaEvidence) -> VendorFindings:
        """Return the GPUs that this process was given, and what is wrong with them. Pure."""
        if evidence.facts.container.shares_the_bus:
            evidence = replace(evidence, nvml=permitted(evidence.nvml))
        detected = list_gpus(evidence)
        fault = diagnose_machine(evidence)
        faults = [fault] if fault else []
        faults += card_faults(evidence, detected, driver_works=fault is None)
        return VendorFindings(
            gpus=tuple(card.gpu for card in detected),
            driver=driver_of(evidence),
            faults=tuple(faults),
            notes=tuple(driver_notes(evidence)),
            shows_gpu=evidence.shows_gpu,
            l4t=evidence.jetson.l4t if evidence.jetson else None,
        )

    def preflight(self, machine: Machine, reporter: Reporter) -> Preflight:
        """Run a kernel on each usable GPU."""
        from gpuinstall.machine.nvidia.preflight import run_preflight

        return run_preflight(machine, reporter)

    def withheld(
        self,
        gpu: Gpu,
        ordinal: int,
        name: str,
        environ: Mapping[str, str],
    ) -> str | None:
        """Return that a scheduler's job does not give a GPU to this process."""
        given = job_devices(environ)
        if given is None or is_visible(given, ordinal, gpu, name):
            return None
        return f"not assigned to this job: CUDA_VISIBLE_DEVICES={given}"

    def health(self) -> Mapping[int, tuple[CheckResult, ...]]:
        """Ask NVML about memory, clocks and link of every card; empty if it does not answer."""
        command = (nvml_command("health"), os.environ)
        (finished,) = run_children(
            [command],
            seconds=DRIVER_SECONDS,
            waiting=lambda: None,
        )
        health = {}
        for line in json_lines(finished):
            if "index" in line and "error" not in line:
                health[line["index"]] = judge_health(line)
        return health


def judge_health(card: JsonObject) -> tuple[CheckResult, ...]:
    """Judge one card's facts: memory errors are a fault; ECC, slowed clocks and narrow links are worth a word."""
    # Beside the processor's memory there is no such link; NVML reports one of its first generation, one lane wide.
    if tuple(card.get("compute_capability") or ()) in drivers().unified_memory:
        card = {**card, "width": None}
    return _memory(card), _clocks(card), _link(card)


def _memory(card: JsonObject) -> CheckResult:
    rows = card.get("rows") or [0, 0, 0, 0]
    _, _, rows_pending, rows_failed = rows
    signs = {
        f"{card.get('uncorrected')} uncorrected memory errors": card.get("uncorrected"),
        "a memory page waits to be retired": card.get("pages_pending"),
        "a memory row waits to be remapped": rows_pending,
        "remapping a memory row failed": rows_failed,
    }
    faults = [text for text, sign in signs.items() if sign]
    if faults:
        return CheckResult(
            "ecc",
            "failed",
            message="; ".join(faults),
            id="F09",
        )
    mode = _ecc_mode(card)
    if all(card.get(fact) is None for fact in ("uncorrected", "pages_pending", "rows")):
        message = mode or "this GPU does not count memory errors"
        return CheckResult("ecc", "skipped", message=message)
    return CheckResult("ecc", "passed", message=mode)


def _ecc_mode(card: JsonObject) -> str | None:
    if card.get("ecc") is None:
        return None
    mode, pending = card["ecc"]
    text = "ECC is on" if mode else "ECC is off: memory errors are not counted"
    if pending == mode:
        return text
    return f"{text}; {'on' if pending else 'off'} after the next restart"


def _clocks(card: JsonObject) -> CheckResult:
    if card.get("slowed") is None:
        message = "this driver does not report why clocks are reduced"
        return CheckResult("clocks", "skipped", message=message)
    reasons = [text for bit, text in SLOWED.items() if card["slowed"] & bit]
    message = f"slowed by {' and '.join(reasons)}"
    return CheckResult("clocks", "passed", message=message if reasons else None)


def _link(card: JsonObject) -> CheckResult:
    width = card.get("width")
    widest = card.get("widest")
    if not width or not widest:
        message = "this card has no PCI Express link to measure, or the driver reports none"
        return CheckResult("pcie-link", "skipped", message=message)
    message = f"x{width}"
    if width < widest:
        message = f"x{width}, where card and slot could have x{widest}"
    return CheckResult("pcie-link", "passed", message=message)
