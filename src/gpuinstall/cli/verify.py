"""``gpuinstall verify``: kernels on every GPU of any environment, and how fast they are."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuinstall.base.advice import OURS, Advice
from gpuinstall.base.environment_paths import interpreter
from gpuinstall.base.errors import LockError, MachineError, UsageError, VerificationError
from gpuinstall.base.units import number_of
from gpuinstall.cli import options
from gpuinstall.cli.active import command_for_active, name_active
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.cli.probe import refusals
from gpuinstall.environments.environment import read_marker, read_origin
from gpuinstall.verify.kernels.programs import PROGRAMS
from gpuinstall.verify.runner import fail_devices, verify_environment
from gpuinstall.verify.verdict import Device, Verdict

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuinstall.base.finding import CheckResult, Finding
    from gpuinstall.base.machine import Machine
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.verify.bench import Bench
    from gpuinstall.verify.verdict import VerifiedEnvironment

STYLES = {
    "passed": "green",
    "failed": "red",
    "unproven": "yellow",
}
NOTABLE_CHECKS = ("ecc", "clocks", "pcie-link", "peer-to-peer", "compile", "build")
"""The checks whose message is shown also if they passed."""
PROGRAM_CHECKS = {program.name for program in PROGRAMS}


@click.command("verify")
@click.option("--python", metavar="PATH", help="The interpreter of any environment.")
@options.venv
@click.option(
    "--deep",
    is_flag=True,
    help="Also check attention, FP8, sparsity, solvers, graphs, compiler, NCCL.",
)
@click.option(
    "--require-gpu", is_flag=True, help="Fail if no kernel ran on a GPU (for CI and cluster nodes)."
)
@click.option("--bench", is_flag=True, help="Measure products, copies and a ResNet-50.")
@framed("verify")
def command(
    terminal: Terminal,
    *,
    python: str | None,
    venv: Path,
    deep: bool,
    require_gpu: bool,
    bench: bool,
) -> Outcome:
    """Run kernels on every GPU of an environment; where it is for the CPU, on the CPU."""
    from gpuinstall.environments.cuda_compat.trial import machine_beside
    from gpuinstall.environments.records import say_stranger
    from gpuinstall.verify.bench import bench_environment

    if not python:
        name_active("verify", venv, terminal)
    target = _find_interpreter(python, venv)
    folder = target.parent.parent
    with machine_beside(folder.parent, terminal, starts=True) as here:
        machine = here.machine
        terminal.machines.append(machine)
        origin = read_origin(folder, machine)
        _warn_of_other_gpus(terminal, machine, origin.gpus)
        if not python:
            say_stranger(folder, terminal)
        verdict = verify_environment(
            target,
            machine,
            for_cpu=origin.for_cpu,
            gpus=origin.gpus,
            deep=deep,
            surroundings=True,
            wheels=_locked_wheels(folder) if deep else None,
            reporter=terminal,
        )
        if verdict.status == "failed":
            if not origin.for_cpu:
                machine, verdict = _blame_machine(machine, verdict)
            return _outcome(verdict, machine, target)
        if require_gpu and not verdict.proves_gpus:
            raise _no_gpu_proven(verdict)
        outcome = _outcome(verdict, machine, target)
        if bench:
            run = bench_environment(target, machine, for_cpu=origin.for_cpu, reporter=terminal)
            outcome = _with_bench(outcome, run)
        return outcome


def _find_interpreter(python: str | None, venv: Path) -> Path:
    if python:
        return options.find_interpreter(python, hint="gpuinstall verify --venv DIR")
    target = interpreter(venv.absolute())
    if target.is_file() or (venv / "pyvenv.cfg").is_file():
        return target
    other = command_for_active("verify", venv) or "gpuinstall verify --venv DIR"
    raise UsageError(
        "environment-missing",
        f"there is no environment at {venv}",
        hint=f"gpuinstall install   # makes one\n{other}   # tries another, or with --python PATH",
    )


def _warn_of_other_gpus(terminal: Terminal, machine: Machine, gpus: Collection[int] | None) -> None:
    """Warn of the GPUs that an environment was not made for; ``gpus`` None: made for all."""
    if gpus is None:
        return
    others = [gpu for gpu in machine.gpus if gpu.index not in gpus]
    if others:
        names = ", ".join(f"GPU {gpu.index} ({gpu.label})" for gpu in others)
        terminal.warn(f"this environment was made without {names}")


def _locked_wheels(venv: Path) -> dict[str, Path]:
    """Return the wheels of an environment's lock as uv's cache holds them, unpacked."""
    from gpuinstall.base import uv
    from gpuinstall.lock.lock import read_lock
    from gpuinstall.lock.transfer import cached_wheel

    marker = read_marker(venv)
    if marker is None:
        return {}
    cache = uv.cache_folder(os.environ)
    wheels = {}
    with suppress(LockError):
        for file in read_lock(venv / marker.lock).files:
            folder = cached_wheel(file, cache)
            if folder:
                wheels[file.package] = folder
    return wheels


def _blame_machine(machine: Machine, verdict: Verdict) -> tuple[Machine, Verdict]:
    """Return a machine and a failure with why no build runs on it at all, if none does."""
    reasons = refusals(machine)
    if not reasons:
        return machine, verdict
    devices = tuple(fail_devices(verdict.devices, reasons))
    return machine.with_problems(reasons), replace(verdict, devices=devices)


def _no_gpu_proven(verdict: Verdict) -> VerificationError:
    devices = [f"{device.label}: {device.unproven or device.status}" for device in verdict.devices]
    return VerificationError(
        "no-gpu-proven",
        "no kernel ran on a GPU",
        evidence="\n".join(devices),
        hint=Advice(OURS, ("probe",), note="shows what this machine was given"),
        data=verdict.to_dict(),
    )


def _outcome(verdict: Verdict, machine: Machine, python: Path) -> Outcome:
    errors = []
    for device in verdict.devices:
        for fault in device.faults:
            of_machine = fault.where == "machine"
            errors.append(
                {
                    "code": machine.refusing[0].code if of_machine else fault.code,
                    "message": f"{device.label}: {fault.message}",
                    "hint": str(fault.fixes[0]) if fault.fixes else None,
                }
            )
    exit_code = 0
    if verdict.status == "failed":
        error = MachineError if verdict.refused else VerificationError
        exit_code = error.exit_code
    return Outcome(
        verdict.to_dict(),
        lambda screen: _show_verdict(screen, verdict, python),
        exit_code=exit_code,
        errors=tuple(errors),
    )


def _show_verdict(terminal: Terminal, verdict: Verdict, python: Path) -> None:
    terminal.field("Environment", f"{tested_line(verdict.environment)} · {python}")
    unproven = []
    for device in verdict.devices:
        _show_device(terminal, device)
        for fault in device.faults:
            _show_fault(terminal, fault)
        if device.status == "unproven":
            unproven.append(device.label)
    if unproven:
        names = ", ".join(unproven)
        terminal.warn(f"unproven: {names}; run gpuinstall verify when they are available")


def tested_line(environment: VerifiedEnvironment) -> str:
    """Return ``torch 2.15.0+cu132 · Python 3.12``."""
    torch = f"torch {environment.torch}" if environment.torch else "torch cannot be imported"
    return f"{torch} · Python {environment.python}"


def _show_device(terminal: Terminal, device: Device) -> None:
    status = terminal.style(device.status, STYLES[device.status])
    name = "" if device.label == device.name else f"{device.name}: "
    terminal.field(device.label, f"{name}{status}{_detail(device)}")
    for check in device.checks:
        message = check.message or ""
        if terminal.verbose:
            line = f"  {check.name:<22} {check.status:<8} {check.seconds:7.3f} s  {message}"
            terminal.line(line.rstrip())
        elif message and _is_notable(check):
            terminal.line(f"  {check.name:<16} {message}")


def _is_notable(check: CheckResult) -> bool:
    """Whether a check that did not fail has something to tell."""
    if check.name in PROGRAM_CHECKS and check.status == "skipped":
        return True
    return check.name in NOTABLE_CHECKS and check.status != "failed"


def _detail(device: Device) -> str:
    if device.status == "unproven":
        return f": {device.unproven}"
    statuses = Counter(check.status for check in device.checks)
    if device.status == "failed":
        return f" in {statuses['failed']} of {number_of(len(device.checks), 'check')}"
    skipped = f", {statuses['skipped']} skipped" if statuses["skipped"] else ""
    seconds = sum(check.seconds for check in device.checks)
    return f", {number_of(statuses['passed'], 'check')}{skipped}, {seconds:.1f} s"


def _show_fault(terminal: Terminal, fault: Finding) -> None:
    mark = f"   [{fault.id}]" if fault.id else ""
    terminal.line(f"  {fault.message}{mark}")
    if fault.why:
        terminal.line(f"    why   {fault.why}")
    label = "do"
    for fix in fault.fixes[:3]:
        command = str(fix).removeprefix("or ").replace("\n", "\n" + " " * 10)
        terminal.line(f"    {label}    {command}")
        label = "or"


def _with_bench(outcome: Outcome, run: Bench) -> Outcome:
    def show(terminal: Terminal) -> None:
        outcome.write(terminal)
        _show_bench(terminal, run)

    return outcome._replace(data={**outcome.data, "bench": run.to_dict()}, show=show)


def _show_bench(terminal: Terminal, bench: Bench) -> None:
    for device in bench.devices:
        terminal.line()
        terminal.field("Measured", f"{device.name}, torch {bench.torch}")
        for row in device.measurements:
            terminal.line(f"  {row.name:<24} {row.value:>10.4g} {row.unit}")
        for name, reason in device.left_out.items():
            terminal.line(f"  {name:<24} left out: {reason}")
