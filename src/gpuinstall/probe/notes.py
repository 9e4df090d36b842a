"""What should be known about a machine whoever made its GPUs, and stops nothing. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.failures.problems import FixContext, problem
from gpuinstall.vendors import PCI_IDS
from gpuinstall.vendors.probers import MAKERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuinstall.facts.steps import MachineFacts
    from gpuinstall.machine import Problem
    from gpuinstall.vendors.prober import VendorFindings

    Findings = Mapping[str, VendorFindings]

MIB = 1024**2
GIB = 1024**3
SHARED_MEMORY_BYTES = 256 * MIB


def notes(facts: MachineFacts, findings: Findings) -> Iterator[Problem]:
    """List the notes."""
    for note in NOTES:
        yield from note(facts, findings)


def not_supported(facts: MachineFacts, findings: Findings) -> Iterator[Problem]:
    """GPUs that no prober lists or speaks of are named where no other is there."""
    unknown = MAKERS.keys() - {
        name for name, found in findings.items() if found.shows_gpu or found.faults or found.notes
    }
    displays = [device for device in facts.devices if device.is_display and not device.is_reserved]
    foreign = [device for device in displays if PCI_IDS.get(f"{device.vendor:04x}") in unknown]
    if foreign and not any(found.shows_gpu for found in findings.values()):
        names = ", ".join(f"{MAKERS[PCI_IDS[f'{device.vendor:04x}']]} {device.id}" for device in foreign)
        yield _note(facts, "gpu-not-supported", f"not used: {names}", "no build of PyTorch is chosen for them")


def little_space(facts: MachineFacts, _: Findings) -> Iterator[Problem]:
    """Any build takes more than this; how much more the installation knows."""
    for name, what in (("environment", "this folder"), ("cache", "uv's cache"), ("temporary", "TMPDIR")):
        if name in facts.folders and facts.folders[name].free < GIB:
            message = f"{what} has {facts.folders[name].free // MIB} MiB free"
            yield _note(facts, "little-space", message, "an environment takes from one to eight GiB")


def little_shared_memory(facts: MachineFacts, findings: Findings) -> Iterator[Problem]:
    """Several GPUs need room to pass data."""
    shared, gpus = facts.folders.get("shared-memory"), sum(len(found.gpus) for found in findings.values())
    if shared and shared.free < SHARED_MEMORY_BYTES and gpus > 1:
        message, why = f"{shared.free // MIB} MiB of shared memory are free", "NCCL passes data between GPUs through it"
        yield _note(facts, "little-shared-memory", message, why)


def runtime_libraries_missing(facts: MachineFacts, _: Findings) -> Iterator[Problem]:
    """Windows lacks what PyTorch's libraries load."""
    if facts.missing_libraries:
        message = f"the Visual C++ run-time library is missing: {', '.join(facts.missing_libraries)}"
        yield _note(facts, "runtime-library-missing", message, "PyTorch's own libraries are linked against it")


def processor_without_avx(facts: MachineFacts, _: Findings) -> Iterator[Problem]:
    """An x86 processor, often a virtual one, that PyTorch was not built for."""
    if facts.host.avx is False:
        why = "parts of PyTorch end with an illegal instruction"
        yield _note(facts, "cpu-without-avx", "the processor has no AVX", why)


NOTES = (not_supported, little_space, little_shared_memory, runtime_libraries_missing, processor_without_avx)


def _note(facts: MachineFacts, code: str, message: str, why: str) -> Problem:
    return problem(code, message, FixContext(facts.fix_keys()), why=why, blocking=False)
