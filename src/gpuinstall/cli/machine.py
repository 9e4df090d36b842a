"""A machine as people read it: one line for what it is, a block for each problem."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.machine import Driver, Gpu, Machine, Problem


def machine_line(machine: Machine) -> str:
    """Write ``2 × NVIDIA GeForce RTX 4090 (sm_89, 24 GB) · driver 535.183.01 (CUDA 12.2) · Ubuntu 22.04``."""
    kinds = Counter(_kind(gpu) for gpu in machine.gpus)
    gpus = [f"{count} × {kind}" if count > 1 else kind for kind, count in kinds.items()] or ["no GPU"]
    driver = _driver(machine.driver) if machine.driver else None
    return " · ".join(filter(None, (", ".join(gpus), driver, machine.distribution or f"{machine.os} {machine.arch}")))


def problem_lines(problem: Problem, terminal: Terminal) -> Iterator[str]:
    """Write what happened, why, what was seen, what to do."""
    word = terminal.style("error:", "red") if problem.blocking else terminal.style("note:", "yellow")
    yield f"{word} {problem.message}" + (f"   [{problem.id}]" if problem.id else "")
    for label, text in (("why", problem.why), ("seen", problem.seen), ("do", problem.fix)):
        if text:
            yield f"  {label:<5} " + text.replace("\n", "\n" + " " * 8)


def _kind(gpu: Gpu) -> str:
    memory = f"{round(gpu.memory_mib / 1024)} GB" if gpu.memory_mib else None
    facts = filter(None, (gpu.compute_capability and gpu.compute_capability.sm, memory))
    return f"{gpu.name or 'unknown NVIDIA GPU'} ({', '.join(facts) or 'capability unknown'})"


def _driver(driver: Driver) -> str:
    return f"driver {driver.version or 'of unknown release'}" + (f" (CUDA {driver.cuda})" if driver.cuda else "")
