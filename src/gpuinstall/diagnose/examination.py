"""Examine the machine, an environment, and the project."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from gpuinstall.base.advice import (
    apply_to_install,
    environment_advice,
    make_command,
)
from gpuinstall.base.environment_paths import interpreter
from gpuinstall.base.errors import (
    GpuInstallError,
    InstallationError,
    MachineError,
    UsageError,
)
from gpuinstall.base.finding import Finding, Where
from gpuinstall.base.machine import Machine
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.request import Request
from gpuinstall.base.requirement import requirement_names
from gpuinstall.base.values import replace
from gpuinstall.diagnose.checks import CHECKS
from gpuinstall.diagnose.evidence import (
    DoctorEvidence,
    DoctorFindings,
    find_environment_python,
    has_lock,
)
from gpuinstall.diagnose.predicates import (
    COMPANION_FAULTS,
    code,
    driver_floor,
    find_gpus_without_code,
    idle,
)
from gpuinstall.diagnose.reading import read_environment
from gpuinstall.environments.environment import read_origin
from gpuinstall.environments.packages import find_unmet_requirements
from gpuinstall.environments.records import (
    check_finished,
    is_recorded,
    is_start_allowed,
)
from gpuinstall.environments.stamp import Stamp
from gpuinstall.lock.file.entries import LockGate
from gpuinstall.machine.probe import preflight
from gpuinstall.machine.prober import Preflight
from gpuinstall.verify.interpreter import find_interference, inspect_interpreter
from gpuinstall.verify.runner import verify_environment
from gpuinstall.verify.verdict import Verdict

Refuse: TypeAlias = Callable[[Machine], GpuInstallError | None]
ORDER: tuple[Where, ...] = ("machine", "environment", "project")
DAMAGE = {
    "configuration-lost",
    "files-missing",
    "files-truncated",
    "no-record",
    "requirement-unmet",
}
"""Codes of problems that explain every failed check."""


class Examination(NamedTuple):
    """Result of an examination, with its findings and evidence."""

    machine: Machine
    preflight: Preflight
    evidence: DoctorEvidence
    findings: tuple[Finding, ...]
    """The findings, most urgent first."""
    verdict: Verdict | None = None
    """The verdict. None if the interpreter was not or could not be started."""
    was_started: bool = False
    """Whether the interpreter was started, now or for an earlier verdict."""
    is_last: bool = False
    """Whether the last verification is still valid and was reused."""

    @property
    def exit_code(self) -> int:
        """The exit status: 8 for the machine, 5 for the environment, or 0."""
        of_machine = tuple(one for one in self.findings if one.where == "machine")
        if replace(self.machine, problems=of_machine).fatal_problems:
            return 8
        if any(one.blocking and one.where != "machine" for one in self.findings):
            return 5
        return 0

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON document of the examination."""
        environment = {
            "venv": str(self.evidence.venv),
            "verdict": self.verdict and self.verdict.to_dict(),
        }
        return {
            "machine": self.machine.to_dict(),
            "preflight": self.preflight.to_dict(),
            "environment": environment if self.evidence.python else None,
            "findings": [
                {
                    "id": finding.id,
                    "code": finding.code,
                    "title": finding.message,
                    "why": finding.why or finding.evidence,
                    "fix": finding.fix,
                    "blocking": finding.blocking,
                }
                for finding in self.findings
            ],
        }


