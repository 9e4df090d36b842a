"""The proof, from outside: look at the environment, run one child per device side by side, read what they say."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.reporter import SilentReporter
from gpuinstall.verify.child import SECONDS, Child
from gpuinstall.verify.diagnosis import Evidence, device, wrong_build
from gpuinstall.verify.environment import look, missing_files
from gpuinstall.verify.health import health_checks, read_cards
from gpuinstall.verify.shadow import disturbance
from gpuinstall.verify.targets import targets, together
from gpuinstall.verify.verdict import MACHINE, Check, Device, Subject, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpuinstall.machine import Machine
    from gpuinstall.reporter import Reporter
    from gpuinstall.verify.environment import Surroundings
    from gpuinstall.verify.report import Report
    from gpuinstall.verify.targets import Target


def verify_environment(
    python: Path,
    machine: Machine,
    *,
    asked_cpu: bool = False,
    gpus: tuple[int, ...] | None = None,
    deep: bool = False,
    surroundings: bool = False,
    seconds: float | None = None,
    reporter: Reporter | None = None,
) -> Verdict:
    """Run kernels in the environment of ``python``, on ``gpus`` (indices; None: all of ``machine``) or on the CPU.

    ``asked_cpu`` says that the environment was made for the CPU. With ``surroundings`` it is a fault that a program
    started in this folder would import another torch, else a warning. ``seconds`` is the time for each device.
    Raise UsageError where ``python`` is no interpreter.
    """
    reporter = reporter or SilentReporter()
    around = look(python)
    nvidia = bool(machine.gpus or machine.refusing)
    for_cpu = asked_cpu or machine.os == "macos" or (around.tested.backend in (None, "cpu") and not nvidia)
    wanted = targets(machine, for_cpu=for_cpu, gpus=gpus, environ=os.environ)
    if around.tested.without_cuda and nvidia and not for_cpu:
        idle = [wrong_build(target, around.tested.backend) for target in wanted]
        return Verdict(_subject(around, ()), tuple(_refused(idle, machine)))
    if tried := [target.name for target in wanted if target.unproven is None]:
        reporter.wait(f"running kernels on {', '.join(tried)}")
    work = "deep" if deep else "quick"
    child = Child(python, around.flags, work, seconds or SECONDS[work])
    reports = child.run_all(wanted)
    imported = all(report.architectures is not None for report in reports)
    missing = missing_files(python, around.flags) if around.tested.torch and not imported else ()
    evidence = Evidence(machine, around.tested.cuda, missing, around.tested.narrow)
    devices = _devices(wanted, reports, evidence)
    if deep:
        devices = _deepened(devices, wanted, child, evidence)
    if not for_cpu:
        devices = _refused(devices, machine)
    if asked_cpu and machine.gpus:
        devices = _with_idle(devices, machine, reporter)
    if said := disturbance(python, around, imported=imported):
        devices = _disturbed(devices, said, surroundings, reporter)
    return Verdict(_subject(around, reports), tuple(devices))


def _devices(wanted: Sequence[Target], reports: Sequence[Report], evidence: Evidence) -> list[Device]:
    return [device(target, report, evidence) for target, report in zip(wanted, reports, strict=True)]


def _deepened(devices: list[Device], wanted: Sequence[Target], child: Child, evidence: Evidence) -> list[Device]:
    """Add what only all GPUs together, or NVML, can show."""
    cards = read_cards(len(wanted)) if any(target.device == "cuda" for target in wanted) else {}
    devices = [one.with_checks(health_checks(cards[one.index]) if one.index in cards else ()) for one in devices]
    every = together(wanted)
    if every is None:
        return devices
    checks = device(every, child.run_all([every])[0], evidence).checks
    shared = [check for check in checks if check.name != "import"]
    return [
        one.with_checks(shared if target.device == "cuda" else ()) for one, target in zip(devices, wanted, strict=True)
    ]


def _subject(around: Surroundings, reports: Sequence[Report]) -> Subject:
    found = around.tested
    architectures = next((report.architectures for report in reports if report.architectures), ())
    return Subject(found.python, found.version, found.backend, architectures)


def _refused(devices: list[Device], machine: Machine) -> list[Device]:
    """Fail every device of a machine whose driver lets no GPU work, whatever torch says about it."""
    faults = tuple(
        Check(MACHINE, "failed", message=problem.message, cause=problem.id) for problem in machine.refusing[:1]
    )
    return [replace(one, checks=(*faults, *one.checks)) for one in devices]


def _with_idle(devices: list[Device], machine: Machine, reporter: Reporter) -> list[Device]:
    names = ", ".join(f"GPU {gpu.index} ({gpu.label})" for gpu in machine.gpus)
    message = f"the environment was made for the CPU, as asked, and does not use {names}"
    reporter.warn(message)
    return [one.with_checks([Check("build", "passed", message=message)]) for one in devices]


def _disturbed(devices: list[Device], message: str, fault: bool, reporter: Reporter) -> list[Device]:
    if not fault:
        reporter.warn(message)
        return devices
    return [one.with_checks([Check("surroundings", "failed", message=message, cause="F46")]) for one in devices]
