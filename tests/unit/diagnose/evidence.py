"""Evidence in which nothing is wrong but what a test puts in."""

from pathlib import Path

from gpuinstall.base.machine import Machine
from gpuinstall.diagnose.evidence import (
    DoctorEvidence,
    EnvironmentContents,
    ProjectFolder,
)
from gpuinstall.diagnose.examination import run_checks
from gpuinstall.environments.packages import InstalledPackage
from tests.frozen import frozen_catalog

NOWHERE = Path("absent")


def holding(*packages, **parts):
    """An environment of which nothing is known but the names and versions of its packages."""
    return EnvironmentContents(
        tuple(InstalledPackage(name, version, NOWHERE) for name, version in packages),
        **parts,
    )


def doctor_evidence(machine=None, torch=None, **parts):
    """A machine, an environment of torch alone or with ``contents``, a shell and a project."""
    evidence = {
        "contents": holding(("torch", torch)) if torch else EnvironmentContents(),
        "project": ProjectFolder(),
        "catalog": frozen_catalog(),
        "venv": NOWHERE,
        **parts,
    }
    return DoctorEvidence(
        machine or Machine("linux", "x86_64", "glibc", "2.36"), **evidence
    )


def found(machine=None, torch=None, **parts):
    """Make every check."""
    return list(run_checks(doctor_evidence(machine, torch, **parts)))
