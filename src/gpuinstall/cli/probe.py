"""``gpuinstall probe``: what this machine is, where each fact was found, what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuinstall.cli import options
from gpuinstall.cli.envelope import Outcome
from gpuinstall.cli.machine import machine_line, problem_lines
from gpuinstall.cli.machine_file import read_machine_file
from gpuinstall.errors import MachineError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.machine import Gpu, Machine


@click.command("probe", help="Say what this machine is, where each fact was found, what is wrong with it.")
@click.option("--record", type=click.Path(path_type=Path), metavar="DIR", help="Write down all that is read, into DIR.")
@click.option("--machine", metavar="FILE", help="Read a Machine document (- is stdin) or a recorded machine's folder.")
@options.command("probe")
def command(terminal: Terminal, record: Path | None, machine: str | None) -> Outcome:
    """Probe."""
    if record is not None and machine is not None:
        raise UsageError("usage", "--record writes down this machine: leave --machine out")
    found = asked_machine(terminal, record, machine)
    faults = found.refusing
    return Outcome(
        found.to_dict(),
        lambda screen: show(screen, found, record),
        status="error" if faults else "partial" if any(problem.blocking for problem in found.problems) else "success",
        exit_code=MachineError.exit_code if faults else 0,
        errors=tuple({"code": fault.code, "message": fault.message, "hint": fault.fix} for fault in faults),
    )


def asked_machine(terminal: Terminal, record: Path | None, machine: str | None) -> Machine:
    """Read this machine, recording it if asked to, or the one that was named."""
    from gpuinstall.probe.probe import read_machine, record_machine

    if record is not None:
        return record_machine(record, terminal)
    return read_machine(terminal) if machine is None else read_machine_file(machine, terminal)


def show(terminal: Terminal, machine: Machine, record: Path | None) -> None:
    """Print the machine for a person."""
    terminal.field("Machine", machine_line(machine))
    for label, text in facts(machine):
        terminal.field(label, text)
    for problem in machine.problems:
        terminal.line()
        for line in problem_lines(problem, terminal):
            terminal.line(line)
    if record is not None:
        terminal.line()
        terminal.field("Recorded", f"{record}, without serial numbers, host and user names")


def facts(machine: Machine) -> Iterator[tuple[str, str]]:
    """List the facts, each with where it was found."""
    for gpu in machine.gpus:
        yield f"GPU {gpu.index}", " · ".join(gpu_facts(gpu))
        for part in gpu.mig_devices:
            yield "", f"MIG {part.profile or ''} · {part.uuid}"
    if machine.driver:
        cuda = f" · CUDA {machine.driver.cuda}" if machine.driver.cuda else ""
        yield "Driver", f"{machine.driver.version or 'of unknown release'}{cuda} · by {machine.driver.found_via}"
    libc = f"{machine.libc} {machine.glibc or ''}".strip() if machine.libc else None
    surroundings = [
        machine.distribution,
        libc,
        "WSL" if machine.environment.wsl else None,
        machine.environment.container,
    ]
    yield "System", " · ".join([f"{machine.os} {machine.arch}", *filter(None, surroundings)])
    if machine.pythons:
        yield "Pythons", ", ".join(machine.pythons)


def gpu_facts(gpu: Gpu) -> Iterator[str]:
    """List what is known of one GPU."""
    yield gpu.label
    yield gpu.compute_capability.sm if gpu.compute_capability else "compute capability unknown"
    if gpu.memory_mib:
        yield f"{gpu.memory_mib} MiB"
    yield from filter(None, (gpu.pci_id, gpu.uuid))
    yield f"by {gpu.found_via}"
