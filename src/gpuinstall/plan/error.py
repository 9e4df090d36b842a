"""The error that a refused plan is, with what the machine's own problem adds to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.errors import GpuInstallError, InstallationError, MachineError, NoBuildError

if TYPE_CHECKING:
    from gpuinstall.machine import Machine
    from gpuinstall.plan.values import Plan


def error_of(plan: Plan, machine: Machine) -> GpuInstallError | None:
    """Make the error of a refusal; None where a build was chosen."""
    if plan.choice is not None:
        return None
    kinds: dict[int, type[GpuInstallError]] = {kind.exit_code: kind for kind in (InstallationError, MachineError)}
    kind = kinds.get(plan.exit_code, NoBuildError)
    reason = plan.reasons[0]
    problem = next((problem for problem in machine.problems if problem.code == reason.code), None)
    return kind(
        reason.code,
        reason.message,
        hint=plan.fix,
        why=problem.why if problem else None,
        seen=problem.seen if problem else None,
        id=problem.id if problem else None,
    )
