"""What the checks of the doctor are given, all of it read before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuinstall.failures.problems import FixContext

if TYPE_CHECKING:
    from gpuinstall.catalog import Catalog
    from gpuinstall.doctor.installed import InstalledPackages
    from gpuinstall.doctor.project import ProjectFolder
    from gpuinstall.doctor.shell import ShellVariables
    from gpuinstall.machine import Machine


@dataclass(frozen=True)
class DoctorEvidence:
    """The machine, the packages of its environment, the variables of the shell, the project around it."""

    machine: Machine
    installed: InstalledPackages
    shell: ShellVariables
    project: ProjectFolder
    catalog: Catalog

    @property
    def torch(self) -> str:
        """The version of the environment's torch; empty where it is not there."""
        return self.installed.version("torch")

    @property
    def context(self) -> FixContext:
        """Where a fix would be applied."""
        return FixContext.of_machine(self.machine)
