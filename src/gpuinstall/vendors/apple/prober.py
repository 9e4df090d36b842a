"""Apple's half of the probe: a Mac's own GPU, and a Python that cannot use it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gpuinstall.facts.steps import MachineFacts, Step, take
from gpuinstall.failures.problems import FixContext, finding_for
from gpuinstall.machine import Gpu
from gpuinstall.vendors.apple.mac import Mac, read_mac
from gpuinstall.vendors.prober import Prober, VendorFindings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuinstall.facts.source import Source
    from gpuinstall.finding import Finding
    from gpuinstall.vendors.apple.mac import MacGpu


@dataclass(frozen=True)
class AppleEvidence:
    """The facts of the machine, and what macOS said."""

    facts: MachineFacts = field(default_factory=MachineFacts)
    mac: Mac = field(default_factory=Mac)


_STEPS: tuple[Step[AppleEvidence], ...] = (Step("mac", lambda source, _: read_mac(source)),)


class AppleProber(Prober[AppleEvidence]):
    """The GPU of a Mac with Apple silicon."""

    vendor = "apple"

    def read(self, source: Source, facts: MachineFacts) -> AppleEvidence:
        """Ask macOS; nothing elsewhere."""
        return take(_STEPS, AppleEvidence(facts), source) if facts.host.os == "macos" else AppleEvidence(facts)

    def answers(self, evidence: AppleEvidence) -> bool:
        """Say whether macOS lists the GPU."""
        return any(gpu.apples for gpu in evidence.mac.gpus)

    def conclude(self, evidence: AppleEvidence, facts: MachineFacts) -> VendorFindings:
        """List the GPU, and say where Python or a virtual machine stands before it. Pure."""
        evidence = replace(evidence, facts=facts)
        mac, given = evidence.mac, given_gpus(evidence.mac)
        names = {"macos": mac.macos, "chip": mac.chip, "memory_mib": mac.memory_mib}
        return VendorFindings(
            gpus=tuple(
                Gpu(index, gpu.name, found_via="system_profiler", vendor="apple", architecture=gpu.metal)
                for index, gpu in enumerate(given)
            ),
            faults=tuple(_faults(evidence)),
            notes=tuple(_notes(evidence)),
            shows_gpu=bool(given),
            facts={key: value for key, value in names.items() if value} if facts.host.os == "macos" else {},
        )


def given_gpus(mac: Mac) -> tuple[MacGpu, ...]:
    """Leave out what is not Apple's own, and the stand-in that a virtual machine has, whose kernels nobody trusts."""
    return () if mac.virtual else tuple(gpu for gpu in mac.gpus if gpu.apples)


def _faults(evidence: AppleEvidence) -> Iterator[Finding]:
    if evidence.facts.host.translated and evidence.facts.host.os == "macos":
        message = "this Python is for Intel processors and runs under Rosetta, on a Mac with Apple silicon"
        why = "torch for Intel Macs ended with 2.2.2, and none of its builds reaches this GPU"
        facts = "sysctl.proc_translated: 1"
        yield finding_for("python-under-rosetta", message, _context(evidence), why=why, evidence=facts)


def _notes(evidence: AppleEvidence) -> Iterator[Finding]:
    mac = evidence.mac
    if mac.virtual and mac.gpus:
        message = f"not used: {mac.gpus[0].name}, the stand-in for a GPU of a virtual machine"
        why = "torch says there that MPS is available, whether or not its kernels work"
        yield finding_for("gpu-of-a-virtual-mac", message, _context(evidence), why=why, blocking=False)


def _context(evidence: AppleEvidence) -> FixContext:
    return FixContext(evidence.facts.fix_keys())
