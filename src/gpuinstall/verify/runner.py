"""Verification of an environment by one child process per device."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpuinstall.base.environment_paths import environment_folder
from gpuinstall.base.finding import CheckResult
from gpuinstall.base.machine import Machine
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.shell import quote_word
from gpuinstall.base.text import join_names
from gpuinstall.base.values import replace
from gpuinstall.base.versions import CPU
from gpuinstall.catalog import load_catalog
from gpuinstall.environments.environment import Origin, read_origin
from gpuinstall.machine.vendors import VENDORS, find_rules
from gpuinstall.verify.devices import (
    CPU_TARGET,
    DeviceTarget,
    create_all_gpus_target,
    select_targets,
)
from gpuinstall.verify.diagnosis import (
    NOT_AS_INSTALLED,
    Verification,
    diagnose,
    diagnose_checks,
    report_wrong_build,
)
from gpuinstall.verify.files import (
    find_damaged_packages,
    find_modified_files,
    find_program_packages,
)
from gpuinstall.verify.interpreter import find_interference, inspect_interpreter
from gpuinstall.verify.kernel_run import (
    INTERPRETING,
    KernelReport,
    KernelRun,
    count_checks,
)
from gpuinstall.verify.verdict import Device, Verdict, VerifiedEnvironment

SILENT = Reporter()

PROGRAMS_AT_ONCE = 4
"""The maximum number of programs to test in parallel."""


def verify_environment(
    python: Path,
    machine: Machine,
    origin: Origin | None = None,
    *,
    deep: bool = False,
    requested: Collection[str] | None = None,
    programs: Collection[str] = (),
    reporter: Reporter = SILENT,
) -> Verdict:
    """Run kernels in an environment, on the machine's GPUs or the CPU.

    Args:
        python: The interpreter.
        machine: This machine.
        origin: The target of the environment; None reads it from the environment's
            marker.
        deep: Whether to run further checks, and compare files with their recorded
            hashes.
        requested: The packages that other modules must not hide, besides torch and the
            locked packages. None: print a warning if any is hidden.
        programs: The modules to test if torch was verified before.
        reporter: Receives the progress.

    Raises:
        UsageError: ``python`` does not run.
    """
    if origin is None:
        origin = read_origin(environment_folder(python), machine)
    work = "deep" if deep else "quick"
    verification = _prepare(python, machine, origin, reporter, work)
    targets = verification.targets
    if programs:
        reporter.wait(f"testing {', '.join(programs)}")
        devices = [target.result(unproven=target.unproven) for target in targets]
        devices = check_programs(devices, verification, programs)
        return _create_verdict(verification, devices)
    if _leaves_gpus_idle(verification):
        devices = [report_wrong_build(target, verification) for target in targets]
        return _create_verdict(verification, devices)
    devices, reports = _check_torch(verification, targets)
    installed = find_program_packages(map(Path, verification.torch.path))
    devices = check_programs(devices, verification, installed)
    checks: list[CheckResult] = []
    if deep:
        devices = _add_all_gpu_checks(devices, verification)
        checks += _check_files(verification)
    if origin.for_cpu and machine.gpus:
        names = ", ".join(f"GPU {gpu.index} ({gpu.label})" for gpu in machine.gpus)
        message = f"the environment was created for the CPU, as requested, and does not use {names}"
        reporter.warn(message)
    # The verification runs in isolated mode, but the user's programs do not.
    interfering = _find_interference(verification, requested or ())
    if requested is None:
        for check in interfering:
            reporter.warn(check.message or "")
    else:
        checks += interfering
    devices = [device.with_checks(checks) for device in devices]
    return _create_verdict(verification, devices, reports)


def _find_interference(
    verification: Verification, requested: Collection[str]
) -> list[CheckResult]:
    """Return one failed check for all modules that hide packages, if any."""
    venv = environment_folder(verification.run.python)
    checks = []
    for finding in find_interference(verification.interpreter, venv, requested):
        path = finding.evidence or ""
        check = verification.failed(
            "surroundings",
            finding.message,
            finding.code,
            path=quote_word(path),
            moved=quote_word(f"{path}.away"),
        )
        checks.append(check)
    messages = "; ".join(check.message or "" for check in checks)
    fixes = [fix for check in checks for fix in check.fixes]
    return [
        replace(check, message=messages, fixes=tuple(fixes)) for check in checks[:1]
    ]


def measure(
    python: Path,
    machine: Machine,
    origin: Origin,
    reporter: Reporter,
) -> tuple[Device, ...]:
    """Measure the speed of an environment, and return devices with results.

    Args:
        python: The interpreter.
        machine: This machine.
        origin: The target of the environment.
        reporter: Receives the progress.
    """
    verification = _prepare(python, machine, origin, reporter, "bench")
    measured = []
    for target in verification.targets:
        # Run sequentially, because devices share the bus and the processor.
        measured += _check_torch(verification, [target])[0]
    return tuple(measured)


def _prepare(
    python: Path,
    machine: Machine,
    origin: Origin,
    reporter: Reporter,
    work: str,
) -> Verification:
    interpreter = inspect_interpreter(python)
    interpreting = [name for name in INTERPRETING if os.environ.get(name)]
    if interpreting:
        names = " and ".join(interpreting)
        reporter.warn(
            f"the checks ignore {names}, because it disables compilation for the GPU"
        )
    run = KernelRun(python, interpreter.flags, work)
    verification = Verification(machine, interpreter, run, reporter)
    if origin.for_cpu or _is_for_cpu(verification):
        return verification
    targets = select_targets(machine, kind=verification.torch.kind, gpus=origin.gpus)
    return replace(verification, targets=targets)


def _check_torch(
    verification: Verification, targets: Sequence[DeviceTarget]
) -> tuple[list[Device], Sequence[KernelReport]]:
    """Run the checks of torch on some devices."""
    names = [target.name for target in targets if target.unproven is None]
    text = f"running kernels on {', '.join(dict.fromkeys(names))}"
    if names:
        verification.reporter.wait(text)
    counter = count_checks(text, verification.reporter)
    reports = verification.run.run_all(targets, counter)
    torch = verification.torch.torch
    if any(one.status == "failed" for report in reports for one in report.records):
        verification = replace(verification, damaged=find_damaged_packages(torch))
    is_imported = all(report.architectures is not None for report in reports)
    if not (is_imported or verification.damaged):
        # The import error does not mention the modified file that caused it.
        altered = tuple(find_modified_files(torch, {"torch"}))
        verification = replace(verification, altered=altered)
    devices = []
    for target, report in zip(targets, reports, strict=True):
        devices.append(diagnose(target, report, verification))
    return devices, reports


def _is_for_cpu(verification: Verification) -> bool:
    """Return whether an environment can be tested only on the CPU."""
    machine = verification.machine
    for gpu in machine.gpus:
        rules = find_rules(gpu, machine)
        if rules and rules.kind == CPU.kind:
            return False
    if machine.os == "macos":
        return True
    return verification.torch.backend in (None, CPU) and not (
        machine.gpus or machine.fatal_problems
    )


def _leaves_gpus_idle(verification: Verification) -> bool:
    """Return whether torch was built for other devices than the GPUs."""
    machine, targets = verification.machine, verification.targets
    if targets == (CPU_TARGET,) or not (machine.gpus or machine.fatal_problems):
        return False
    kinds = {VENDORS[target.vendor].kind for target in targets if target.vendor}
    if not kinds:
        # If the driver lists no GPU, the vendor is unknown.
        kinds = {vendor.kind for vendor in VENDORS.values()} - {CPU.kind}
    return verification.torch.kind not in {None, *kinds}


def _create_verdict(
    verification: Verification,
    devices: Sequence[Device],
    reports: Sequence[KernelReport] = (),
) -> Verdict:
    """Return the verdict for the tested devices.

    Args:
        verification: The environment and its devices.
        devices: The tested devices.
        reports: The reports of torch's checks.
    """
    torch = verification.torch
    architectures = (report.architectures for report in reports)
    tested = VerifiedEnvironment(
        torch.python,
        torch.version,
        backend=torch.backend.tag if torch.backend else None,
        architectures=next(filter(None, architectures), ()),
    )
    verdict = Verdict(tested, tuple(devices))
    refusing = verification.machine.fatal_problems
    if refusing and verification.targets != (CPU_TARGET,):
        return verdict.add_machine_fault(refusing[0])
    return verdict


def check_programs(
    devices: Sequence[Device],
    verification: Verification,
    modules: Collection[str],
) -> list[Device]:
    """Check each module on every device on which torch works.

    Each check of a module runs in its own process. If the device cannot be tested, the
    module is only imported.

    Args:
        devices: The devices with torch's checks, in the order of the targets.
        verification: The environment and its devices.
        modules: The modules of the programs.
    """
    testable: dict[int, DeviceTarget] = {}
    for number, device in enumerate(devices):
        # No program works if torch fails.
        if device.status == "failed":
            continue
        target = verification.targets[number]
        if device.unproven:
            target = target.remove_gpu(device.unproven)
        testable[number] = target
    tested = list(devices)
    runs = [replace(verification.run, program=module) for module in modules]
    # Allow two available processors per child.
    processors = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        processors = len(os.sched_getaffinity(0))
    at_once = min(PROGRAMS_AT_ONCE, processors // (2 * len(testable) or 1))

    def run_program(program: KernelRun) -> list[KernelReport]:
        return program.run_all(list(testable.values()))

    with ThreadPoolExecutor(max(1, at_once)) as pool:
        results = list(pool.map(run_program, runs))
    for program, reports in zip(runs, results, strict=True):
        if at_once > 1 and any(report.unproven for report in reports):
            # Run each program again by itself, because an exclusive or nearly full GPU may allow only one process.
            reports[:] = run_program(program)
        for (number, target), report in zip(testable.items(), reports, strict=True):
            checks = diagnose_checks(target, report, replace(verification, run=program))
            tested[number] = tested[number].with_checks(checks)
    return tested


def _add_all_gpu_checks(
    devices: list[Device], verification: Verification
) -> list[Device]:
    """Run the checks that use all GPUs together, such as peer copies."""
    target = create_all_gpus_target(verification.targets)
    if target is None:
        return devices
    # One child tests all GPUs, and its result applies to each.
    (report,) = verification.run.run_all([target])
    checks = [
        check
        for check in diagnose_checks(target, report, verification)
        if check.name != "import"
    ]
    return [
        device.with_checks(checks if own.on_gpu else ())
        for device, own in zip(devices, verification.targets, strict=True)
    ]


def _check_files(verification: Verification) -> Iterator[CheckResult]:
    """Yield a failed check if files of the torch family were modified."""
    verification.reporter.wait("comparing torch's files with their hashes")
    altered = list(find_modified_files(verification.torch.torch, load_catalog().family))
    if altered:
        message = f"{NOT_AS_INSTALLED}: {join_names(altered)}"
        yield verification.failed("files", message, "torch-damaged", package="torch")
