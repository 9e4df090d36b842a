"""What the checks of the doctor are given, all of it read before."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuinstall.doctor.contents import EnvironmentContents
from gpuinstall.doctor.repair import RepairSource
from gpuinstall.failures.problems import FixContext

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.catalog import Catalog
    from gpuinstall.doctor.contents import InstalledPackages
    from gpuinstall.doctor.project import ProjectFolder
    from gpuinstall.doctor.shell import ShellVariables
    from gpuinstall.machine import Machine


@dataclass(frozen=True)
class DoctorEvidence:
    """The machine, the packages of its environment, the variables of the shell, the project around it.

    ``machine`` has the GPUs that the environment was made for; ``words`` name the environment in a fix.
    """

    machine: Machine
    installed: InstalledPackages
    shell: ShellVariables
    project: ProjectFolder
    catalog: Catalog
    contents: EnvironmentContents = field(default_factory=EnvironmentContents)
    repair: RepairSource = field(default_factory=RepairSource)
    words: Mapping[str, str] = field(default_factory=dict)

    @property
    def torch(self) -> str:
        """The version of the environment's torch; empty where it is not there."""
        return self.installed.version("torch")

    @property
    def context(self) -> FixContext:
        """Where a fix would be applied."""
        return FixContext.of_machine(self.machine).knowing(**self.words)
