"""What this machine is: ordered steps, the Machine that comes of them, notes on it, and the proof of its drivers."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

from gpuinstall.errors import UsageError
from gpuinstall.facts.bus import PciDevice, read_adapters, read_pci
from gpuinstall.facts.container import read_container, read_wsl
from gpuinstall.facts.host import PLATFORM, is_told, read_folders, read_host, read_missing_libraries
from gpuinstall.facts.pythons import read_pythons
from gpuinstall.facts.source import Recording, Source, ThisMachine, recorder
from gpuinstall.facts.steps import MachineFacts, Step, take
from gpuinstall.failures.problems import finding_for
from gpuinstall.machine import Environment, Machine
from gpuinstall.reporter import Reporter, SilentReporter
from gpuinstall.vendors import PCI_IDS
from gpuinstall.vendors.prober import Preflight, VendorFindings
from gpuinstall.vendors.probers import MAKERS, PROBERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from typing import Any

    from gpuinstall.finding import Finding

    MakerFindings = Mapping[str, VendorFindings]

_MIB = 1024**2
_GIB = 1024**3
SHARED_MEMORY_BYTES = 256 * _MIB
"""Docker gives a container 64 MiB unless it is asked for more, which is too little for NCCL."""


def _read_makers(source: Source, facts: MachineFacts) -> dict[str, Any]:
    return {prober.vendor: prober.read(source, facts) for prober in PROBERS}


def _answered(_: Source, facts: MachineFacts) -> tuple[str, ...]:
    return tuple(
        prober.vendor for prober in PROBERS if prober.answers(facts.evidence[prober.vendor])
    )


def _devices(source: Source, facts: MachineFacts) -> tuple[PciDevice, ...]:
    """Ask Windows, which takes seconds, only where no maker's driver answers."""
    return (
        read_adapters(source)
        if facts.host.os == "windows" and not facts.answered
        else facts.devices
    )


MACHINE_STEPS: tuple[Step[MachineFacts], ...] = (
    Step("host", lambda source, _: read_host(source)),
    Step("container", lambda source, _: read_container(source)),
    Step("wsl", lambda source, facts: read_wsl(source, facts.host.release)),
    Step("devices", lambda source, _: read_pci(source)),
    Step("evidence", _read_makers, together=True),
    Step("pythons", lambda source, _: read_pythons(source), together=True),
    Step("folders", lambda source, _: read_folders(source), together=True),
    Step("answered", _answered),
    Step("missing_libraries", lambda source, facts: read_missing_libraries(source, facts.host.os)),
    Step("devices", _devices),
)


def read_machine(reporter: Reporter | None = None, source: Source | None = None) -> Machine:
    """Say what this machine is, or the one behind ``source``; whatever is wrong with it stands in its problems."""
    return machine_of(
        take(MACHINE_STEPS, MachineFacts(), source or ThisMachine(reporter or SilentReporter()))
    )


def machine_of(facts: MachineFacts) -> Machine:
    """Conclude from the facts what the machine is and what is wrong with it. Pure."""
    evidence = {vendor: replace(read, facts=facts) for vendor, read in facts.evidence.items()}
    findings = dict(
        numbered((prober.vendor, prober.conclude(evidence[prober.vendor])) for prober in PROBERS)
    )
    concluded = tuple(findings.values())
    return Machine(
        os=facts.host.os,
        arch=facts.host.arch,
        libc=facts.host.libc,
        glibc=facts.host.glibc,
        environment=Environment(
            wsl=facts.wsl is not None,
            container=facts.container.engine,
            l4t=next((maker.l4t for maker in concluded if maker.l4t), None),
        ),
        pythons=facts.pythons,
        driver=next((maker.driver for maker in concluded if maker.driver), None),
        gpus=tuple(gpu for maker in concluded for gpu in maker.gpus),
        problems=(
            *(fault for maker in concluded for fault in maker.faults),
            *(note for maker in concluded for note in maker.notes),
            *machine_notes(facts, findings),
        ),
        distribution=facts.host.distribution,
        signs=facts.container.signs,
        makers={name: maker.facts for name, maker in findings.items() if maker.facts},
    )


def numbered(
    findings: Iterable[tuple[str, VendorFindings]],
) -> Iterator[tuple[str, VendorFindings]]:
    """Count the GPUs of every maker on from those of the makers before it, who each begin with 0."""
    first = 0
    for maker, finding in findings:
        gpus = tuple(replace(gpu, index=gpu.index + first) for gpu in finding.gpus)
        faults = tuple(_moved(fault, first) for fault in finding.faults)
        notes = tuple(_moved(note, first) for note in finding.notes)
        moved = replace(finding, gpus=gpus, faults=faults, notes=notes)
        yield maker, moved
        first = max((gpu.index + 1 for gpu in moved.gpus), default=first)


