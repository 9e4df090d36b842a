"""What this machine is: ordered steps, the Machine that comes of them, notes on it, and the proof of its drivers."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING

from gpuinstall.base.machine import Environment, Machine
from gpuinstall.base.reporter import Reporter, SilentReporter
from gpuinstall.catalog.failures.problems import finding_for
from gpuinstall.machine.bus import PciDevice, read_adapters, read_pci
from gpuinstall.machine.container import read_container, read_wsl
from gpuinstall.machine.host import read_folders, read_host, read_missing_libraries
from gpuinstall.machine.prober import Preflight, VendorFindings
from gpuinstall.machine.probers import MAKERS, PROBERS
from gpuinstall.machine.pythons import read_pythons
from gpuinstall.machine.source import Source, ThisMachine
from gpuinstall.machine.steps import MachineFacts, Step, take
from gpuinstall.machine.vendors import PCI_IDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from gpuinstall.base.finding import Finding

    MakerFindings = Mapping[str, VendorFindings]

_MIB = 1024**2
_GIB = 1024**3
SHARED_MEMORY_BYTES = 256 * _MIB
"""Docker gives a container 64 MiB unless it is asked for more, which is too little for NCCL."""


def _read_makers(source: Source, facts: MachineFacts) -> dict[str, Any]:
    evidence = {}
    for prober in PROBERS:
        evidence[prober.vendor] = prober.read(source, facts)
    return evidence


def _answered(_: Source, facts: MachineFacts) -> tuple[str, ...]:
    return tuple(
        prober.vendor for prober in PROBERS if prober.answers(facts.evidence[prober.vendor])
    )


def _devices(source: Source, facts: MachineFacts) -> tuple[PciDevice, ...]:
    # To ask Windows takes seconds, and a maker's driver knows as much.
    if facts.answered or facts.host.os != "windows":
        return facts.devices
    return read_adapters(source)


MACHINE_STEPS: tuple[Step[MachineFacts], ...] = (
    Step("host", lambda source, _: read_host(source)),
    Step("container", lambda source, _: read_container(source)),
    Step(
        "wsl",
        lambda source, facts: read_wsl(source, facts.host.release),
    ),
    Step("devices", lambda source, _: read_pci(source)),
    Step("evidence", _read_makers, together=True),
    Step("pythons", lambda source, _: read_pythons(source), together=True),
    Step("folders", lambda source, _: read_folders(source), together=True),
    Step("answered", _answered),
    Step(
        "missing_libraries",
        lambda source, facts: read_missing_libraries(source, facts.host.os),
    ),
    Step("devices", _devices),
)


def read_machine(
    reporter: Reporter | None = None,
    source: Source | None = None,
) -> Machine:
    """Return what this machine is, or the one behind ``source``; whatever is wrong with it stands in its problems."""
    source = source or ThisMachine(reporter or SilentReporter())
    return machine_of(take(MACHINE_STEPS, MachineFacts(), source))


def machine_of(facts: MachineFacts) -> Machine:
    """Conclude from the facts what the machine is and what is wrong with it. Pure."""
    concluded = {}
    for prober in PROBERS:
        evidence = replace(facts.evidence[prober.vendor], facts=facts)
        concluded[prober.vendor] = prober.conclude(evidence)
    findings = dict(numbered(concluded.items()))
    makers = findings.values()
    drivers = [maker.driver for maker in makers if maker.driver]
    releases = [maker.l4t for maker in makers if maker.l4t]
    facts_of_makers = {}
    for name, maker in findings.items():
        if maker.facts:
            facts_of_makers[name] = maker.facts
    return Machine(
        os=facts.host.os,
        arch=facts.host.arch,
        libc=facts.host.libc,
        glibc=facts.host.glibc,
        environment=Environment(
            wsl=facts.wsl is not None,
            container=facts.container.engine,
            l4t=releases[0] if releases else None,
        ),
        pythons=facts.pythons,
        driver=drivers[0] if drivers else None,
        gpus=tuple(chain.from_iterable(maker.gpus for maker in makers)),
        problems=(
            *chain.from_iterable(maker.faults for maker in makers),
            *chain.from_iterable(maker.notes for maker in makers),
            *machine_notes(facts, findings),
        ),
        distribution=facts.host.distribution,
        signs=facts.container.signs,
        makers=facts_of_makers,
    )


def numbered(
    findings: Iterable[tuple[str, VendorFindings]],
) -> Iterator[tuple[str, VendorFindings]]:
    """Count the GPUs of every maker on from those of the makers before it, who each begin with 0."""
    first = 0
    for maker, finding in findings:
        moved = replace(
            finding,
            gpus=tuple(replace(gpu, index=gpu.index + first) for gpu in finding.gpus),
            faults=tuple(_moved(fault, first) for fault in finding.faults),
            notes=tuple(_moved(note, first) for note in finding.notes),
        )
        yield maker, moved
        first = max((gpu.index + 1 for gpu in moved.gpus), default=first)


def _moved(problem: Finding, first: int) -> Finding:
    gpus = [gpu + first for gpu in problem.gpus]
    return replace(problem, gpus=tuple(gpus))


def preflight(machine: Machine, reporter: Reporter) -> Preflight:
    """Prove every usable GPU of every maker; nothing is downloaded."""
    start = monotonic()
    proofs = [prober.preflight(machine, reporter) for prober in PROBERS]
    cards = chain.from_iterable(proof.cards for proof in proofs)
    problems = chain.from_iterable(proof.problems for proof in proofs)
    return Preflight(tuple(cards), tuple(problems), monotonic() - start)


def machine_notes(facts: MachineFacts, findings: MakerFindings) -> Iterator[Finding]:
    """Yield what should be known of the machine, whoever made its GPUs.

    GPUs that no prober lists or speaks of are named if no other is there.
    """
    yield from _foreign_gpus(facts, findings)
    yield from _little_space(facts)
    gpus = sum(len(finding.gpus) for finding in findings.values())
    shared = facts.folders.get("shared-memory")
    if shared and shared.free < SHARED_MEMORY_BYTES and gpus > 1:
        yield _note(
            facts,
            "little-shared-memory",
            f"{shared.free // _MIB} MiB of shared memory are free",
            why="NCCL passes data between GPUs through it",
        )
    if facts.missing_libraries:
        libraries = ", ".join(facts.missing_libraries)
        yield _note(
            facts,
            "runtime-library-missing",
            f"the Visual C++ run-time library is missing: {libraries}",
            why="PyTorch's own libraries are linked against it",
        )
    # Often a virtual processor.
    if facts.host.avx is False:
        yield _note(
            facts,
            "cpu-without-avx",
            "the processor has no AVX",
            why="parts of PyTorch end with an illegal instruction",
        )


def _foreign_gpus(facts: MachineFacts, findings: MakerFindings) -> Iterator[Finding]:
    if any(finding.shows_gpu for finding in findings.values()):
        return
    names = []
    for device in facts.devices:
        maker = PCI_IDS.get(f"{device.vendor:04x}")
        if maker not in MAKERS or device.is_reserved or not device.is_display:
            continue
        finding = findings.get(maker)
        if finding is None or not (finding.faults or finding.notes):
            names.append(f"{MAKERS[maker]} {device.id}")
    if names:
        yield _note(
            facts,
            "gpu-not-supported",
            f"not used: {', '.join(names)}",
            why="no build of PyTorch is chosen for them",
        )


def _little_space(facts: MachineFacts) -> Iterator[Finding]:
    """Yield the folders with less space than any build takes; how much more one takes the installation knows."""
    names = {
        "environment": "this folder",
        "cache": "uv's cache",
        "temporary": "TMPDIR",
    }
    for folder, name in names.items():
        space = facts.folders.get(folder)
        if space and space.free < _GIB:
            yield _note(
                facts,
                "little-space",
                f"{name} has {space.free // _MIB} MiB free",
                why="an environment takes from one to eight GiB",
            )


def _note(
    facts: MachineFacts,
    code: str,
    message: str,
    why: str,
) -> Finding:
    return finding_for(
        code,
        message,
        facts.fix_context,
        why=why,
        blocking=False,
    )
