"""What a check of the doctor is given, all of it read before, and the order of what is found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuinstall.doctor.contents import EnvironmentContents
from gpuinstall.doctor.repair import RepairSource
from gpuinstall.failures.problems import FixContext

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuinstall.catalog import Catalog
    from gpuinstall.doctor.contents import InstalledPackages
    from gpuinstall.doctor.project import ProjectFolder
    from gpuinstall.doctor.shell import ShellVariables
    from gpuinstall.finding import Finding, Where
    from gpuinstall.machine import Machine

ORDER: tuple[Where, ...] = ("machine", "environment", "project")


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


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Put first what has to be fixed first: what blocks before what does not, the machine before what it carries."""
    once = {(finding.where, finding.code, finding.message): finding for finding in findings}
    return tuple(sorted(once.values(), key=lambda finding: (not finding.blocking, ORDER.index(finding.where))))


def exit_code(findings: Iterable[Finding], machine: Machine) -> int:
    """8 where nothing of the machine can be used, 5 where only the environment is at fault, else 0."""
    if machine.refusing:
        return 8
    return 5 if any(finding.blocking and finding.where != "machine" for finding in findings) else 0
