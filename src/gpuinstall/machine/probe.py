"""Detection of this machine, and a preflight of its GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from time import monotonic

from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Environment, JetsonRelease, Machine
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.values import replace
from gpuinstall.machine.bus import read_pci
from gpuinstall.machine.container import read_container, read_wsl
from gpuinstall.machine.host import read_host
from gpuinstall.machine.jetson import read_jetson
from gpuinstall.machine.prober import (
    MachineFacts,
    Preflight,
    PreflightOutcome,
    Prober,
    VendorFindings,
)
from gpuinstall.machine.pythons import read_pythons
from gpuinstall.machine.source import Source
from gpuinstall.machine.symptoms import create_findings
from gpuinstall.machine.vendors import FIRST_VENDOR, VENDORS, load_class

PROBERS: tuple[Prober, ...] = tuple(load_class(name, "prober")() for name in VENDORS)


def read_machine(
    reporter: Reporter | None = None,
    source: Source | None = None,
) -> Machine:
    """Detect hardware, drivers, and problems of this or a recorded machine."""
    source = source or Source(reporter)
    host = read_host(source)
    container = read_container(source)
    wsl = read_wsl(source, host.release)
    jetson = read_jetson(source, host.release)
    environment = Environment(
        wsl=wsl is not None,
        container=container.engine,
        jetson=JetsonRelease(jetson.l4t) if jetson else None,
    )
    machine = replace(
        host.machine,
        environment=environment,
        pythons=read_pythons(source),
        signs=container.signs,
    )
    facts = MachineFacts(machine, host, container, wsl, jetson, read_pci(source))
    findings: dict[str, VendorFindings] = {}
    # Number the GPUs of all vendors consecutively, for --gpus and problems.
    first = 0
    # Probe sequentially, because most machines have only one vendor's driver, and reading files is fast.
    for prober in PROBERS:
        own = prober.findings(source, facts).renumber_from(first)
        first = max((gpu.index + 1 for gpu in own.gpus), default=first)
        facts = replace(facts, devices=own.devices or facts.devices)
        findings[prober.vendor] = own
    results = findings.values()
    circumstances = {
        "foreign": ", ".join(_find_foreign_gpus(facts, findings)),
        "without-avx": host.avx is False,
    }
    problems = [*chain.from_iterable(result.problems for result in results)]
    problems.sort(key=lambda problem: not problem.blocking)
    problems += create_findings("any", circumstances, facts.create_fix_context)
    return replace(
        machine,
        driver=findings[FIRST_VENDOR].driver,
        gpus=tuple(chain.from_iterable(result.gpus for result in results)),
        problems=tuple(problems),
        makers={name: own.facts for name, own in findings.items() if own.facts},
    )


def preflight(machine: Machine, reporter: Reporter) -> Preflight:
    """Run a small kernel on each usable GPU without downloading anything."""
    start = monotonic()
    outcomes: dict[int, PreflightOutcome] = {}
    problems: list[Finding] = []
    for prober in PROBERS:
        result = prober.preflight(machine, reporter)
        outcomes |= result.outcomes
        problems += result.problems
    return Preflight(outcomes, tuple(problems), monotonic() - start)


def _find_foreign_gpus(
    facts: MachineFacts,
    findings: Mapping[str, VendorFindings],
) -> Iterator[str]:
    """Yield the GPUs on the PCI bus if no prober reports any GPU."""
    if any(finding.gpus or finding.shows_gpu for finding in findings.values()):
        return
    for device in facts.devices:
        finding = findings.get(device.vendor)
        if finding is None or device.is_reserved or not device.is_display:
            continue
        if not finding.problems:
            yield device.label
