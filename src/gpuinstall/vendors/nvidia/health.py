"""How each card fares by NVML: its memory, its clocks, its link; a child of ours asks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from gpuinstall.facts.children import run_children, time_limit
from gpuinstall.facts.source import json_or_none
from gpuinstall.finding import CheckResult
from gpuinstall.vendors.nvidia.libraries import nvml_command
from gpuinstall.vendors.prober import GpuHealth

if TYPE_CHECKING:
    from collections.abc import Mapping

# NVML's clock event reasons that mean trouble: nvml.h, nvmlClocksEventReason*
SLOWED = {
    0x08: "the hardware's slowdown",
    0x20: "heat (the driver's limit)",
    0x40: "heat (the hardware's limit)",
    0x80: "the power supply's brake",
}

# GB/s of one lane after line coding, by generation: PCI Express Base Specification
LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938}


def nvml_health(gpus: int) -> dict[int, GpuHealth]:
    """Ask NVML about every card, by index; empty where NVML does not answer. ``gpus`` decides how long it may take."""
    (done,) = run_children([(nvml_command("health"), os.environ)], time_limit(gpus), waiting=lambda: None)
    answers = (answer for answer in map(json_or_none, done.out.splitlines()) if isinstance(answer, dict))
    return {card["index"]: judge_health(card) for card in answers if "index" in card and "error" not in card}


def judge_health(card: Mapping[str, Any]) -> GpuHealth:
    """Judge one card's facts: memory errors are a fault, a slowed clock and a narrow link are worth a word. Pure."""
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
    if all(card.get(fact) is None for fact in ("uncorrected", "pages_pending", "rows")):
        return CheckResult("ecc", "skipped", message="this GPU does not count memory errors")
    return CheckResult("ecc", "passed")


def _clocks(card: Mapping[str, Any]) -> CheckResult:
    if card.get("slowed") is None:
        return CheckResult("clocks", "skipped", message="this driver does not report why clocks are reduced")
    reasons = [text for bit, text in SLOWED.items() if card["slowed"] & bit]
    return CheckResult("clocks", "passed", message=f"slowed by {' and '.join(reasons)}" if reasons else None)


def _link(card: Mapping[str, Any]) -> CheckResult:
    width, widest = card.get("width"), card.get("widest")
    if not width or not widest:
        return CheckResult("pcie-link", "skipped", message="this card has no PCI Express link of its own to measure")
    narrow = f"x{width}, where card and slot could have x{widest}"
    return CheckResult("pcie-link", "passed", message=narrow if width < widest else f"x{width}")