def _moved(problem: Finding, first: int) -> Finding:
    return replace(problem, gpus=tuple(gpu + first for gpu in problem.gpus)) if first else problem


def record_machine(folder: Path, reporter: Reporter | None = None) -> Machine:
    """Read this machine and write down what was read, nvidia-smi included, without serials, host and user names."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(
            "folder-not-empty",
            f"{folder} is not empty",
            hint="the same with --record DIR   # a new one",
        )
    try:
        return read_machine(source=recorder(folder, reporter or SilentReporter()))
    except OSError as error:
        message = f"the recording cannot be written: {error.strerror}: {error.filename}"
        hint = "the same with --record DIR   # a folder that you can write to"
        raise UsageError("recording-not-written", message, hint=hint) from None


def read_recording(folder: Path, reporter: Reporter | None = None) -> Machine:
    """Read a recorded machine; raise UsageError where the folder holds none."""
    recording = Recording(folder)
    if not is_told(recording.answer(PLATFORM, str)):
        message, hint = (
            f"{folder} holds no recorded machine",
            "gpuinstall probe --record DIR   # makes one",
        )
        raise UsageError("recording-malformed", message, hint=hint)
    return read_machine(reporter, recording)


def preflight(machine: Machine, reporter: Reporter) -> Preflight:
    """Prove every usable GPU of every maker; nothing is downloaded."""
    start = monotonic()
    proofs = [prober.preflight(machine, reporter) for prober in PROBERS]
    cards = tuple(card for proof in proofs for card in proof.cards)
    return Preflight(
        cards, tuple(problem for proof in proofs for problem in proof.problems), monotonic() - start
    )


def machine_notes(facts: MachineFacts, findings: MakerFindings) -> Iterator[Finding]:
    """List what should be known of the machine, whoever made its GPUs.

    GPUs that no prober lists or speaks of are named where no other is there.
    """
    named = {
        name
        for name, finding in findings.items()
        if finding.shows_gpu or finding.faults or finding.notes
    }
    unknown = MAKERS.keys() - named
    displays = [device for device in facts.devices if device.is_display and not device.is_reserved]
    foreign = [device for device in displays if PCI_IDS.get(f"{device.vendor:04x}") in unknown]
    if foreign and not any(finding.shows_gpu for finding in findings.values()):
        names = ", ".join(
            f"{MAKERS[PCI_IDS[f'{device.vendor:04x}']]} {device.id}" for device in foreign
        )
        yield _note(
            facts,
            "gpu-not-supported",
            f"not used: {names}",
            "no build of PyTorch is chosen for them",
        )
    yield from _little_space(facts, sum(len(finding.gpus) for finding in findings.values()))
    if facts.missing_libraries:
        message = (
            f"the Visual C++ run-time library is missing: {', '.join(facts.missing_libraries)}"
        )
        yield _note(
            facts,
            "runtime-library-missing",
            message,
            "PyTorch's own libraries are linked against it",
        )
    if facts.host.avx is False:  # often a virtual processor
        why = "parts of PyTorch end with an illegal instruction"
        yield _note(facts, "cpu-without-avx", "the processor has no AVX", why)


def _little_space(facts: MachineFacts, gpus: int) -> Iterator[Finding]:
    """Any build takes more than this, how much more the installation knows; several GPUs need room to pass data."""
    for name, what in (
        ("environment", "this folder"),
        ("cache", "uv's cache"),
        ("temporary", "TMPDIR"),
    ):
        if name in facts.folders and facts.folders[name].free < _GIB:
            message = f"{what} has {facts.folders[name].free // _MIB} MiB free"
            yield _note(
                facts, "little-space", message, "an environment takes from one to eight GiB"
            )
    shared = facts.folders.get("shared-memory")
    if shared and shared.free < SHARED_MEMORY_BYTES and gpus > 1:
        message = f"{shared.free // _MIB} MiB of shared memory are free"
        yield _note(
            facts, "little-shared-memory", message, "NCCL passes data between GPUs through it"
        )


def _note(facts: MachineFacts, code: str, message: str, why: str) -> Finding:
    return finding_for(code, message, facts.fix_context, why=why, blocking=False)
