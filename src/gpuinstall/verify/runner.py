"""The proof, from outside: look at the environment, run one child per device side by side, read what they say."""

from __future__ import annotations

import json
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.backend import CPU
from gpuinstall.catalog import Build, load_catalog
from gpuinstall.environments.environment import read_marker
from gpuinstall.environments.packages import read_packages
from gpuinstall.environments.paths import environment_of, made_for
from gpuinstall.finding import CheckResult
from gpuinstall.reporter import Reporter, SilentReporter
from gpuinstall.shell import quoted
from gpuinstall.vendors import VENDORS, vendor_of
from gpuinstall.verify.cover import installed_programs, load_rows
from gpuinstall.verify.devices import (
    CPU_TARGET,
    DeviceTarget,
    all_gpus_target,
    device_targets,
    read_health,
)
from gpuinstall.verify.diagnosis import (
    ProofContext,
    build_of,
    check_results,
    confirm,
    diagnose,
    wrong_build,
)
from gpuinstall.verify.files import altered_files
from gpuinstall.verify.interpreter import FoundTorch, inspect_interpreter, interference
from gpuinstall.verify.kernel_run import KERNEL_SECONDS, KernelReport, KernelRun
from gpuinstall.verify.kernels.main import table
from gpuinstall.verify.verdict import MACHINE, Device, Verdict, VerifiedEnvironment

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from gpuinstall.finding import Finding
    from gpuinstall.machine import Machine
    from gpuinstall.vendors.prober import GpuHealth


def prove_programs(
    devices: Sequence[Device],
    targets: Sequence[DeviceTarget],
    reports: Sequence[KernelReport],
    run: KernelRun,
    proof: ProofContext,
    *,
    programs: Collection[str] | None = None,
) -> list[Device]:
    """Add the check of each program on every device where torch itself did not fail, each in a process of its own.

    ``programs`` are the modules to test, None for all that are known.

    Where a device could not be tried, its programs are imported without it.
    """
    tried = {
        number: replace(targets[number], device="none", visible=())
        if report.unproven
        else targets[number]
        for number, report in enumerate(reports)
        if not report.failed
    }
    modules = programs or installed_programs(proof.torch.path) if tried else ()
    seconds = min(run.seconds, KERNEL_SECONDS["quick"])
    # Two processors for each child.
    at_once = (os.cpu_count() or 1) // (2 * max(1, len(tried)))
    proven = list(devices)
    with ThreadPoolExecutor(max(1, at_once)) as pool:
        rows = {module: load_rows().get(module, {}) for module in modules}
        runs = [
            replace(
                run,
                program=module,
                script=json.dumps(row) if row else None,
                seconds=row.get("seconds", seconds),
            )
            for module, row in rows.items()
        ]
        everything = list(tried.values())
        ended = list(pool.map(lambda program: program.run_all(everything), runs))
    if at_once > 1:
        # Two of ours may be one too many for a GPU: in exclusive mode, or with little memory free.
        held = [any(result.unproven for result in results) for results in ended]
        tries = zip(runs, held, ended, strict=True)
        ended = [
            program.run_all(everything) if again else results for program, again, results in tries
        ]
    for results in ended:
        for (number, target), result in zip(tried.items(), results, strict=True):
            proven[number] = proven[number].with_checks(check_results(target, result, proof))
    return proven


def verify_environment(
    python: Path,
    machine: Machine,
    *,
    asked_cpu: bool = False,
    gpus: tuple[int, ...] | None = None,
    deep: bool = False,
    surroundings: bool = False,
    meant: Build | None = None,
    wheels: Mapping[str, Path] | None = None,
    seconds: float | None = None,
    programs: Collection[str] | None = None,
    reporter: Reporter | None = None,
) -> Verdict:
    """Run kernels in the environment of ``python``, on ``gpus`` (indices; None: all of ``machine``) or on the CPU.

    ``asked_cpu`` says that the environment was made for the CPU, ``meant`` which build it was made of, where that is
    known, ``wheels`` are the locked ones that lie here, which ``deep`` compares the files with.
    ``programs`` are modules that alone are to be tested, in an environment whose torch was proven before.
    With ``surroundings`` it is a fault that a program started in this folder would import another torch, else a
    warning. ``seconds`` is the time for each device.
    Raise UsageError where ``python`` is no interpreter.
    """
    reporter = reporter or SilentReporter()
    interpreter = inspect_interpreter(python)
    torch = interpreter.tested
    proof = ProofContext(machine, python, torch, ours=read_marker(python.parent.parent) is not None)
    has_gpus = bool(machine.gpus or machine.refusing)  # be they usable or not
    for_cpu = asked_cpu or _is_for_cpu(proof, has_gpus=has_gpus)
    targets = (
        (CPU_TARGET,)
        if for_cpu
        else device_targets(machine, kind=torch.kind, gpus=gpus, environ=os.environ)
    )
    # Where the driver hides the GPUs, torch may be for those of any maker.
    others = {vendor.kind for vendor in VENDORS.values()} - {CPU.kind}
    kinds = {VENDORS[target.vendor].kind for target in targets if target.vendor} or others
    if not for_cpu and has_gpus and torch.kind is not None and torch.kind not in kinds:
        devices = fail_devices([wrong_build(target, proof) for target in targets], machine.refusing)
        return Verdict(_tested(torch, ()), tuple(devices))
    work = "deep" if deep else "quick"
    flags = interpreter.flags
    venv = environment_of(python)
    if made_for(venv) != venv:
        # An environment that is being built keeps what Python compiles: each program that is tested beside torch, and
        # the user's first "import torch", start twice as fast.
        flags = tuple(flag for flag in flags if flag != "-B")
    run = KernelRun(python, flags, work, seconds or KERNEL_SECONDS[work])
    if programs:
        reporter.wait(f"testing {', '.join(programs)}")
        untested = [
            Device(target.index, target.name, unproven=target.unproven) for target in targets
        ]
        blank = [KernelReport(unproven=target.unproven) for target in targets]
        tested_programs = prove_programs(untested, targets, blank, run, proof, programs=programs)
        return Verdict(_tested(torch, blank), tuple(tested_programs))
    reports = _run_kernels(run, targets, reporter)
    imported = all(report.architectures is not None for report in reports)
    if torch.torch and not imported:
        packages = read_packages([Path(torch.torch).parent.parent])
        proof = replace(
            proof,
            missing=next((package.lost for package in packages if package.name == "torch"), ()),
        )
    devices = [
        diagnose(target, report, proof) for target, report in zip(targets, reports, strict=True)
    ]
    devices = prove_programs(devices, targets, reports, run, proof)
    if deep:
        devices = _with_files(
            _deepened(devices, targets, run, proof), proof, wheels or {}, reporter
        )
    tested = _tested(torch, reports)
    if not for_cpu:
        devices = fail_devices(devices, machine.refusing)
        devices = confirm(devices, tested.architectures, meant or build_of(proof), proof, reporter)
    if asked_cpu and machine.gpus:
        names = ", ".join(f"GPU {gpu.index} ({gpu.label})" for gpu in machine.gpus)
        message = f"the environment was made for the CPU, as requested, and does not use {names}"
        reporter.warn(message)
        devices = [
            device.with_checks([CheckResult("build", "passed", message=message)])
            for device in devices
        ]
    loaded = frozenset[str]().union(*(report.loaded for report in reports))
    if disturbing := interference(interpreter, loaded):
        if surroundings:
            path = disturbing.evidence or ""
            words = {"path": quoted(path), "moved": quoted(f"{path}.away")}
            check = proof.failed(
                "surroundings", disturbing.message, "F46", code=disturbing.code, **words
            )
            devices = [device.with_checks([check]) for device in devices]
        else:
            reporter.warn(disturbing.message)
    return Verdict(tested, tuple(devices))


