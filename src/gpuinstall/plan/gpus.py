"""What is wrong with a machine before any build is looked at: the GPUs that cannot be planned for, and refusals."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.backend import CPU
from gpuinstall.errors import InstallationError, MachineError, NoBuildError, UsageError
from gpuinstall.finding import Finding, Reason
from gpuinstall.plan.values import Rejected, Run
from gpuinstall.vendors import is_planned_for, vendor_of

if TYPE_CHECKING:
    from gpuinstall.catalog import Build
    from gpuinstall.errors import GpuInstallError
    from gpuinstall.finding import Rejection
    from gpuinstall.machine import Gpu, Machine
    from gpuinstall.plan.context import PlanContext
    from gpuinstall.vendors.protocol import Rules

_LEAVE_OUT = "Leave out --gpus to use all of them; --backend cpu without it is the CPU build"


def requested_gpus(
    machine: Machine, names: tuple[str | int, ...] | None, rules: Rules
) -> tuple[Gpu, ...]:
    """Return the maker's GPUs that are requested, in the order of their indices.

    Args:
        machine: The machine that has them.
        names: Indices, or (the beginning of) the UUID of a card or of a MIG slice; None: all GPUs.
        rules: The maker's.

    Raises:
        UsageError: There is no name, or one that no GPU has.
    """
    gpus = sorted(
        (gpu for gpu in machine.gpus if vendor_of(gpu, machine) == rules.vendor),
        key=lambda gpu: gpu.index,
    )
    if names is None:
        return tuple(gpus)
    if gpus and not names:
        raise UsageError(
            "no-such-gpu", "--gpus selects none of this machine's GPUs", hint=_LEAVE_OUT
        )
    for name in names:
        if not any(_is_called(gpu, str(name)) for gpu in gpus):
            here = ", ".join(f"{gpu.index} ({gpu.label})" for gpu in gpus) or f"no {rules.name} GPU"
            raise UsageError(
                "no-such-gpu", f"this machine has no GPU {str(name)!r}", hint=f"It has {here}"
            )
    return tuple(gpu for gpu in gpus if any(_is_called(gpu, str(name)) for name in names))


def _is_called(gpu: Gpu, name: str) -> bool:
    if name.isdecimal():
        return gpu.index == int(name)
    uuids = [gpu.uuid, *(mig.uuid for mig in gpu.mig_devices)]
    return any(uuid is not None and uuid.lower().startswith(name.lower()) for uuid in uuids)


def with_usable_gpus(context: PlanContext) -> PlanContext:
    """Return the context without the GPUs that a fault, their age or their driver leaves out."""
    blocking = [problem for problem in context.machine.problems if problem.blocking]
    left_out: dict[int, Finding] = {}
    for gpu in context.gpus:
        problem = next((problem for problem in blocking if gpu.index in problem.gpus), None)
        fault = problem or context.rules.gpu_fault(gpu)
        if fault:
            left_out[gpu.index] = fault
    usable = tuple(gpu for gpu in context.gpus if gpu.index not in left_out)
    if context.demand.gpus is None:
        # A GPU that has fallen off the bus is not listed any more; the last that is said of it counts.
        present = {gpu.index for gpu in context.machine.gpus}
        left_out |= {
            index: problem for problem in blocking for index in problem.gpus if index not in present
        }
    return replace(context, gpus=usable, left_out=dict(sorted(left_out.items())))


def refused(
    context: PlanContext,
    reasons: tuple[Reason, ...],
    fix: str | None = None,
    *,
    error_class: type[GpuInstallError] = NoBuildError,
    rejected: tuple[Rejection[Build], ...] = (),
) -> Rejected:
    """Return the refusal of a request for the GPUs of a context."""
    if error_class is NoBuildError and reasons[0].code == "unreachable":
        error_class = InstallationError
    indices = sorted({*(gpu.index for gpu in context.gpus), *context.left_out})
    gpus = tuple(Run(index, None, "none") for index in indices)
    return Rejected(error_class, reasons, fix or None, gpus, rejected)


def machine_fault(context: PlanContext) -> Rejected | None:
    """Refuse a system that no wheel fits, and for its GPUs a machine with a problem that blocks all of it."""
    if context.machine.libc == "musl":
        why = Reason("musl", "torch has no wheels for musl; they require glibc")
        return refused(
            context,
            (why,),
            "Use a distribution or a container with glibc (Debian, Ubuntu, Fedora, …)",
        )
    blocking = context.machine.blocking
    if not blocking or context.demand.backends == {CPU}:
        return None
    fix = next((problem.fix for problem in blocking if problem.fix), None)
    return refused(
        context, tuple(problem.reason for problem in blocking), fix, error_class=MachineError
    )


def gpu_fault(context: PlanContext, usable: PlanContext) -> Rejected | None:
    """Refuse a machine whose GPUs cannot be used; one that no build was ever made for does not count as usable.

    Args:
        context: What was requested, with all its GPUs.
        usable: The same without those that are left out.
    """
    rules = context.rules
    if fault := rules.platform_fault():
        return refused(context, (fault.reason,), fault.fix)
    if not (usable.gpus or usable.left_out):
        return _backend_of_another_maker(context) if context.demand.backends else None
    driver_fault = rules.driver_fault(context.gpus)
    is_unserved = usable.left_out and not any(rules.ever_served(gpu) for gpu in usable.gpus)
    if driver_fault is None and not is_unserved:
        return None
    unsupported = {
        gpu.index: never_made(gpu, context) for gpu in context.gpus if not rules.ever_served(gpu)
    }
    distinct = tuple(dict.fromkeys(unsupported.values()))
    if context.gpus and len(unsupported) == len(context.gpus):
        return refused(usable, distinct)
    if usable.gpus and driver_fault:
        return refused(context, (driver_fault.reason,), driver_fault.fix, error_class=MachineError)
    # The fix is that of the newest GPU that can be repaired; for the others no build was made.
    ranks = {gpu.index: rules.rank(gpu) for gpu in context.gpus}
    repairable = [index for index in usable.left_out if index not in unsupported]
    repairable.sort(key=lambda index: ranks.get(index, ()), reverse=True)
    faults = [usable.left_out[index] for index in repairable]
    fix = next((fault.fix for fault in faults if fault.fix), None)
    reasons = (*(fault.reason for fault in faults), *distinct)
    return refused(usable, reasons, fix, error_class=MachineError)


def _backend_of_another_maker(context: PlanContext) -> Rejected | None:
    """Refuse the build of one maker for a machine whose GPUs are another's; one without any may stand for a third."""
    others = [gpu for gpu in context.machine.gpus if is_planned_for(gpu, context.machine)]
    if not others:
        return None
    backends = " and ".join(sorted(backend.tag for backend in context.demand.backends))
    message = f"{backends} is for {context.rules.name} GPUs, and this machine has {others[0].label}"
    fix = "Leave out --backend for the build that runs here, or describe the target machine: --machine, --gpu"
    return refused(context, (Reason("backend-of-another-maker", message),), fix)


def never_made(gpu: Gpu, context: PlanContext) -> Reason:
    """Return that no build was ever made for a GPU on this platform."""
    architecture = context.rules.architecture(gpu)
    chip = f" ({architecture})" if architecture else ""
    platform = f"{context.machine.os} {context.machine.arch}"
    return Reason(
        "no-build-ever", f"no build in the catalogue supports {gpu.label}{chip} on {platform}"
    )
