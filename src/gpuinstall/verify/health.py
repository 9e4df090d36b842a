"""How each card fares by NVML: its memory, its clocks, its link. Kernels cannot ask this; a child of ours does."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.facts.children import run_children, time_limit
from gpuinstall.verify.report import json_object
from gpuinstall.verify.verdict import Check

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


def read_cards(gpus: int) -> dict[int, dict[str, Any]]:
    """Ask NVML about every card, by index; empty where NVML does not answer."""
    spec = importlib.util.find_spec("pynvml")
    folder = str(Path(spec.origin).parent) if spec and spec.origin else ""
    argv = [sys.executable, "-I", str(Path(__file__).with_name("health_child.py")), folder]
    (done,) = run_children([(argv, os.environ)], time_limit(gpus), waiting=lambda: None)
    facts = filter(None, map(json_object, done.out.splitlines()))
    return {card["index"]: card for card in facts if "index" in card}


def link_rate(card: Mapping[str, Any]) -> float | None:
    """Give the most that a card's PCI Express link carries in one direction, in GB/s, as wide as it is now."""
    lane = LANE.get(card.get("generation") or 0)
    return lane * card["width"] if lane and card.get("width") else None


def health_checks(card: Mapping[str, Any]) -> tuple[Check, ...]:
    """Judge one card's facts: memory errors are a fault, a slowed clock and a narrow link are worth a word."""
    return (_memory(card), _clocks(card), _link(card))


def _memory(card: Mapping[str, Any]) -> Check:
    _corrected, _uncorrected, rows_pending, rows_failed = card.get("rows") or (0, 0, 0, 0)
    signs = {
        f"{card.get('uncorrected')} uncorrected memory errors": card.get("uncorrected"),
        "a memory page waits to be retired": card.get("pages_pending"),
        "a memory row waits to be remapped": rows_pending,
        "remapping a memory row failed": rows_failed,
    }
    found = [text for text, sign in signs.items() if sign]
    if found:
        return Check("ecc", "failed", message="; ".join(found), cause="F09")
    if all(card.get(fact) is None for fact in ("uncorrected", "pages_pending", "rows")):
        return Check("ecc", "skipped", message="this card does not count memory errors")
    return Check("ecc", "passed")


def _clocks(card: Mapping[str, Any]) -> Check:
    if card.get("slowed") is None:
        return Check("clocks", "skipped", message="this driver does not say what slows the clocks")
    reasons = [text for bit, text in SLOWED.items() if card["slowed"] & bit]
    return Check("clocks", "passed", message=f"slowed by {' and '.join(reasons)}" if reasons else None)


def _link(card: Mapping[str, Any]) -> Check:
    width, widest = card.get("width"), card.get("widest")
    if not width or not widest:
        return Check("pcie-link", "skipped", message="this card has no PCI Express link of its own to measure")
    narrow = f"x{width}, where card and slot could have x{widest}"
    return Check("pcie-link", "passed", message=narrow if width < widest else f"x{width}")
