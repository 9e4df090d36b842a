"""Proving the driver before anything is downloaded: a small kernel on every GPU, its result checked.

Each card has a child process of its own (:mod:`gpuinstall.probe.libcuda_child`) that sees only that card; a MIG slice
is a card here. Neither a toolkit nor torch is needed: the driver compiles the PTX.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from gpuinstall.probe.child import run_children, time_limit
from gpuinstall.probe.cuda_problems import place_of
from gpuinstall.probe.findings import OUTCOMES, Outcome, finding, problems_of
from gpuinstall.probe.job import is_given, job_devices
from gpuinstall.probe.libcuda import child_command, child_environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuinstall.machine import Gpu, Machine, Problem
    from gpuinstall.probe.findings import Finding
    from gpuinstall.reporter import Reporter

KERNEL = Path(__file__).with_name("kernel.ptx")

_SAID: dict[Outcome, str] = {
    "proven": "a kernel ran on {}",
    "memory-only": "memory was set and read back on {}",
    "unproven": "not proven: {}",
    "failed": "failed: {}",
}


@dataclass(frozen=True)
class Card:
    """What one GPU showed; ``index`` is NVML's. Busy cards are ``unproven``."""

    index: int
    outcome: Outcome


@dataclass(frozen=True)
class Preflight:
    """What the GPUs showed, what is wrong with them, and the seconds it took."""

    cards: tuple[Card, ...] = ()
    problems: tuple[Problem, ...] = ()
    seconds: float = 0.0

    def with_outcome(self, outcome: Outcome) -> tuple[int, ...]:
        """The indices of the GPUs that ended so."""
        return tuple(card.index for card in self.cards if card.outcome == outcome)

    @property
    def summary(self) -> str:
        """What came of it, in one line."""
        if len(self.with_outcome("proven")) == len(self.cards) > 1:
            return f"a kernel ran on {'both' if len(self.cards) == 2 else f'all {len(self.cards)}'} GPUs"
        said = {text: self.with_outcome(outcome) for outcome, text in _SAID.items()}
        return " · ".join(text.format(place_of(gpus)) for text, gpus in said.items() if gpus)

    def to_dict(self) -> dict[str, Any]:
        """Write what ``doctor --json`` shows of it."""
        return {
            "gpus": [{"index": card.index, "status": card.outcome} for card in self.cards],
            "problems": [each.to_dict() for each in self.problems],
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True)
class Trial:
    """One child: the card that it is about, and what it finds in CUDA_VISIBLE_DEVICES."""

    gpu: Gpu
    visible: str


def preflight(machine: Machine, reporter: Reporter, *, seconds: float | None = None) -> Preflight:
    """Run a kernel on every usable GPU at once, for at most 5 s and 5 s more for each; nothing is downloaded.

    A machine with a blocking problem is not tried, nor are its GPUs with one, nor cards outside a scheduler's job.
    """
    start = monotonic()
    planned = trials(machine, os.environ)
    limit = time_limit(len(planned)) if seconds is None else seconds
    command = child_command("preflight", str(KERNEL))
    children = [(command, child_environment(os.environ, trial.visible)) for trial in planned]
    ended = run_children(children, limit, lambda: reporter.wait(f"the driver starts its GPUs, for up to {limit:.0f} s"))
    findings = [finding(trial.gpu, machine, finished) for trial, finished in zip(planned, ended, strict=True)]
    result = Preflight(cards_of(findings), problems_of(findings), monotonic() - start)
    if result.cards:
        reporter.step("Preflight", result.summary, result.seconds)
    return result


def trials(machine: Machine, environ: Mapping[str, str]) -> tuple[Trial, ...]:
    """Choose what is tried: every MIG slice or card that this process was given and that the probe found usable."""
    if machine.blocking:
        return ()
    unusable = {index for each in machine.problems if each.blocking for index in each.gpus}
    given = job_devices(environ)
    return tuple(
        Trial(gpu, name)
        for ordinal, gpu in enumerate(machine.gpus)
        if gpu.index not in unusable
        for name in _names(gpu, ordinal)
        if given is None or is_given(given, ordinal, gpu, name)
    )


def cards_of(findings: Sequence[Finding]) -> tuple[Card, ...]:
    """Give each GPU the worst of what its slices showed."""
    worst: dict[int, Outcome] = {}
    for each in findings:
        worst[each.index] = max(worst.get(each.index, "proven"), each.outcome, key=OUTCOMES.index)
    return tuple(Card(index, outcome) for index, outcome in worst.items())


def _names(gpu: Gpu, ordinal: int) -> tuple[str, ...]:
    """What CUDA_VISIBLE_DEVICES must hold for each part of a GPU that a kernel can run on."""
    return tuple(part.uuid for part in gpu.mig_devices) or (gpu.uuid or str(ordinal),)
