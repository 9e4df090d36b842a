"""Intel's half of the probe: Level Zero's GPUs, else what the bus shows of chips that torch has builds for."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.facts.bus import DEVICES, PciDevice
from gpuinstall.facts.container import JOBS
from gpuinstall.facts.steps import MachineFacts, Step, take
from gpuinstall.failures.problems import finding_for
from gpuinstall.machine import Gpu
from gpuinstall.vendors.intel.evidence import IntelEvidence, cards_of
from gpuinstall.vendors.intel.level_zero import LevelZero, LevelZeroGpu, ask_level_zero
from gpuinstall.vendors.intel.rules import XeChip, architecture_of
from gpuinstall.vendors.prober import Prober, VendorFindings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuinstall.facts.source import Access, Source
    from gpuinstall.finding import Finding

_MIB = 1024**2
_VISIBLE = "ZE_AFFINITY_MASK"
WINDOWS_DRIVER = "iigd"


def _nodes(source: Source, evidence: IntelEvidence) -> dict[str, Access | None]:
    addresses = [device.address for device, _ in cards_of(evidence.facts)]
    names = {address: source.names(f"{DEVICES}/{address}/drm", "renderD") for address in addresses}
    return {address: source.access(f"/dev/dri/{nodes[0]}") if nodes else None for address, nodes in names.items()}


def _may_answer(evidence: IntelEvidence) -> bool:
    """Say whether there is something to ask Level Zero about: on Windows the bus is read only when nobody answers."""
    facts = evidence.facts
    lent = facts.wsl is not None and any(name.lower().startswith(WINDOWS_DRIVER) for name in facts.wsl.drivers)
    return facts.host.os == "windows" or lent or bool(evidence.cards)


_STEPS: tuple[Step[IntelEvidence], ...] = (
    Step("nodes", _nodes),
    Step("level_zero", lambda source, evidence: ask_level_zero(source) if _may_answer(evidence) else LevelZero()),
)


class IntelProber(Prober[IntelEvidence]):
    """Intel's GPUs and what programs compute through."""

    vendor = "intel"

    def read(self, source: Source, facts: MachineFacts) -> IntelEvidence:
        """Take Intel's steps; none on a Mac."""
        return IntelEvidence(facts) if facts.host.os == "macos" else take(_STEPS, IntelEvidence(facts), source)

    def answers(self, evidence: IntelEvidence) -> bool:
        """Say whether Level Zero lists a GPU that torch has builds for."""
        return bool(evidence.answering)

    def conclude(self, evidence: IntelEvidence, facts: MachineFacts) -> VendorFindings:
        """List the GPUs, Level Zero's where it answers, and what is wrong with them. Pure."""
        evidence = replace(evidence, facts=facts)
        answering = evidence.answering
        gpus = tuple(_answering(index, gpu) for index, gpu in enumerate(answering)) or tuple(
            _on_the_bus(index, device, chip) for index, (device, chip) in enumerate(evidence.given)
        )
        api = evidence.level_zero.api
        return VendorFindings(
            gpus=gpus,
            faults=tuple(_faults(evidence)),
            notes=tuple(_notes(evidence)),
            shows_gpu=bool(gpus),
            facts={"level_zero": api} if api and gpus else {},
        )

    def withheld(self, gpu: Gpu, ordinal: int, name: str, environ: Mapping[str, str]) -> str | None:
        """Say that a scheduler's job does not give a GPU to this process."""
        mask = environ.get(_VISIBLE)
        if not mask or not any(environ.get(job) for job in JOBS):
            return None
        given = {part.partition(".")[0] for part in mask.split(",")}
        return None if str(ordinal) in given else f"not this job's: {_VISIBLE}={mask}"


def _faults(evidence: IntelEvidence) -> Iterator[Finding]:
    """Say why Level Zero shows none of the GPUs that are there: without it torch runs on the CPU without a word."""
    level_zero, cards, context = evidence.level_zero, evidence.given, evidence.fix_context
    if not cards or evidence.answering or not level_zero.asked:
        return
    gpus, seen = tuple(range(len(cards))), _seen(evidence)
    denied = [device.address for device, _ in cards if evidence.nodes.get(device.address) == "denied"]
    if not level_zero.library:
        message, why = "Level Zero is not installed: no program can compute on Intel's GPU", level_zero.error
        yield finding_for("level-zero-missing", message, context, why=why, evidence=seen, gpus=gpus)
    elif denied:
        message = f"the render node of {' and '.join(denied)} may not be opened"
        yield finding_for("render-not-permitted", message, context, why="Level Zero opens it", evidence=seen, gpus=gpus)
    else:
        message = f"Level Zero shows no GPU{f' ({level_zero.error})' if level_zero.error else ''}"
        why = "its driver, Intel's compute runtime, is missing or older than the GPU"
        yield finding_for("level-zero-without-gpu", message, context, why=why, evidence=seen, gpus=gpus)


def _notes(evidence: IntelEvidence) -> Iterator[Finding]:
    """Name the cards of the bus that a container or a job was not given."""
    withheld = [device for device, _ in evidence.cards if (device, _) not in evidence.given]
    if withheld and not evidence.answering:
        room = "container" if evidence.facts.container.engine else "job"
        names = ", ".join(f"Intel {device.id} at {device.address}" for device in withheld)
        message, why = f"not given to this {room}: {names}", "its render node is missing here"
        yield finding_for("gpu-not-ours", message, evidence.fix_context, why=why, blocking=False)


def _answering(index: int, gpu: LevelZeroGpu) -> Gpu:
    name = re.sub(r"\((R|TM)\)", "", gpu.name)
    return Gpu(
        index,
        name if name.startswith("Intel") else f"Intel {name}",
        pci_id=f"{gpu.vendor:04x}:{gpu.device:04x}",
        memory_mib=None if gpu.integrated else gpu.memory_bytes // _MIB or None,
        found_via="level-zero",
        vendor="intel",
        architecture=architecture_of(gpu.ip),
    )


def _on_the_bus(index: int, device: PciDevice, chip: XeChip) -> Gpu:
    name = f"Intel {chip.name}"
    return Gpu(index, name, pci_id=device.id, found_via="pci", vendor="intel", architecture=chip.architecture)


def _seen(evidence: IntelEvidence) -> str:
    nodes = (f"{chip.name} ({device.id}) by {device.driver or 'no driver'}" for device, chip in evidence.given)
    return " · ".join(nodes)