def _is_for_cpu(proof: ProofContext, *, has_gpus: bool) -> bool:
    """Say whether the CPU is all there is to try: with its build where no GPU is, or none that this build serves."""
    if any(
        VENDORS[maker].kind == CPU.kind
        for gpu in proof.machine.gpus
        if (maker := vendor_of(gpu, proof.machine))
    ):
        return False
    return proof.machine.os == "macos" or (proof.torch.backend in (None, CPU) and not has_gpus)


def _run_kernels(
    run: KernelRun, targets: Sequence[DeviceTarget], reporter: Reporter
) -> Sequence[KernelReport]:
    if tried := [target.name for target in targets if target.unproven is None]:
        counted = (
            f"{count} × {name}" if count > 1 else name for name, count in Counter(tried).items()
        )
        reporter.wait(f"running kernels on {', '.join(counted)}")
    misleading = {
        name
        for target in targets
        if target.on_gpu
        for name in target.misleading
        if os.environ.get(name)
    }
    for name in sorted(misleading):
        setting = f"{name}={os.environ[name]}"
        reporter.warn(
            f"the checks ran without {setting}, which changes what programs here see or compute"
        )
    parts = Counter[str]()
    for target in targets:
        parts[target.part] += 1 + len(
            table(target.device, run.work)
        )  # each child imports torch first
    with reporter.progress("Kernels", parts, "checks") as progress:
        return run.run_all(targets, progress)


def _tested(torch: FoundTorch, reports: Sequence[KernelReport]) -> VerifiedEnvironment:
    architectures = next((report.architectures for report in reports if report.architectures), ())
    return VerifiedEnvironment(
        torch.python, torch.version, torch.backend and torch.backend.tag, architectures
    )


def _deepened(
    devices: list[Device], targets: Sequence[DeviceTarget], run: KernelRun, proof: ProofContext
) -> list[Device]:
    """Add what only all GPUs together, or NVML, can show."""
    health = read_health(targets)
    devices = [_with_health(device, health.get(device.index), proof) for device in devices]
    target = all_gpus_target(targets)
    if target is None:
        return devices
    checks = diagnose(target, run.run_all([target])[0], proof).checks
    shared = [check for check in checks if check.name != "import"]
    return [
        device.with_checks(shared if own.on_gpu else ())
        for device, own in zip(devices, targets, strict=True)
    ]


def _with_files(
    devices: list[Device], proof: ProofContext, wheels: Mapping[str, Path], reporter: Reporter
) -> list[Device]:
    """Fail every device where the files of torch, or of its family, are not those that were installed."""
    torch = proof.torch.torch
    family = load_catalog().family
    altered = (
        list(altered_files(Path(torch).parent.parent, family, wheels, reporter)) if torch else []
    )
    if not altered:
        return devices
    message = (
        f"{len(altered)} files differ from those that were installed: {', '.join(altered[:3])}"
    )
    check = proof.failed("files", message, code="torch-damaged")
    return [device.with_checks([check]) for device in devices]


def _with_health(device: Device, health: GpuHealth | None, proof: ProofContext) -> Device:
    return device.with_checks(
        proof.failed(check.name, check.message or "", check.id)
        if check.status == "failed"
        else check
        for check in (health.checks if health else ())
    )


def fail_devices(devices: Sequence[Device], refusing: Sequence[Finding]) -> list[Device]:
    """Fail every device of a machine that is refused as a whole, whatever torch says about it."""
    faults = tuple(
        CheckResult(MACHINE, "failed", 0.0, fault.message, fault.id, fault.fixes)
        for fault in refusing[:1]
    )
    return [replace(device, checks=(*faults, *device.checks)) for device in devices]
