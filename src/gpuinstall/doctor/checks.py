"""Everything that the doctor looks for: a check is a function of the evidence, and a name in this list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.doctor import damage, environment, project, shell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuinstall.doctor.evidence import DoctorEvidence
    from gpuinstall.doctor.finding import Finding

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


def look(evidence: DoctorEvidence) -> tuple[Finding, ...]:
    """Make every check. Pure, but for the locks, which are read."""
    return tuple(finding for check in CHECKS for finding in check(evidence))
