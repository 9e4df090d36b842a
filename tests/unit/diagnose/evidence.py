"""Evidence without problems except for those that a test adds."""

import os
from pathlib import Path

from gpuinstall.base.environment_paths import packages_folders
from gpuinstall.base.machine import Machine
from gpuinstall.base.values import replace
from gpuinstall.diagnose.checks import CHECKS
from gpuinstall.diagnose.evidence import (
    DoctorEvidence,
    find_environment_python,
    has_lock,
)
from gpuinstall.diagnose.reading import read_environment
from gpuinstall.environments.environment import read_markers
from gpuinstall.environments.packages import InstalledPackage, read_packages
from gpuinstall.sources import OFFICIAL
from tests.frozen import frozen_catalog

NOWHERE = Path("absent")


def installed_in(venv):
    """Return the packages of an environment."""
    return read_packages(packages_folders(venv))


def holding(*packages):
    """Return packages with only names and versions."""
    return tuple(InstalledPackage(name, version, NOWHERE) for name, version in packages)


def doctor_evidence(machine=None, torch=None, **parts):
    """Return evidence of a machine, an environment, a shell, and a project."""
    venv = parts.get("venv", NOWHERE)
    machine = machine or Machine("linux", "x86_64", "glibc", "2.36")
    evidence = {
        "markers": read_markers(venv, machine),
        "python": find_environment_python(venv),
        "has_lock": has_lock(venv),
        "packages": holding(("torch", torch)) if torch else (),
        "catalog": frozen_catalog(),
        "venv": NOWHERE,
        "torch_index": OFFICIAL,
        **parts,
    }
    return DoctorEvidence(machine, **evidence)


def found(machine=None, torch=None, **parts):
    """Run all checks."""
    evidence = doctor_evidence(machine, torch, **parts)
    return [finding for check in CHECKS for finding in check(evidence)]


class Site:
    """An environment on disk that a test fills."""

    def __init__(self, venv, python="3.12.4"):
        self.venv = venv
        minor = python.rpartition(".")[0]
        library = "Lib" if os.name == "nt" else f"lib/python{minor}"
        self.folder = venv / library / "site-packages"
        self.folder.mkdir(parents=True)
        (venv / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion_info = {python}\n")

    def add(self, name, version, *requires):
        """Add a package with one file and its RECORD."""
        module = f"{name}/__init__.py"
        info = f"{name}-{version}.dist-info"
        demands = "".join(f"Requires-Dist: {each}\n" for each in requires)
        texts = {
            module: "x = 1\n",
            f"{info}/RECORD": f"{module},sha256=x,6\n{info}/RECORD,,\n",
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{demands}\ntext",
        }
        for path, text in texts.items():
            (self.folder / path).parent.mkdir(exist_ok=True)
            (self.folder / path).write_text(text, newline="\n")

    @property
    def evidence(self):
        """Return the environment's evidence for ``doctor``."""
        evidence = doctor_evidence(venv=self.venv, packages=installed_in(self.venv))
        torch = read_environment(self.venv, evidence.machine).torch
        return replace(evidence, torch=torch)

    def findings(self):
        """Return the findings of ``doctor``."""
        return [finding for check in CHECKS for finding in check(self.evidence)]
