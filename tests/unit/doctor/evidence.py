"""Evidence in which nothing is wrong but what a test puts in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuinstall.doctor.check import DoctorEvidence
from gpuinstall.doctor.contents import InstalledPackages
from gpuinstall.doctor.examination import look
from gpuinstall.doctor.project import ProjectFolder
from gpuinstall.doctor.shell import read_shell
from gpuinstall.machine import Machine
from tests.frozen import frozen_catalog

if TYPE_CHECKING:
    from gpuinstall.finding import Finding


def found(machine: Machine | None = None, torch: str | None = None, **parts: Any) -> list[Finding]:
    """Make every check of a machine, an environment of torch alone or with ``installed``, a shell and a project."""
    evidence = {
        "installed": InstalledPackages((("torch", torch),) if torch else ()),
        "shell": read_shell({}),
        "project": ProjectFolder({}),
        "catalog": frozen_catalog(),
        **parts,
    }
    return list(look(DoctorEvidence(machine or Machine("linux", "x86_64", "glibc", "2.36"), **evidence)))
