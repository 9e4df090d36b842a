"""The ordered steps, and the Machine that comes of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.errors import UsageError
from gpuinstall.machine import Environment, Machine
from gpuinstall.probe.asking import ask_libcuda, ask_nvml, ask_smi, patience
from gpuinstall.probe.card_faults import card_faults
from gpuinstall.probe.container import read_surroundings
from gpuinstall.probe.diagnosis import machine_fault
from gpuinstall.probe.evidence import Card, Evidence
from gpuinstall.probe.fabric import read_fabric
from gpuinstall.probe.folders import read_folders
from gpuinstall.probe.gpus import driver_of, sightings
from gpuinstall.probe.host import PLATFORM, is_told, read_host
from gpuinstall.probe.jetson import read_jetson
from gpuinstall.probe.kernel import read_kernel
from gpuinstall.probe.nodes import card_nodes, is_given, refused_nodes
from gpuinstall.probe.notes import notes
from gpuinstall.probe.nvml import NvmlFacts, permitted
from gpuinstall.probe.pci import read_pci
from gpuinstall.probe.pythons import read_pythons
from gpuinstall.probe.record import recorder
from gpuinstall.probe.source import Recording, ThisMachine
from gpuinstall.probe.windows import read_adapters, read_missing_libraries
from gpuinstall.probe.wsl import read_wsl
from gpuinstall.reporter import SilentReporter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpuinstall.probe.pci import PciDevice
    from gpuinstall.probe.source import Source
    from gpuinstall.reporter import Reporter

# Where nobody counts the cards: eight of them without persistence start within the seconds that five are given.
UNCOUNTED = 5


def read_machine(reporter: Reporter | None = None, source: Source | None = None) -> Machine:
    """Say what this machine is, or the one behind ``source``; whatever is wrong with it stands in its problems."""
    return machine_of(read_evidence(reporter or SilentReporter(), source or ThisMachine()))


def machine_of(evidence: Evidence) -> Machine:
    """Conclude from the facts what the machine is and what is wrong with it. Pure."""
    host, surroundings = evidence.host, evidence.surroundings
    found, fault = sightings(evidence), machine_fault(evidence)
    faults = card_faults(evidence, found, driver_works=fault is None)
    return Machine(
        os=host.os,
        arch=host.arch,
        libc=host.libc,
        glibc=host.glibc,
        environment=Environment(
            wsl=evidence.wsl is not None,
            container=surroundings.container,
            l4t=evidence.jetson.l4t if evidence.jetson else None,
        ),
        pythons=evidence.pythons,
        driver=driver_of(evidence),
        gpus=tuple(sighting.gpu for sighting in found),
        problems=(*((fault,) if fault else ()), *faults, *notes(evidence)),
        distribution=host.distribution,
        signs=surroundings.signs,
    )


def record_machine(folder: Path, reporter: Reporter | None = None) -> Machine:
    """Read this machine and write down what was read, nvidia-smi included, without serials, host and user names."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError("folder-not-empty", f"{folder} is not an empty folder", hint="name a new one: --record DIR")
    source, reporter = recorder(folder), reporter or SilentReporter()
    try:
        evidence = read_evidence(reporter, source)
        ask_smi(source, reporter, len(evidence.cards))
    except OSError as error:
        message = f"the recording cannot be written: {error.strerror}: {error.filename}"
        raise UsageError(
            "recording-not-written", message, hint="name a folder that can be written: --record DIR"
        ) from None
    return machine_of(evidence)


def read_recording(folder: Path, reporter: Reporter | None = None) -> Machine:
    """Read a recorded machine; raise UsageError where the folder holds none."""
    recording = Recording(folder)
    if not is_told(recording.answer(PLATFORM, str)):
        raise UsageError(
            "recording-malformed", f"{folder} holds no recorded machine", hint="gpuinstall probe --record DIR makes one"
        )
    return read_machine(reporter, recording)


