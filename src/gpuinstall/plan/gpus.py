"""What is wrong with a machine before any build is looked at: its GPUs to plan for, those left out, and refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.backend import CPU
from gpuinstall.errors import UsageError
from gpuinstall.plan.values import Reason, Refusal, Rejection, Run
from gpuinstall.vendors import is_planned_for, vendor_of

if TYPE_CHECKING:
    from gpuinstall.machine import Gpu, Machine
    from gpuinstall.plan.context import PlanContext
    from gpuinstall.vendors.protocol import Rules

NO_BUILD_FITS = 3
NO_SOURCE_ANSWERS = 4
ONLY_REPAIR_HELPS = 8
_LEAVE_OUT = "Leave out --gpus to use all of them; --backend cpu without it is the CPU build"


class LeftOut(NamedTuple):
    """A GPU that is not planned for, why, and what would repair it; ``gpu`` is its index."""

    gpu: int
    reason: Reason
    fix: str | None


def asked_gpus(machine: Machine, wanted: tuple[str | int, ...] | None, rules: Rules) -> tuple[Gpu, ...]:
    """Return the maker's GPUs that are asked for (None: all), in the order of their indices.

    They are named by index, or by (the beginning of) the UUID of a card or of a MIG slice; raise UsageError for
    no name, or one that no GPU has.
    """
    gpus = sorted((gpu for gpu in machine.gpus if vendor_of(gpu, machine) == rules.vendor), key=lambda gpu: gpu.index)
    if wanted is None:
        return tuple(gpus)
    if gpus and not wanted:
        raise UsageError("no-such-gpu", "--gpus selects none of this machine's GPUs", hint=_LEAVE_OUT)
    names = [str(name) for name in wanted]
    for name in names:
        if not any(_is_called(gpu, name) for gpu in gpus):
            here = ", ".join(f"{gpu.index} ({gpu.label})" for gpu in gpus) or f"no {rules.name} GPU"
            raise UsageError("no-such-gpu", f"this machine has no GPU {name!r}", hint=f"It has {here}")
    return tuple(gpu for gpu in gpus if any(_is_called(gpu, name) for name in names))


def sort_out(context: PlanContext) -> tuple[tuple[Gpu, ...], tuple[LeftOut, ...]]:
    """Separate the GPUs that can be planned for from those that a fault, their age or their driver leaves out."""
    out = {gpu.index: reason for gpu in context.gpus if (reason := _left_out(gpu, context))}
    present = {gpu.index for gpu in context.machine.gpus}
    absent = {
        index: LeftOut(index, Reason(problem.code, problem.message), problem.fix)
        for problem in context.machine.problems
        if problem.blocking and context.demand.gpus is None
        for index in problem.gpus
        if index not in present
    }
    usable = tuple(gpu for gpu in context.gpus if gpu.index not in out)
    return usable, tuple(sorted((out | absent).values()))


def _left_out(gpu: Gpu, context: PlanContext) -> LeftOut | None:
    blocking = (problem for problem in context.machine.problems if problem.blocking)
    if problem := next((problem for problem in blocking if gpu.index in problem.gpus), None):
        return LeftOut(gpu.index, Reason(problem.code, problem.message), problem.fix)
    fault = context.rules.gpu_fault(gpu)
    return LeftOut(gpu.index, fault.reason, fault.fix) if fault else None


def refused(
    context: PlanContext,
    exit_code: int,
    reasons: tuple[Reason, ...],
    fix: str | None,
    *,
    left_out: tuple[LeftOut, ...] = (),
    rejected: tuple[Rejection, ...] = (),
) -> Refusal:
    """Refuse, for the reasons given."""
    indices = sorted({*(gpu.index for gpu in context.gpus), *(out.gpu for out in left_out)})
    return Refusal(
        gpus=tuple(Run(index, None, "none") for index in indices),
        reasons=reasons,
        rejected=rejected,
        exit_code=exit_code,
        fix=fix or None,
    )


def machine_fault(context: PlanContext) -> Refusal | None:
    """Refuse a system that no wheel fits, and for its GPUs a machine with a problem that blocks all of it."""
    if context.machine.libc == "musl":
        why = Reason("musl", "torch has no wheels for musl; they require glibc")
        other = "Use a distribution or a container with glibc (Debian, Ubuntu, Fedora, …)"
        return refused(context, NO_BUILD_FITS, (why,), other)
    blocking = context.machine.blocking
    if not blocking or context.demand.backends == {CPU}:
        return None
    reasons = tuple(Reason(problem.code, problem.message) for problem in blocking)
    fix = next((problem.fix for problem in blocking if problem.fix), None)
    return refused(context, ONLY_REPAIR_HELPS, reasons, fix)


def gpu_fault(context: PlanContext, usable: tuple[Gpu, ...], left_out: tuple[LeftOut, ...]) -> Refusal | None:
    """Refuse a machine whose GPUs cannot be used; one that no build was ever made for does not count as usable."""
    rules = context.rules
    if fault := rules.platform_fault():
        return refused(context, NO_BUILD_FITS, (fault.reason,), fault.fix)
    if not (usable or left_out):
        return _of_others(context) if context.demand.backends else None
    no_driver = rules.driver_fault(context.gpus)
    if no_driver is None and not (left_out and not any(rules.ever_served(gpu) for gpu in usable)):
        return None
    never = {gpu.index: never_made(gpu, context) for gpu in context.gpus if not rules.ever_served(gpu)}
    if context.gpus and len(never) == len(context.gpus):
        return refused(context, NO_BUILD_FITS, tuple(dict.fromkeys(never.values())), None, left_out=left_out)
    if usable and no_driver:
        return refused(context, ONLY_REPAIR_HELPS, (no_driver.reason,), no_driver.fix)
    # The fix is that of the newest GPU that can be repaired; for the others no build was made.
    ranks = {gpu.index: rules.rank(gpu) for gpu in context.gpus}
    repairable = [out for out in left_out if out.gpu not in never]
    repairable.sort(key=lambda out: ranks.get(out.gpu, ()), reverse=True)
    fix = next((out.fix for out in repairable if out.fix), None)
    reasons = (*(out.reason for out in repairable), *dict.fromkeys(never.values()))
    return refused(context, ONLY_REPAIR_HELPS, reasons, fix, left_out=left_out)


def _of_others(context: PlanContext) -> Refusal | None:
    """Refuse the build of one maker for a machine whose GPUs are another's; one without any may stand for a third."""
    others = [gpu for gpu in context.machine.gpus if is_planned_for(gpu, context.machine)]
    if not others:
        return None
    backends, here = " and ".join(sorted(backend.tag for backend in context.demand.backends)), others[0].label
    message = f"{backends} is for {context.rules.name} GPUs, and this machine has {here}"
    fix = "Leave out --backend for the build that runs here, or describe the target machine: --machine, --gpu"
    return refused(context, NO_BUILD_FITS, (Reason("backend-of-another-maker", message),), fix)


def never_made(gpu: Gpu, context: PlanContext) -> Reason:
    """Say that nobody ever made a build for a GPU on this platform."""
    architecture = context.rules.architecture(gpu)
    chip = f" ({architecture})" if architecture else ""
    platform = f"{context.machine.os} {context.machine.arch}"
    return Reason("no-build-ever", f"no build in the catalogue supports {gpu.label}{chip} on {platform}")


def _is_called(gpu: Gpu, name: str) -> bool:
    if name.isdecimal():
        return gpu.index == int(name)
    uuids = [gpu.uuid, *(mig.uuid for mig in gpu.mig_devices)]
    return any(uuid is not None and uuid.lower().startswith(name.lower()) for uuid in uuids)
