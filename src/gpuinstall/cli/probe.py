"""``gpuinstall probe``: what this machine is, where each fact was found, what is wrong with it; as people read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click

from gpuinstall.advice import OURS, in_full
from gpuinstall.cli import options
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.cli.terminal import Terminal
from gpuinstall.errors import MachineError, UsageError
from gpuinstall.finding import Finding
from gpuinstall.machine import Gpu, Machine
from gpuinstall.request import Request


@click.command(
    "probe",
    help="Show this machine's GPUs and driver, where each fact comes from, and any problem.",
)
@click.option(
    "--record",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Record everything that is read in DIR.",
)
@click.option(
    "--machine",
    metavar="FILE",
    help="Read a Machine document (- is stdin) or a recorded machine's folder.",
)
@framed("probe")
def command(terminal: Terminal, record: Path | None, machine: str | None) -> Outcome:
    """Probe."""
    if record is not None and machine is not None:
        raise UsageError(
            "usage", "--record records this machine and cannot be combined with --machine"
        )
    from gpuinstall.probe import read_machine, record_machine

    if record is not None:
        probed = record_machine(record, terminal)
    else:
        probed = (
            read_machine(terminal)
            if machine is None
            else options.read_machine_file(machine, terminal)
        )
    faults = probed.refusing or refusals(probed)
    return Outcome(
        probed.to_dict(),
        lambda screen: show(screen, probed.with_problems(refusals(probed)), record),
        status="error"
        if faults
        else "partial"
        if any(problem.blocking for problem in probed.problems)
        else "success",
        exit_code=MachineError.exit_code if faults else 0,
        errors=tuple(
            {"code": fault.code, "message": fault.message, "hint": fault.fix} for fault in faults
        ),
    )


def refusals(machine: Machine) -> tuple[Finding, ...]:
    """Return why no build of torch runs on the GPUs of a machine, unless its own problems say it."""
    from gpuinstall.learned.store import known_catalog
    from gpuinstall.plan import Plan, choose

    if machine.refusing or not machine.gpus:
        return ()
    plan = choose(machine, Request(), known_catalog())
    if isinstance(plan, Plan) or plan.error_class is not MachineError:
        return ()
    error = plan.error(machine)
    advice = in_full(error.hint or "", (OURS, "install"))
    return (replace(error.finding, fixes=tuple(advice.splitlines())),)


def show(terminal: Terminal, machine: Machine, record: Path | None) -> None:
    """Print the machine for a person."""
    terminal.field("Machine", machine_line(machine))
    for label, text in facts(machine):
        terminal.field(label, text)
    for problem in machine.problems:
        terminal.line()
        word = (
            terminal.style("error:", "red")
            if problem.blocking
            else terminal.style("note:", "yellow")
        )
        terminal.line(f"{word} {problem.message}" + (f"   [{problem.id}]" if problem.id else ""))
        terminal.rows([("why", problem.why), ("seen", problem.evidence), ("do", problem.fix)])
    if record is not None:
        terminal.line()
        terminal.field("Recorded", f"{record}, without serial numbers, host and user names")


def machine_line(machine: Machine) -> str:
    """Write ``2 × NVIDIA GeForce RTX 4090 (sm_89, 24 GB) · driver 535.183.01 (CUDA 12.2) · Ubuntu 22.04``."""
    kinds = Counter(_kind(gpu) for gpu in machine.gpus)
    gpus = [f"{count} × {kind}" if count > 1 else kind for kind, count in kinds.items()] or [
        "no GPU"
    ]
    driver = None
    if machine.driver:
        cuda = f" (CUDA {machine.driver.cuda})" if machine.driver.cuda else ""
        driver = f"driver {machine.driver.version or 'of unknown release'}{cuda}"
    return " · ".join(
        filter(
            None, (", ".join(gpus), driver, machine.distribution or f"{machine.os} {machine.arch}")
        )
    )


def facts(machine: Machine) -> Iterator[tuple[str, str]]:
    """List the facts, each with where it was found."""
    for gpu in machine.gpus:
        yield f"GPU {gpu.index}", " · ".join(_gpu_facts(gpu))
        for part in gpu.mig_devices:
            yield "", f"MIG {part.profile or ''} · {part.uuid}"
    if machine.driver:
        cuda = f" · CUDA {machine.driver.cuda}" if machine.driver.cuda else ""
        yield (
            "Driver",
            f"{machine.driver.version or 'of unknown release'}{cuda} · by {machine.driver.found_via}",
        )
    libc = f"{machine.libc} {machine.glibc or ''}".strip() if machine.libc else None
    wsl = "WSL" if machine.environment.wsl else None
    surroundings = [machine.distribution, libc, wsl, machine.environment.container]
    yield "System", " · ".join([f"{machine.os} {machine.arch}", *filter(None, surroundings)])
    if machine.pythons:
        yield "Pythons", ", ".join(machine.pythons)


def _gpu_facts(gpu: Gpu) -> Iterator[str]:
    yield gpu.label
    yield gpu.code_name or "compute capability unknown"
    if gpu.memory_mib:
        yield f"{gpu.memory_mib} MiB"
    yield from filter(None, (gpu.pci_id, gpu.uuid))
    yield f"by {gpu.found_via}"


def _kind(gpu: Gpu) -> str:
    memory = f"{round(gpu.memory_mib / 1024)} GB" if gpu.memory_mib else None
    facts = filter(None, (gpu.code_name, memory))
    return f"{gpu.name or 'unknown NVIDIA GPU'} ({', '.join(facts) or 'capability unknown'})"
