"""Evidence in which nothing is wrong but what a test puts in."""

from pathlib import Path

from gpuinstall.base.environment_paths import packages_folders
from gpuinstall.base.machine import Machine
from gpuinstall.diagnose.checks import CHECKS
from gpuinstall.diagnose.evidence import DoctorEvidence
from gpuinstall.environments.packages import InstalledPackage, read_packages
from gpuinstall.sources import OFFICIAL
from tests.frozen import frozen_catalog

NOWHERE = Path("absent")


def installed_in(venv):
    """The packages of an environment."""
    return read_packages(packages_folders(venv))


def holding(*packages):
    """Packages of which nothing is known but their names and versions."""
    return tuple(InstalledPackage(name, version, NOWHERE) for name, version in packages)


def doctor_evidence(machine=None, torch=None, **parts):
    """A machine, an environment of torch alone or with ``packages``, a shell and a project."""
    evidence = {
        "packages": holding(("torch", torch)) if torch else (),
        "catalog": frozen_catalog(),
        "venv": NOWHERE,
        "torch_index": OFFICIAL,
        **parts,
    }
    return DoctorEvidence(
        machine or Machine("linux", "x86_64", "glibc", "2.36"), **evidence
    )


def found(machine=None, torch=None, **parts):
    """Make every check."""
    evidence = doctor_evidence(machine, torch, **parts)
    return [finding for check in CHECKS for finding in check(evidence)]
