"""The whole examination: the machine, its driver put to a small proof, the environment, the project around it."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpuinstall.doctor.environment import environment_findings, read_installed
from gpuinstall.doctor.finding import Finding, of_problem, ordered
from gpuinstall.doctor.project import lock_findings, read_project, uv_findings
from gpuinstall.doctor.shell import read_shell, shell_findings, toolkit_findings
from gpuinstall.environments.paths import interpreter
from gpuinstall.errors import UsageError
from gpuinstall.failures.problems import FixContext
from gpuinstall.learned import known_catalog
from gpuinstall.probe import read_machine
from gpuinstall.probe.preflight import preflight
from gpuinstall.verify import verify_environment
from gpuinstall.verify.origin import read_origin
from gpuinstall.verify.verdict import MACHINE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from gpuinstall.machine import Machine
    from gpuinstall.reporter import Reporter
    from gpuinstall.vendors.prober import Preflight
    from gpuinstall.verify import Verdict


@dataclass(frozen=True)
class ExaminedEnvironment:
    """An environment that was examined; ``verdict`` is None where its interpreter does not run."""

    venv: Path
    verdict: Verdict | None

    def to_dict(self) -> dict[str, Any]:
        """Write the environment as the doctor's document holds it."""
        return {"venv": str(self.venv), "verdict": self.verdict.to_dict() if self.verdict else None}


@dataclass(frozen=True)
class Examination:
    """What was examined and what was found, the first thing to fix first; ``environment`` None: there is none."""

    machine: Machine
    preflight: Preflight
    environment: ExaminedEnvironment | None
    findings: tuple[Finding, ...]

    def to_dict(self) -> dict[str, Any]:
        """Write the doctor's document."""
        return {
            "machine": self.machine.to_dict(),
            "preflight": self.preflight.to_dict(),
            "environment": self.environment.to_dict() if self.environment else None,
            "findings": [finding.to_dict() for finding in self.findings],
        }


def examine(folder: Path, venv: Path, reporter: Reporter) -> Examination:
    """Examine this machine, the environment ``venv`` if there is one, and the project in ``folder``."""
    machine = read_machine(reporter)
    proof = preflight(machine, reporter)
    environment, faults = _environment(venv, machine, reporter)
    findings = (
        *map(of_problem, (*machine.problems, *proof.problems)),
        *faults,
        *_project_findings(folder, venv, machine),
    )
    return Examination(machine, proof, environment, ordered(findings))


def _environment(
    venv: Path, machine: Machine, reporter: Reporter
) -> tuple[ExaminedEnvironment | None, tuple[Finding, ...]]:
    python = interpreter(venv)
    if not (python.exists() or (venv / "pyvenv.cfg").exists()):
        return None, ()
    installed, shell, context = read_installed(venv), read_shell(os.environ), FixContext.of_machine(machine)
    listed = (
        *environment_findings(installed, machine),
        *shell_findings(shell, context),
        *toolkit_findings(shell, installed.version("torch"), context),
    )
    try:
        verdict = _verdict(python, venv, machine, reporter)
    except UsageError as error:
        broken = Finding("environment", error.code, error.message, error.why, "gpuinstall install", blocking=True)
        return ExaminedEnvironment(venv, None), (*listed, broken)
    return ExaminedEnvironment(venv, verdict), merged(listed, tuple(_failed(verdict)))


def _verdict(python: Path, venv: Path, machine: Machine, reporter: Reporter) -> Verdict:
    origin = read_origin(venv, machine)
    return verify_environment(
        python, machine, asked_cpu=origin.for_cpu, gpus=origin.gpus, surroundings=True, reporter=reporter
    )


def _failed(verdict: Verdict) -> Iterator[Finding]:
    """Read the checks that failed as findings."""
    for device in verdict.devices:
        for fault in device.faults:
            if MACHINE in fault.names:
                continue  # a finding already
            title = f"{device.name}: {', '.join(fault.names)}: {fault.message}"
            fix = "\n".join(fault.fix) or "gpuinstall verify --verbose"
            yield Finding("environment", "kernel-failed", title, fault.title, fix, fault.cause, blocking=True)


def merged(listed: Iterable[Finding], failed: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Let what the packages and variables show stand for the failed checks that it explains."""
    causes = {finding.id for finding in failed if finding.id}
    kept = tuple(replace(finding, blocking=finding.blocking or finding.id in causes) for finding in listed)
    explained = {finding.id for finding in kept}
    return (*kept, *(finding for finding in failed if finding.id is None or finding.id not in explained))


def _project_findings(folder: Path, venv: Path, machine: Machine) -> Iterator[Finding]:
    project = read_project(folder)
    yield from uv_findings(project, read_installed(venv).version("torch"), FixContext.of_machine(machine))
    if project.locks:
        yield from lock_findings(project, machine, known_catalog())
