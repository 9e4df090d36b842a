"""What keeps Intel's GPUs from programs, and what should be known about them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.failures.problems import problem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuinstall.machine import Problem
    from gpuinstall.vendors.intel.evidence import IntelEvidence


def faults(evidence: IntelEvidence) -> Iterator[Problem]:
    """Say why Level Zero shows none of the GPUs that are there: without it torch runs on the CPU without a word."""
    level_zero, cards, context = evidence.level_zero, evidence.given, evidence.fix_context
    if not cards or evidence.answering or not level_zero.asked:
        return
    gpus, seen = tuple(range(len(cards))), _seen(evidence)
    denied = [device.address for device, _ in cards if evidence.nodes.get(device.address) == "denied"]
    if not level_zero.library:
        message, why = "Level Zero is not installed: no program can compute on Intel's GPU", level_zero.error
        yield problem("level-zero-missing", message, context, why=why, seen=seen, gpus=gpus)
    elif denied:
        message = f"the render node of {' and '.join(denied)} may not be opened"
        yield problem("render-not-permitted", message, context, why="Level Zero opens it", seen=seen, gpus=gpus)
    else:
        message = f"Level Zero shows no GPU{f' ({level_zero.error})' if level_zero.error else ''}"
        why = "its driver, Intel's compute runtime, is missing or older than the GPU"
        yield problem("level-zero-without-gpu", message, context, why=why, seen=seen, gpus=gpus)


def notes(evidence: IntelEvidence) -> Iterator[Problem]:
    """Name the cards of the bus that a container or a job was not given."""
    withheld = [device for device, _ in evidence.cards if (device, _) not in evidence.given]
    if withheld and not evidence.answering:
        room = "container" if evidence.facts.container.engine else "job"
        names = ", ".join(f"Intel {device.id} at {device.address}" for device in withheld)
        why = "its render node is missing here"
        yield problem(
            "gpu-not-ours", f"not given to this {room}: {names}", evidence.fix_context, why=why, blocking=False
        )


def _seen(evidence: IntelEvidence) -> str:
    nodes = (f"{chip.name} ({device.id}) by {device.driver or 'no driver'}" for device, chip in evidence.given)
    return " · ".join(nodes)
