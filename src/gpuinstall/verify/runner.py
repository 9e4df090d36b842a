"""The proof, from outside: inspect the environment, run one child per device side by side, read their reports."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.base.environment_paths import environment_of
from gpuinstall.base.finding import CheckResult
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.shell import quoted
from gpuinstall.base.text import some
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import CPU
from gpuinstall.catalog import load_catalog
from gpuinstall.environments.environment import Origin, read_origin
from gpuinstall.environments.packages import read_packages, recorded_digest
from gpuinstall.machine.vendors import VENDORS, vendor_of
from gpuinstall.verify.cover import program_packages
from gpuinstall.verify.devices import (
    CPU_TARGET,
    DeviceTarget,
    all_gpus_target,
    device_targets,
)
from gpuinstall.verify.diagnosis import (
    NOT_AS_INSTALLED,
    ProofContext,
    check_results,
    diagnose,
    wrong_build,
)
from gpuinstall.verify.interpreter import inspect_interpreter, interference
from gpuinstall.verify.kernel_run import (
    INTERPRETING,
    KernelReport,
    KernelRun,
)
from gpuinstall.verify.verdict import Device, Verdict, VerifiedEnvironment

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from gpuinstall.base.finding import Finding
    from gpuinstall.base.machine import Machine
    from gpuinstall.verify.interpreter import FoundTorch, Interpreter

SILENT = Reporter()

PROGRAMS_AT_ONCE = 4
"""How many programs are tried side by side at most: each loads a torch of its own, which takes gigabytes of memory."""


class EnvironmentTrial(Value):
    """An environment that is put to the proof, and what it is tried on."""

    interpreter: Interpreter
    proof: ProofContext
    targets: tuple[DeviceTarget, ...]
    run: KernelRun
    reporter: Reporter

    @property
    def is_for_cpu(self) -> bool:
        """Whether the CPU is what it is tried on."""
        return self.targets == (CPU_TARGET,)


def verify_environment(
    python: Path,
    machine: Machine,
    origin: Origin | None = None,
    *,
    deep: bool = False,
    surroundings: bool = False,
    reporter: Reporter = SILENT,
) -> Verdict:
    """Run kernels in the environment of an interpreter, on the GPUs of a machine or on the CPU.

    Args:
        python: The interpreter.
        machine: This machine.
        origin: What the environment was made for; None: what its marker says.
        deep: Whether to run further checks, and to compare the files with the lists of their installations.
        surroundings: Whether it is a fault, not a warning, that a program started in this folder would import another torch.
        reporter: What is told of the progress.

    Raises:
        UsageError: if ``python`` is no interpreter.
    """
    if origin is None:
        origin = read_origin(environment_of(python), machine)
    work = "deep" if deep else "quick"
    trial = _prepare(python, machine, origin, reporter, work=work)
    if _leaves_idle(trial):
        devices = [wrong_build(target, trial.proof) for target in trial.targets]
        return _verdict(trial, devices)
    devices, reports = _prove_torch(trial, trial.targets)
    programs = program_packages(map(Path, trial.proof.torch.path))
    devices = prove_programs(devices, trial, programs)
    checks: list[CheckResult] = []
    if deep:
        devices = _with_all_gpus(devices, trial)
        checks += _file_checks(trial)
    if origin.for_cpu and machine.gpus:
        names = ", ".join(f"GPU {gpu.index} ({gpu.label})" for gpu in machine.gpus)
        message = f"the environment was made for the CPU, as requested, and does not use {names}"
        reporter.warn(message)
    # The proof is isolated; a user's programs are not.
    disturbing = interference(trial.interpreter)
    if disturbing and surroundings:
        checks.append(_surroundings_check(disturbing, trial.proof))
    elif disturbing:
        reporter.warn(disturbing.message)
    devices = [device.with_checks(checks) for device in devices]
    return _verdict(trial, devices, reports)


def verify_programs(
    programs: Collection[str],
    python: Path,
    machine: Machine,
    origin: Origin,
    reporter: Reporter,
) -> Verdict:
    """Run the checks of some modules alone, in an environment whose torch was proven before.

    Args:
        programs: Their modules.
        python: The interpreter.
        machine: This machine.
        origin: What the environment was made for.
        reporter: What is told of the progress.
    """
    trial = _prepare(python, machine, origin, reporter)
    reporter.wait(f"testing {', '.join(programs)}")
    devices = [target.tested(unproven=target.unproven) for target in trial.targets]
    devices = prove_programs(devices, trial, programs)
    return _verdict(trial, devices)


def measure(
    python: Path, machine: Machine, origin: Origin, reporter: Reporter
) -> tuple[Device, ...]:
    """Return how fast an environment is on each device: the message of a check is a number with its unit.

    Args:
        python: The interpreter.
        machine: This machine.
        origin: What the environment was made for.
        reporter: What is told of the progress.
    """
    trial = _prepare(python, machine, origin, reporter, work="bench")
    measured = []
    for target in trial.targets:
        # One after the other: they share the bus and the processor.
        measured += _prove_torch(trial, [target])[0]
    return tuple(measured)


def _prepare(
    python: Path,
    machine: Machine,
    origin: Origin,
    reporter: Reporter,
    *,
    work: str = "quick",
) -> EnvironmentTrial:
    interpreter = inspect_interpreter(python)
    torch = interpreter.tested
    proof = ProofContext(machine, python, torch)
    targets: tuple[DeviceTarget, ...] = (CPU_TARGET,)
    if not (origin.for_cpu or _is_for_cpu(proof)):
        targets = device_targets(
            machine, kind=torch.kind, gpus=origin.gpus, environ=os.environ
        )
    interpreting = [name for name in INTERPRETING if os.environ.get(name)]
    if interpreting:
        names = " and ".join(interpreting)
        reporter.warn(
            f"tested without {names}: with it, nothing is compiled for the GPU"
        )
    run = KernelRun(python, interpreter.flags, work)
    return EnvironmentTrial(interpreter, proof, targets, run, reporter)


def _prove_torch(
    trial: EnvironmentTrial, targets: Sequence[DeviceTarget]
) -> tuple[list[Device], Sequence[KernelReport]]:
    """Run the checks of torch itself on some devices."""
    proof = trial.proof
    names = [target.name for target in targets if target.unproven is None]
    if names:
        trial.reporter.wait(f"running kernels on {', '.join(dict.fromkeys(names))}")
    reports = trial.run.run_all(targets)
    if any(report.architectures is None for report in reports):
        # An import that fails for want of a file names another cause, or none.
        proof = replace(proof, altered=tuple(altered_files(proof.torch, {"torch"})))
    devices = []
    for target, report in zip(targets, reports, strict=True):
        devices.append(diagnose(target, report, proof))
    return devices, reports


def _is_for_cpu(proof: ProofContext) -> bool:
    """Whether the CPU is all there is to try: with its build if there is no GPU, or none that this build serves."""
    machine = proof.machine
    for gpu in machine.gpus:
        vendor = VENDORS.get(vendor_of(gpu, machine) or "")
        if vendor and vendor.kind == CPU.kind:
            return False
    if machine.os == "macos":
        return True
    return proof.torch.backend in (None, CPU) and not (machine.gpus or machine.refusing)


def _leaves_idle(trial: EnvironmentTrial) -> bool:
    """Whether torch is for no GPU of this machine, but for the CPU or for other makers' GPUs."""
    if trial.is_for_cpu:
        return False
    kinds = {VENDORS[target.vendor].kind for target in trial.targets if target.vendor}
    if not kinds:
        # If the driver hides the GPUs, torch may be for those of any maker.
        kinds = {vendor.kind for vendor in VENDORS.values()} - {CPU.kind}
    kind = trial.proof.torch.kind
    if kind is None or kind in kinds:
        return False
    machine = trial.proof.machine
    return bool(machine.gpus or machine.refusing)