def read_evidence(reporter: Reporter, source: Source) -> Evidence:
    """Take every step: the driver's two libraries at once, the files meanwhile, then what only a fault asks for."""
    host, devices, nodes = read_host(source), read_pci(source), card_nodes(source)
    shown = max(sum(device.is_gpu and not device.is_reserved for device in devices), len(nodes))
    gpus = shown or 1
    with ThreadPoolExecutor(3) as pool:
        asked_nvml = pool.submit(ask_nvml, source, reporter, gpus)
        asked_libcuda = pool.submit(ask_libcuda, source, reporter, gpus)
        pythons = pool.submit(read_pythons, source)
        evidence = Evidence(
            host=host,
            surroundings=read_surroundings(source),
            nodes=nodes,
            wsl=read_wsl(source, host.release),
            jetson=read_jetson(source, host.release),
            folders=read_folders(source),
            missing_libraries=read_missing_libraries(source) if host.os == "windows" else (),
            visible=source.variable("CUDA_VISIBLE_DEVICES"),
        )
    evidence = replace(evidence, nvml=asked_nvml.result(), cuda=asked_libcuda.result(), pythons=pythons.result())
    evidence = evidence if shown else _given_time(evidence, source, reporter)
    if host.os == "windows" and not evidence.nvml.works:
        devices = read_adapters(source, patience(reporter, "Windows", gpus)[1])
    fabric = read_fabric(source, sum(device.is_switch for device in devices)) if evidence.cuda.init == 802 else None
    evidence = replace(evidence, fabric=fabric, foreign=tuple(device for device in devices if device.is_foreign))
    return _divided(_explained(evidence, source, reporter, gpus), source, devices)


def _given_time(evidence: Evidence, source: Source, reporter: Reporter) -> Evidence:
    """Ask a library again that had time for one card where there are more, which no file shows."""
    nvml, cuda = evidence.nvml, evidence.cuda
    silent = nvml.fault == cuda.fault == "timeout" and nvml.init is None
    gpus = UNCOUNTED if silent else max(nvml.count, len(cuda.devices))
    if gpus <= 1:
        return evidence
    with ThreadPoolExecutor(2) as pool:
        asked_nvml = pool.submit(ask_nvml, source, reporter, gpus) if nvml.fault == "timeout" else None
        asked_libcuda = pool.submit(ask_libcuda, source, reporter, gpus) if cuda.fault == "timeout" else None
    return replace(
        evidence,
        nvml=asked_nvml.result() if asked_nvml else nvml,
        cuda=asked_libcuda.result() if asked_libcuda else cuda,
    )


def _explained(evidence: Evidence, source: Source, reporter: Reporter, gpus: int) -> Evidence:
    """Read what explains a driver that does not work; a library that hung or crashed is not asked again."""
    linux, works = evidence.host.os == "linux", evidence.nvml.works and evidence.cuda_works
    evidence = replace(evidence, kernel=read_kernel(source, hindrances=linux and not works))
    if works or evidence.host.os == "macos":
        return evidence
    evidence = replace(evidence, refused=refused_nodes(source) if linux else ())
    if evidence.cuda_works or not _is_silent(evidence):
        return evidence
    said = ask_smi(source, reporter, gpus)
    return replace(evidence, nvml=said) if said.error else evidence


def _is_silent(evidence: Evidence) -> bool:
    """Say whether NVML was not there to answer, and nothing hung or crashed."""
    unasked = evidence.nvml.fault == "missing" or evidence.nvml == NvmlFacts()
    return unasked and evidence.cuda.fault not in ("timeout", "crash")


def _divided(evidence: Evidence, source: Source, devices: Sequence[PciDevice]) -> Evidence:
    """Tell what this process was given from what the bus, or NVML without letting it in, only shows."""
    gpus = [device for device in devices if device.is_gpu]
    if not evidence.surroundings.shares_the_bus:
        withheld = [device for device in gpus if device.is_reserved]
    else:
        opened = tuple(node for node in evidence.nodes if source.access(f"/dev/{node}") == "open")
        evidence = replace(evidence, nvml=permitted(evidence.nvml), nodes=opened)
        listed = {gpu.bus_id for gpu in evidence.nvml.gpus} | {device.bus_id for device in evidence.cuda.devices}
        usable = [device for device in gpus if not device.is_reserved]
        given = {device for place, device in enumerate(usable) if is_given(source, device.address, place)}
        withheld = [device for device in gpus if device.address not in listed and device not in given]
    cards = tuple(Card(device) for device in gpus if device not in withheld)
    return replace(evidence, cards=cards, others=tuple(map(Card, withheld)))
