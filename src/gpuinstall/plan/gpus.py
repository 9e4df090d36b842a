"""The GPUs of a machine: those to plan for, and those left out with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.errors import UsageError
from gpuinstall.plan.driver import ignored_by_driver
from gpuinstall.plan.values import Reason

if TYPE_CHECKING:
    from gpuinstall.machine import Gpu, Machine, Problem
    from gpuinstall.plan.case import PlanContext

_NVIDIA = "10de:"
_LEAVE_OUT = "leave --gpus out for all of them; without it, --backend cpu is the CPU build"


class LeftOut(NamedTuple):
    """A GPU that is not planned for, why, and what would mend it; ``gpu`` is its index."""

    gpu: int
    reason: Reason
    fix: str | None


def asked_gpus(machine: Machine, asked: tuple[str | int, ...] | None) -> tuple[Gpu, ...]:
    """Return the NVIDIA GPUs that are asked for (None: all), in the order of their indices.

    They are named by index, or by (the beginning of) the UUID of a card or of a MIG slice; raise UsageError for
    no name, or one that no GPU has.
    """
    gpus = sorted((gpu for gpu in machine.gpus if _is_nvidia(gpu)), key=lambda gpu: gpu.index)
    if asked is None:
        return tuple(gpus)
    if gpus and not asked:
        raise UsageError("no-such-gpu", "none of this machine's GPUs is asked for", hint=_LEAVE_OUT)
    names = [str(name) for name in asked]
    for name in names:
        if not any(_is_called(gpu, name) for gpu in gpus):
            here = ", ".join(f"{gpu.index} ({gpu.label})" for gpu in gpus) or "no NVIDIA GPU"
            raise UsageError("no-such-gpu", f"this machine has no GPU {name!r}", hint=f"it has {here}")
    return tuple(gpu for gpu in gpus if any(_is_called(gpu, name) for name in names))


def foreign_gpus(machine: Machine) -> tuple[Gpu, ...]:
    """Return the GPUs of other makers."""
    return tuple(gpu for gpu in machine.gpus if not _is_nvidia(gpu))


def sort_out(case: PlanContext) -> tuple[tuple[Gpu, ...], tuple[LeftOut, ...]]:
    """Separate the GPUs that can be planned for from those that a fault, their age or their driver leaves out."""
    out = {gpu.index: found for gpu in case.gpus if (found := _left_out(gpu, case))}
    present = {gpu.index for gpu in case.machine.gpus}
    absent = {
        index: LeftOut(index, Reason(problem.code, problem.message), problem.fix)
        for problem in case.machine.problems
        if problem.blocking and case.demand.gpus is None
        for index in problem.gpus
        if index not in present
    }
    usable = tuple(gpu for gpu in case.gpus if gpu.index not in out)
    return usable, tuple(sorted((out | absent).values()))


def _left_out(gpu: Gpu, case: PlanContext) -> LeftOut | None:
    problem = _problem_of(gpu, case.machine.problems)
    if problem:
        return LeftOut(gpu.index, Reason(problem.code, problem.message), problem.fix)
    if gpu.compute_capability is None:
        message = f"the compute capability of {gpu.label} is not known: its driver tells it"
        return LeftOut(gpu.index, Reason("unknown-gpu", message), "install a driver that drives it, then try again")
    ignored = ignored_by_driver(gpu, case)
    return LeftOut(gpu.index, ignored.reason, ignored.fix) if ignored else None


def _problem_of(gpu: Gpu, problems: tuple[Problem, ...]) -> Problem | None:
    return next((problem for problem in problems if problem.blocking and gpu.index in problem.gpus), None)


def _is_nvidia(gpu: Gpu) -> bool:
    return gpu.pci_id is None or gpu.pci_id.lower().startswith(_NVIDIA)


def _is_called(gpu: Gpu, name: str) -> bool:
    if name.isdecimal():
        return gpu.index == int(name)
    uuids = [gpu.uuid, *(mig.uuid for mig in gpu.mig_devices)]
    return any(uuid is not None and uuid.lower().startswith(name.lower()) for uuid in uuids)
