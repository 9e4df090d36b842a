"""What keeps AMD's GPUs from programs, and what should be known about them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.failures.problems import problem
from gpuinstall.vendors.amd.chips import is_integrated
from gpuinstall.vendors.amd.evidence import MODULE, load_chips
from gpuinstall.vendors.amd.topology import KFD
from gpuinstall.vendors.prober import format_gpus

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuinstall.machine import Problem
    from gpuinstall.vendors.amd.evidence import AmdEvidence
    from gpuinstall.vendors.amd.topology import KfdNode

POINTER = "https://rocm.docs.amd.com/projects/radeon-ryzen/"


def faults(evidence: AmdEvidence, given: Sequence[KfdNode]) -> Iterator[Problem]:
    """Name what stands between the GPUs and every program, then what takes single ones out."""
    context = evidence.fix_context
    if given and evidence.kfd != "open":
        message = f"{KFD} {'may not be opened' if evidence.kfd else 'is missing'}"
        why, gpus = "every program that computes on AMD's GPUs opens it", tuple(range(len(given)))
        yield problem("kfd-not-permitted", message, context, why=why, seen=_seen(evidence), gpus=gpus)
        return
    closed = {index: node for index, node in enumerate(given) if node.render_minor and node.render != "open"}
    if closed:
        names = ", ".join(f"/dev/dri/renderD{node.render_minor}" for node in closed.values())
        message = f"{names} may not be opened: {format_gpus(tuple(closed))} cannot be used"
        why = "each card has a node of its own beside /dev/kfd"
        yield problem("kfd-not-permitted", message, context, why=why, seen=_seen(evidence), gpus=tuple(closed))
    yield from _integrated(evidence, given)
    linux = evidence.facts.host.os == "linux"
    if linux and not evidence.nodes and not evidence.facts.container.shares_the_bus:
        yield from _not_loaded(evidence)


def notes(evidence: AmdEvidence, given: Sequence[KfdNode]) -> Iterator[Problem]:
    """List what should be known and stops nothing."""
    context = evidence.fix_context
    room = "container" if evidence.facts.container.engine else "job"
    if evidence.facts.container.shares_the_bus and evidence.cards and not given:
        cards = ", ".join(f"AMD {card.id} at {card.address}" for card in evidence.cards)
        message, why = f"not given to this {room}: {cards}", f"{KFD} and their render nodes are missing here"
        yield problem("gpu-not-ours", message, context, why=why, blocking=False)
    if evidence.override and given:
        message = f"HSA_OVERRIDE_GFX_VERSION={evidence.override} makes every program take the GPU for another chip"
        why = "the build here is chosen for the chip that the kernel names; code for another one may fault or be wrong"
        yield problem("gfx-override-set", message, context, why=why, blocking=False)
    if evidence.lent_by_windows:
        message = "in WSL an AMD GPU is reached through librocdxg, which PyTorch's own builds do not have"
        yield problem("not-in-wsl", message, context, why=f"AMD's guide: {POINTER}", blocking=False)


def _integrated(evidence: AmdEvidence, given: Sequence[KfdNode]) -> Iterator[Problem]:
    """Take a processor's graphics out where a card of its own is there: programs that take both crash."""
    inside = tuple(index for index, node in enumerate(given) if is_integrated(load_chips(), node.architecture))
    cards = tuple(index for index in range(len(given)) if index not in inside)
    if inside and cards:
        chips = ", ".join(given[index].architecture for index in inside)
        message = f"{format_gpus(inside)} ({chips}) is the processor's own and stays out beside {format_gpus(cards)}"
        context = evidence.fix_context.knowing(gpu=",".join(map(str, cards)))
        why = "programs that see both crash, or compute on the slower one"
        yield problem("integrated-gpu-left-out", message, context, why=why, gpus=inside)


def _not_loaded(evidence: AmdEvidence) -> Iterator[Problem]:
    """Nothing drives a card: the kernel's module was kept out."""
    idle = [card for card in evidence.cards if card.is_display and card.driver not in {MODULE, "radeon"}]
    if idle and not any(device.vendor != idle[0].vendor and device.is_display for device in evidence.facts.devices):
        names = ", ".join(f"AMD {card.id} at {card.address}" for card in idle)
        why = f"the kernel's module {MODULE} drives none of them"
        yield problem("amdgpu-not-loaded", f"no driver is loaded for {names}", evidence.fix_context, why=why)


def _seen(evidence: AmdEvidence) -> str:
    chips = [f"{node.architecture} ({node.pci_id}) in the kernel's topology" for node in evidence.nodes]
    return " · ".join((*chips, f"{KFD}: {evidence.kfd or 'missing'}"))
