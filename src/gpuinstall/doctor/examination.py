"""The whole examination: the machine, its driver put to a small proof, the environment, the project around it."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuinstall.advice import OURS, Advice, in_full
from gpuinstall.doctor import damage, environment, project
from gpuinstall.doctor.evidence import DoctorEvidence, read_contents, read_project, read_shell
from gpuinstall.doctor.repair import read_repair, repair_steps
from gpuinstall.environments.environment import (
    advice_words,
    read_marker,
    read_origin,
    renewing_arguments,
)
from gpuinstall.environments.paths import interpreter
from gpuinstall.environments.records import say_stranger
from gpuinstall.errors import MachineError, UsageError
from gpuinstall.finding import Finding, Where
from gpuinstall.learned.store import known_catalog
from gpuinstall.lock.lock import LOCK_IN_CONFLICT
from gpuinstall.plan import Plan, choose
from gpuinstall.probe import preflight
from gpuinstall.shell import joined
from gpuinstall.verify.runner import verify_environment
from gpuinstall.verify.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from gpuinstall.catalog import Catalog
    from gpuinstall.machine import Machine
    from gpuinstall.reporter import Reporter
    from gpuinstall.request import Request
    from gpuinstall.sources import Sources
    from gpuinstall.vendors.prober import Preflight

CHECKS: tuple[Callable[[DoctorEvidence], Iterator[Finding]], ...] = (
    damage.environment_moved,
    damage.torch_hollow,
    damage.files_lost,
    damage.made_for_elsewhere,
    damage.requirements_unmet,
    damage.leftovers,
    environment.torch_twice,
    environment.conda_build,
    environment.mkl_too_new,
    environment.cpu_build_over_cuda,
    environment.no_code,
    environment.two_cuda_majors,
    environment.companions_differ,
    environment.numpy_too_new,
    environment.cudnn_too_new,
    environment.libraries_apart,
    environment.executable_stack,
    environment.extensions_differ,
    environment.library_path,
    environment.python_path,
    environment.python_home,
    environment.overrides,
    environment.toolkit_differs,
    project.uv_undoes_build,
    project.stale_locks,
    project.locks_apart,
    project.changed_by_hand,
    project.request_unmet,
)
ORDER: tuple[Where, ...] = ("machine", "environment", "project")
DAMAGE = {"torch-damaged", "files-lost", "made-for-elsewhere", "requirement-unmet"}
"""What explains every check that fails: the files are made again when it is repaired."""


class ExaminedEnvironment(NamedTuple):
    """An environment that was examined; ``verdict`` is None where its interpreter does not run."""

    venv: Path
    verdict: Verdict | None
    packages: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Write the environment as the doctor's document holds it."""
        return {"venv": str(self.venv), "verdict": self.verdict.to_dict() if self.verdict else None}


class Examination(NamedTuple):
    """What was examined and what is wrong, the first thing to fix first; ``environment`` None: there is none.

    ``locks`` is the number of the locks that were read.
    """

    machine: Machine
    preflight: Preflight
    environment: ExaminedEnvironment | None
    findings: tuple[Finding, ...]
    locks: int = 0

    @property
    def exit_code(self) -> int:
        """8 where nothing of the machine can be used, 5 where only the environment is at fault, else 0."""
        of_machine = tuple(finding for finding in self.findings if finding.where == "machine")
        if replace(self.machine, problems=of_machine).refusing:
            return 8
        return (
            5
            if any(finding.blocking and finding.where != "machine" for finding in self.findings)
            else 0
        )

    def to_dict(self) -> dict[str, Any]:
        """Write the doctor's document."""
        return {
            "machine": self.machine.to_dict(),
            "preflight": self.preflight.to_dict(),
            "environment": self.environment.to_dict() if self.environment else None,
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
    sources: Sources,
    reporter: Reporter,
    named: bool = False,
) -> Examination:
    """Examine this machine, an environment if there is one, and the project around it.

    Args:
        folder: The project's folder.
        venv: The folder of the environment.
        machine: This machine, as it was read.
        request: What ``install`` would be asked for here; None if that cannot be read.
        sources: Where the environment's packages would come from again.
        reporter: What is told of the progress.
        named: Whether the user named the environment, which then has to be there.
    """
    proof = preflight(machine, reporter)
    is_there = interpreter(venv).exists() or (venv / "pyvenv.cfg").exists()
    evidence = read_evidence(folder, venv, machine, sources, is_there=is_there)
    findings, examined = run_checks(evidence), None
    if is_there:
        verdict, failed = _verify(venv, machine, evidence, reporter)
        examined = ExaminedEnvironment(venv, verdict, len(evidence.contents.packages))
        findings = (
            *merge_failures(findings, failed),
            *(unproven_devices(verdict) if verdict else ()),
        )
    elif named:
        message, fix = (
            f"there is no environment at {venv}",
            Advice(OURS, ("install", "--venv", str(venv))),
        )
        findings = (
            *findings,
            Finding("environment-missing", message, fixes=(fix,), where="environment"),
        )
    works = (
        examined is not None
        and examined.verdict is not None
        and examined.verdict.status == "passed"
    )
    # An environment that works may hold what no build of the catalogue is: there is nothing to install.
    if request is not None and not works:
        words = ("--venv", str(venv)) if named else ()
        findings = (
            *findings,
            *refused_request(evidence.machine, proof.problems, request, evidence.catalog, words),
        )
    findings = (
        *machine.problems,
        *proof.problems,
        *(_with_repair(finding, venv) for finding in findings),
    )
    return Examination(machine, proof, examined, by_urgency(findings), len(evidence.project.locks))


