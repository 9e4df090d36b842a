"""The whole examination: the machine, its driver put to a small proof, the environment, the project around it."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpuinstall.advice import quoted
from gpuinstall.doctor import damage, environment, project, shell
from gpuinstall.doctor.check import DoctorEvidence, ordered
from gpuinstall.doctor.contents import read_contents, read_installed
from gpuinstall.doctor.project import check_records, read_project
from gpuinstall.doctor.repair import read_repair
from gpuinstall.doctor.shell import read_shell
from gpuinstall.environments.advice import advice_words
from gpuinstall.environments.environment import read_origin
from gpuinstall.environments.paths import interpreter
from gpuinstall.environments.records import say_stranger
from gpuinstall.errors import UsageError
from gpuinstall.finding import Finding
from gpuinstall.learned.store import known_catalog
from gpuinstall.probe import preflight, read_machine
from gpuinstall.verify import verify_environment
from gpuinstall.verify.verdict import MACHINE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from gpuinstall.machine import Machine
    from gpuinstall.reporter import Reporter
    from gpuinstall.sources import Sources
    from gpuinstall.vendors.prober import Preflight
    from gpuinstall.verify import Verdict

CHECKS: tuple[Callable[[DoctorEvidence], Iterator[Finding]], ...] = (
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
    shell.library_path,
    shell.python_path,
    shell.python_home,
    shell.overrides,
    shell.toolkit_differs,
    project.uv_undoes_build,
    project.stale_locks,
)


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


def examine(folder: Path, venv: Path, sources: Sources, reporter: Reporter, *, named: bool = False) -> Examination:
    """Examine this machine, the environment ``venv`` if there is one, and the project in ``folder``.

    ``sources`` are where its packages would come from again. An environment that is ``named`` has to be there.
    """
    machine = read_machine(reporter)
    proof = preflight(machine, reporter)
    is_there = interpreter(venv).exists() or (venv / "pyvenv.cfg").exists()
    seen = look(_evidence(folder, venv, machine, sources, is_there=is_there))
    examined, failed = _verified(venv, machine, reporter) if is_there else (None, ())
    findings = (*machine.problems, *proof.problems, *merged(seen, failed))
    verdict, declared = examined.verdict if examined else None, read_project(folder).requirements
    further = (*check_records(folder, venv, declared), *unproven(verdict))
    missing = [_environment_missing(venv)] if named and not is_there else []
    return Examination(machine, proof, examined, ordered((*findings, *further, *missing)))


def look(evidence: DoctorEvidence) -> tuple[Finding, ...]:
    """Make every check. Pure, but for the locks, which are read."""
    return tuple(finding for check in CHECKS for finding in check(evidence))


def merged(seen: Iterable[Finding], failed: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Let what the packages and variables show stand for the failed checks that it explains.

    Where files are damaged, that explains every check: they are made again when it is repaired.
    """
    causes = {finding.id for finding in failed if finding.id}
    kept = tuple(
        replace(finding, blocking=finding.blocking or (finding.where == "environment" and finding.id in causes))
        for finding in seen
    )
    explained = {finding.id for finding in kept if finding.where == "environment"}
    if any(finding.blocking and finding.id is None for finding in kept if finding.where == "environment"):
        return kept
    return (*kept, *(finding for finding in failed if finding.id is None or finding.id not in explained))


def unproven(verdict: Verdict | None) -> Iterator[Finding]:
    """Devices that no kernel could be tried on."""
    for device in verdict.devices if verdict else ():
        if device.status == "unproven":
            title = f"{device.label} is not proven: {device.unproven or 'no kernel ran on it'}"
            why = "no kernel has shown that this environment works there"
            fixes = ("gpuinstall verify   # where the GPUs are, and free",)
            yield Finding("unproven", title, None, why, fixes=fixes, where="environment", blocking=False)


def _evidence(folder: Path, venv: Path, machine: Machine, sources: Sources, *, is_there: bool) -> DoctorEvidence:
    """Read what the checks are given; of the GPUs those that the environment was made for."""
    catalog, contents, origin = known_catalog(), read_contents(venv), read_origin(venv, machine)
    gpus = tuple(gpu for gpu in machine.gpus if origin.gpus is None or gpu.index in origin.gpus)
    return DoctorEvidence(
        replace(machine, gpus=gpus),
        read_installed(venv),
        read_shell(os.environ if is_there else {}),
        read_project(folder),
        catalog,
        contents,
        read_repair(venv, contents, sources, catalog.family),
        advice_words(interpreter(venv)) if is_there else {},
    )


def _verified(venv: Path, machine: Machine, reporter: Reporter) -> tuple[ExaminedEnvironment, tuple[Finding, ...]]:
    """Run kernels in an environment, and read the checks that failed as findings."""
    python = interpreter(venv)
    try:
        origin = read_origin(venv, machine)
        say_stranger(venv, reporter)
        verdict = verify_environment(
            python, machine, asked_cpu=origin.for_cpu, gpus=origin.gpus, surroundings=True, reporter=reporter
        )
    except UsageError as error:
        fix = f"gpuinstall install{advice_words(python).get('into', '')}"
        broken = replace(error.finding, fixes=(fix,), where="environment")
        return ExaminedEnvironment(venv, None), (broken,)
    return ExaminedEnvironment(venv, verdict), tuple(_failed(verdict, venv))


def _failed(verdict: Verdict, venv: Path) -> Iterator[Finding]:
    """Read the checks that failed as findings."""
    for device in verdict.devices:
        for fault in device.faults:
            if MACHINE in fault.names:
                continue  # a finding already
            title = f"{device.name}: {', '.join(fault.names)}: {fault.message}"
            fixes = fault.fix or (f"gpuinstall verify --verbose --venv {quoted(venv)}",)
            yield Finding("kernel-failed", title, fault.cause, fault.title, fixes=fixes, where="environment")


def _environment_missing(venv: Path) -> Finding:
    title = f"there is no environment at {venv}"
    fix = f"gpuinstall install --venv {quoted(venv)}"
    return Finding("environment-missing", title, fixes=(fix,), where="environment")