def examine(
    folder: Path,
    venv: Path,
    machine: Machine,
    *,
    request: Request | None,
    refuse: Refuse | None,
    torch_index: str,
    gate: LockGate | None,
    reporter: Reporter,
    named: bool,
    stamp: Stamp | None,
) -> Examination:
    """Examine this machine, an environment, and the project around it.

    The environment's Python is started only if gpuinstall created it or the user named it, because a repository may
    contain a ``.venv``.

    Args:
        folder: The project's folder.
        venv: The environment's folder.
        machine: This machine.
        request: The request of ``install``; None if it cannot be read.
        refuse: Returns the error of ``install`` on a machine, if any.
        torch_index: The base URL of torch's index.
        gate: The gate that checks the sources of lock files; None if the settings are malformed.
        reporter: Reports progress.
        named: Whether the user named the environment.
        stamp: The last verification, if still valid. If it passed, no kernels run.
    """
    reading = read_environment(venv, _machine_of(venv, machine))
    evidence = DoctorEvidence(
        reading.machine,
        venv,
        reading.markers,
        reading.packages,
        reading.torch,
        folder=folder,
        request=request or Request(),
        torch_index=torch_index,
        gate=gate,
        python=find_environment_python(venv),
        has_lock=has_lock(venv),
    )
    try:
        check_finished(venv)
    except InstallationError as error:
        proof = preflight(machine, reporter)
        interrupted = replace(error.finding, where="environment")
        problems = [*machine.problems, *proof.problems, interrupted]
        return Examination(machine, proof, evidence, by_urgency(problems))
    # These checks come first, because they may explain why an environment does not start.
    findings = [finding for check in CHECKS for finding in check(evidence)]
    findings += excluded_gpus(evidence, machine)
    is_damaged = any(one.blocking for one in (*machine.problems, *findings))
    is_last = stamp is not None and stamp.is_passed and not is_damaged
    requested = requirement_names(evidence.request.requirements)
    if is_last:
        # Since then, a module elsewhere may hide a package.
        interpreting = inspect_interpreter(interpreter(venv))
        is_last = not any(find_interference(interpreting, venv, requested))
    proof = Preflight()
    verdict = None
    failures: list[Finding] = []
    is_adopted = (
        gate is not None and is_recorded(venv) and gate.sources.policy.runs(venv)
    )
    was_started = is_last or (
        evidence.python is not None
        and is_start_allowed(venv, reporter, allow_unmanaged=named or is_adopted)
    )
    if stamp and is_last:
        verdict = Verdict.from_dict(stamp.verdict)
    else:
        proof = preflight(machine, reporter)
        if was_started:
            verdict, failures = _verify(machine, evidence, requested, reporter)
    if verdict:
        findings += requirements_unmet(evidence)
        findings += unproven_devices(verdict)
    refusals: list[Finding] = []
    # A working environment may contain a build that the catalog lacks.
    if refuse and not (verdict and verdict.status == "passed"):
        refusals += report_refusal(
            evidence.machine.add_problems(proof.problems),
            refuse,
            words=("--venv", str(venv)) if named else (),
        )
    if evidence.python and not was_started:
        findings.append(not_started(venv))
        failures += build_faults(evidence)
    if refusals:
        # lock would be refused, too.
        findings = [one for one in findings if one.fixes != (make_command("lock"),)]
    if any(one.where == "machine" for one in refusals):
        failures = []  # no other build runs here, either
    findings = merge_failures(findings, failures) + refusals
    return Examination(
        machine,
        preflight=proof,
        evidence=evidence,
        verdict=verdict,
        was_started=was_started,
        is_last=is_last,
        findings=by_urgency([*machine.problems, *proof.problems, *findings]),
    )


def report_refusal(
    machine: Machine, refuse: Refuse, words: tuple[str, ...]
) -> DoctorFindings:
    """Report why ``install`` would fail, if so.

    Args:
        machine: The machine. Its own problems are reported elsewhere.
        refuse: Returns the error of ``install`` on a machine, if any.
        words: The options that name the environment.
    """
    error = None if machine.fatal_problems else refuse(machine)
    if error is None:
        return
    finding = replace(error.finding, fixes=apply_to_install(error.fixes, *words))
    if isinstance(error, MachineError):
        yield finding
    else:
        yield replace(finding, where="project", blocking=False)


def _machine_of(venv: Path, machine: Machine) -> Machine:
    """Return the machine with only the GPUs that an environment is for."""
    indices = read_origin(venv, machine).gpus
    gpus = [gpu for gpu in machine.gpus if indices is None or gpu.index in indices]
    return replace(machine, gpus=tuple(gpus))


def build_faults(evidence: DoctorEvidence) -> DoctorFindings:
    """Report an unsuitable torch build without importing torch."""
    for predicate in (code, driver_floor, idle):
        for entry, message in predicate(evidence).causes.items():
            yield evidence.fault(
                "build-unfit",
                message,
                entry=entry,
                fixes=(evidence.install_advice(),),
            )


def excluded_gpus(evidence: DoctorEvidence, machine: Machine) -> DoctorFindings:
    """Report GPUs outside the environment that its build does not support.

    Args:
        evidence: The environment, with only the GPUs that it is for.
        machine: The machine with all GPUs.
    """
    build = evidence.torch and evidence.torch.build
    others = replace(evidence, machine=machine)
    for gpu in find_gpus_without_code(others):
        if build and gpu not in evidence.machine.gpus:
            yield evidence.fault(
                "gpu-excluded",
                f"GPU {gpu.index} ({gpu.label}, {gpu.code_name}) is not used: torch {build.name} has no code for it",
                entry=others.rules.find_no_code_cause(build.code, gpu),
                fixes=(
                    make_command(
                        "plan", note="the build that supports all GPUs, if one exists"
                    ),
                ),
                blocking=False,
            )