def refused_request(
    machine: Machine,
    problems: tuple[Finding, ...],
    request: Request,
    catalog: Catalog,
    words: tuple[str, ...] = (),
) -> Iterator[Finding]:
    """Yield why ``install``, with these words, would choose no build for a machine, by the very rules of its choice.

    A machine whose ``problems``, or those that it has already, refuse it as a whole is left to these.
    """
    machine = machine.with_problems(problems)
    if machine.refusing:
        return
    plan = choose(machine, request, catalog)
    if isinstance(plan, Plan):
        return
    error = plan.error(machine)
    advice = in_full(error.hint or "", (OURS, "install", *words))
    finding = replace(error.finding, fixes=tuple(advice.splitlines()))
    if isinstance(error, MachineError):
        yield finding
    else:
        yield replace(finding, where="project", blocking=False)


def read_evidence(
    folder: Path, venv: Path, machine: Machine, sources: Sources, *, is_there: bool
) -> DoctorEvidence:
    """Read what the checks are given; of the GPUs those that the environment was made for."""
    catalog, contents, origin = known_catalog(), read_contents(venv), read_origin(venv, machine)
    gpus = tuple(gpu for gpu in machine.gpus if origin.gpus is None or gpu.index in origin.gpus)
    marker = read_marker(venv)
    evidence = DoctorEvidence(
        replace(machine, gpus=gpus),
        read_shell(os.environ if is_there else {}, marker.backend if marker else None),
        read_project(folder),
        catalog,
        venv,
        contents,
        read_repair(venv, contents.version("torch"), sources, catalog.family),
        advice_words(interpreter(venv)) if is_there else {},
        renewing_arguments(venv),
    )
    if not (evidence.carried and "into" in evidence.words):
        return evidence
    into = f"{evidence.words['into']} {joined(evidence.carried)}"
    return replace(evidence, words={**evidence.words, "into": into})


def run_checks(evidence: DoctorEvidence) -> tuple[Finding, ...]:
    """Make every check."""
    return tuple(finding for check in CHECKS for finding in check(evidence))


def merge_failures(findings: Iterable[Finding], failed: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Let what the packages and variables show stand for the failed checks that it explains."""
    causes = {finding.id for finding in failed if finding.id}
    kept = tuple(
        replace(
            finding,
            blocking=finding.blocking or (finding.where == "environment" and finding.id in causes),
        )
        for finding in findings
    )
    if any(finding.code in DAMAGE for finding in kept):
        return kept
    explained = {finding.id for finding in kept if finding.where == "environment"}
    return (
        *kept,
        *(finding for finding in failed if finding.id is None or finding.id not in explained),
    )


def by_urgency(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Put first what has to be fixed first: what blocks before what does not, the machine before what it carries."""
    once = {(finding.where, finding.code, finding.message): finding for finding in findings}

    def urgency(finding: Finding) -> tuple[bool, bool, int]:
        # Until a lock's conflict is resolved, no advice to install anything can be followed.
        comes_first = finding.code == LOCK_IN_CONFLICT or (
            finding.blocking and finding.where == "machine"
        )
        return not comes_first, not finding.blocking, ORDER.index(finding.where)

    return tuple(sorted(once.values(), key=urgency))


def unproven_devices(verdict: Verdict) -> Iterator[Finding]:
    """Devices that no kernel could be tried on."""
    for device in verdict.devices:
        if device.status == "unproven":
            message = f"{device.label} is not proven: {device.unproven or 'no kernel ran on it'}"
            why = "no kernel has run there in this environment"
            fixes = ("gpuinstall verify   # where the GPUs are, and idle",)
            yield Finding(
                "unproven", message, None, why, fixes=fixes, where="environment", blocking=False
            )


def _with_repair(finding: Finding, venv: Path) -> Finding:
    """Advise first what we can repair ourselves: uv's commands are said where a uv is on PATH."""
    if all(step.program == OURS for step in repair_steps([finding], venv)):
        return finding
    fixes = (
        (str(fix).startswith("uv pip ") and Advice.parse(str(fix))) or fix for fix in finding.fixes
    )
    return replace(finding, fixes=(Advice(OURS, ("doctor", "--fix", "--venv", str(venv))), *fixes))


def _verify(
    venv: Path, machine: Machine, evidence: DoctorEvidence, reporter: Reporter
) -> tuple[Verdict | None, tuple[Finding, ...]]:
    """Run kernels in an environment; give the checks that failed as findings, but for what is the machine's fault."""
    origin = read_origin(venv, machine)
    say_stranger(venv, reporter)
    try:
        verdict = verify_environment(
            interpreter(venv),
            machine,
            asked_cpu=origin.for_cpu,
            gpus=origin.gpus,
            surroundings=True,
            reporter=reporter,
        )
    except UsageError as error:
        return None, (replace(error.finding, fixes=(evidence.install(),), where="environment"),)
    more = (Advice(OURS, ("verify", "--verbose", "--venv", str(venv))),)
    return verdict, tuple(
        replace(fault, message=f"{device.name}: {fault.message}", fixes=fault.fixes or more)
        for device in verdict.devices
        for fault in device.faults
        if fault.where != "machine"
    )