def _verdict(
    trial: EnvironmentTrial,
    devices: Sequence[Device],
    reports: Sequence[KernelReport] = (),
) -> Verdict:
    """Return what became of the devices.

    Args:
        trial: The environment, and what it is tried on.
        devices: What its checks came to.
        reports: What the children told of torch.
    """
    torch = trial.proof.torch
    architectures = (report.architectures for report in reports)
    tested = VerifiedEnvironment(
        torch.python,
        torch.version,
        backend=torch.backend.tag if torch.backend else None,
        architectures=next(filter(None, architectures), ()),
    )
    verdict = Verdict(tested, tuple(devices))
    refusing = trial.proof.machine.refusing
    if refusing and not trial.is_for_cpu:
        return verdict.refused_by(refusing[0])
    return verdict


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def prove_programs(
    devices: Sequence[Device],
    trial: EnvironmentTrial,
    modules: Collection[str],
) -> list[Device]:
    """Add the check of each module on every device that has not failed, each in a process of its own.

    For a device that could not be tried, they are imported without it.

    Args:
        devices: What torch itself came to, in the order of the targets.
        trial: The environment, and what it is tried on.
        modules: The modules of the programs.
    """
    tried: dict[int, DeviceTarget] = {}
    for number, device in enumerate(devices):
        # Beside a torch that does not work, every program would fail by it.
        if device.status == "failed":
            continue
        target = trial.targets[number]
        if device.unproven:
            target = target.untried(device.unproven)
        tried[number] = target
    proven = list(devices)
    runs = [replace(trial.run, program=module) for module in modules]
    # Two processors for each child, of those that a job or a container was given.
    at_once = min(PROGRAMS_AT_ONCE, _processors() // (2 * len(tried) or 1))

    def run_program(program: KernelRun) -> list[KernelReport]:
        return program.run_all(list(tried.values()))

    with ThreadPoolExecutor(max(1, at_once)) as pool:
        results = list(pool.map(run_program, runs))
    for program, reports in zip(runs, results, strict=True):
        if at_once > 1 and any(report.unproven for report in reports):
            # Two of ours may be one too many for a GPU: in exclusive mode, or with little memory free.
            reports[:] = run_program(program)
        for (number, target), report in zip(tried.items(), reports, strict=True):
            checks = check_results(target, report, trial.proof)
            proven[number] = proven[number].with_checks(checks)
    return proven


def _with_all_gpus(devices: list[Device], trial: EnvironmentTrial) -> list[Device]:
    """Add what only all GPUs together can show."""
    target = all_gpus_target(trial.targets)
    if target is None:
        return devices
    # One child for all: its outcome is that of each of them.
    (report,) = trial.run.run_all([target])
    checks = [
        check
        for check in check_results(target, report, trial.proof)
        if check.name != "import"
    ]
    return [
        device.with_checks(checks if own.on_gpu else ())
        for device, own in zip(devices, trial.targets, strict=True)
    ]


def _file_checks(trial: EnvironmentTrial) -> Iterator[CheckResult]:
    """Yield a failed check if the files of torch, or of its family, are not those that were installed."""
    trial.reporter.wait(
        "comparing the files of torch with the lists of their installations"
    )
    altered = list(altered_files(trial.proof.torch, load_catalog().family))
    if altered:
        message = f"{NOT_AS_INSTALLED}: {some(altered)}"
        yield trial.proof.failed("files", message, "torch-damaged")


def altered_files(torch: FoundTorch, names: Collection[str]) -> Iterator[str]:
    """Yield the files of packages beside a torch that are gone, or not what was installed, by their paths.

    Args:
        torch: The torch, whose folder of packages is looked at.
        names: The packages.
    """
    if torch.torch is None:
        return
    site = Path(torch.torch).parent.parent
    for package in read_packages([site]):
        if package.name not in names:
            continue
        # What was written at the installation has none.
        digests = {file.path: file.digest for file in package.files if file.digest}
        for path, digest in digests.items():
            found = ""
            with suppress(OSError):
                found = recorded_digest(site / path)
            if found != digest:
                yield path


def _surroundings_check(disturbing: Finding, proof: ProofContext) -> CheckResult:
    """Return a failed check for what stands in the way of programs that start in this folder."""
    path = disturbing.evidence or ""
    return proof.failed(
        "surroundings",
        disturbing.message,
        disturbing.code,
        path=quoted(path),
        moved=quoted(f"{path}.away"),
    )