def not_started(venv: Path) -> Finding:
    """Return a note that an environment's Python was not started."""
    return Finding(
        "not-started",
        f"the Python of {venv} was not started, so imports, kernels, and requirements were not checked",
        why="gpuinstall did not create it, and no option selects it",
        fixes=(environment_advice(venv, "doctor"),),
        where="environment",
        blocking=False,
    )


def requirements_unmet(evidence: DoctorEvidence) -> DoctorFindings:
    """Report unmet requirements of installed packages.

    Unmet requirements of the torch family are blocking problems.
    """
    versions = {name: one.version for name, one in evidence.by_name.items()}
    for package, requirement, version in find_unmet_requirements(
        evidence.packages, versions, evidence.markers
    ):
        name = package.name
        required = f"{requirement.name}{requirement.specifier}"
        state = f"{version} is installed" if version else "it is not installed"
        fix = evidence.missing_advice(package, requirement)
        entry = None
        if requirement.name == "torch":
            # A check of the environment compares the companions.
            if name in COMPANION_FAULTS:
                continue
            fix = evidence.install_advice("torch", name, note="install both together")
        elif name == "torch":
            entry = "F102" if requirement.name.startswith("nvidia-") else "F167"
        yield evidence.fault(
            "requirement-unmet",
            f"{name} {package.version} requires {required}, but {state}",
            entry=entry,
            why="it was removed or changed after the installation",
            fixes=(fix,),
            blocking=name in evidence.catalog.family,
        )


def merge_failures(
    findings: Sequence[Finding], failures: Sequence[Finding]
) -> list[Finding]:
    """Add failed checks to findings, unless a finding explains the failure."""
    own = {one.id for one in findings if one.where == "environment" and one.id}
    causes = own.intersection(failure.id for failure in failures)
    merged = [
        replace(one, blocking=one.blocking or one.id in causes) for one in findings
    ]
    if any(one.code in DAMAGE and one.blocking for one in merged):
        return merged
    return merged + [one for one in failures if one.id not in causes]


def by_urgency(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings by urgency, without duplicates."""
    once = {(one.where, one.code, one.message): one for one in findings}
    urgent = sorted(
        once.values(), key=lambda one: (not one.blocking, ORDER.index(one.where))
    )
    return tuple(urgent)


def unproven_devices(verdict: Verdict) -> DoctorFindings:
    """Report devices on which no kernel could run."""
    for device in verdict.devices:
        if device.status == "unproven":
            yield Finding(
                "unproven",
                f"{device.label} is not verified: {device.unproven or 'no kernel ran on it'}",
                fixes=(
                    make_command(
                        "verify",
                        note="on the machine with the GPUs, while they are idle",
                    ),
                ),
                where="environment",
                blocking=False,
            )


def _verify(
    machine: Machine,
    evidence: DoctorEvidence,
    requested: Collection[str],
    reporter: Reporter,
) -> tuple[Verdict | None, list[Finding]]:
    """Verify an environment by running GPU kernels.

    Args:
        machine: This machine.
        evidence: The environment.
        requested: The requested packages.
        reporter: Reports progress.

    Returns:
        The verdict, or None if the Python does not start, and the failed checks except faults of the machine.
    """
    try:
        verdict = verify_environment(
            interpreter(evidence.venv),
            machine,
            requested=requested,
            reporter=reporter,
        )
    except UsageError as error:
        fix = evidence.install_advice(recreate=True)
        return None, [
            replace(error.finding, id="F168", fixes=(fix,), where="environment")
        ]
    more = environment_advice(evidence.venv, "verify", "--verbose")
    failures = []
    for device in verdict.devices:
        for fault in device.faults:
            # Omit the suggestion to run doctor, which is already running.
            fixes = tuple(
                fix
                for fix in fault.fixes
                if "doctor" not in getattr(fix, "arguments", ())
            )
            if fault.where != "machine":
                failures.append(
                    replace(
                        fault,
                        message=f"{device.name}: {fault.message}",
                        fixes=fixes or (more,),
                    )
                )
    return verdict, failures
