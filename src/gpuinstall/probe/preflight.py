"""Proving the drivers before anything is downloaded: a small kernel on every GPU, its result checked."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from gpuinstall.vendors.prober import Preflight
from gpuinstall.vendors.probers import PROBERS

if TYPE_CHECKING:
    from gpuinstall.machine import Machine
    from gpuinstall.reporter import Reporter


def preflight(machine: Machine, reporter: Reporter, *, seconds: float | None = None) -> Preflight:
    """Prove every usable GPU of every maker; nothing is downloaded. ``seconds`` bound each, else the maker does."""
    start = monotonic()
    proofs = [prober.preflight(machine, reporter, seconds) for prober in PROBERS]
    result = Preflight(
        tuple(card for proof in proofs for card in proof.cards),
        tuple(problem for proof in proofs for problem in proof.problems),
        monotonic() - start,
    )
    if result.cards:
        reporter.step("Preflight", result.summary, result.seconds)
    return result
