"""What is wrong with a machine before any build is looked at: the GPUs that cannot be planned for, and refusals."""

from __future__ import annotations

from collections.abc import Sequence

from gpuinstall.base.errors import (
    GpuInstallError,
    InstallationError,
    MachineError,
    NoBuildError,
    UsageError,
)
from gpuinstall.base.finding import Finding, Reason
from gpuinstall.base.machine import Gpu, Machine
from gpuinstall.base.values import replace
from gpuinstall.base.versions import CPU
from gpuinstall.machine.protocol import Rules
from gpuinstall.machine.vendors import is_planned_for, vendor_of
from gpuinstall.plan.context import PlanContext
from gpuinstall.plan.values import Rejected, RejectedBuild, Run

_LEAVE_OUT = (
    "Leave out --gpus to use all of them; --backend cpu without it is the CPU build"
)


def requested_gpus(
    machine: Machine,
    names: tuple[str | int, ...] | None,
    rules: Rules,
) -> tuple[Gpu, ...]:
    """Return the maker's GPUs that are requested, in the order of their indices.

    Args:
        machine: The machine that has them.
        names: Indices, or (the beginning of) the UUID of a card or of a MIG slice; None: all GPUs.
        rules: The maker's.

    Raises:
        UsageError: There is no name, or one that no GPU has.
    """
    gpus = [gpu for gpu in machine.gpus if vendor_of(gpu, machine) == rules.vendor]
    gpus.sort(key=lambda gpu: gpu.index)
    if names is None:
        return tuple(gpus)
    if gpus and not names:
        message = "--gpus selects none of this machine's GPUs"
        raise UsageError("no-such-gpu", message, hint=_LEAVE_OUT)
    requested = set()
    for name in names:
        indices = {gpu.index for gpu in gpus if _is_called(gpu, str(name))}
        if not indices:
            labels = [f"{gpu.index} ({gpu.label})" for gpu in gpus]
            present = ", ".join(labels) or f"no {rules.name} GPU"
            message = f"this machine has no GPU {str(name)!r}"
            raise UsageError("no-such-gpu", message, hint=f"It has {present}")
        requested |= indices
    return tuple(gpu for gpu in gpus if gpu.index in requested)


def _is_called(gpu: Gpu, name: str) -> bool:
    if name.isdecimal():
        return gpu.index == int(name)
    uuids = [device.uuid for device in gpu.mig_devices]
    if gpu.uuid:
        uuids.append(gpu.uuid)
    return any(uuid.lower().startswith(name.lower()) for uuid in uuids)


def with_usable_gpus(context: PlanContext) -> PlanContext:
    """Return the context without the GPUs that a fault, their age or their driver leaves out."""
    left_out: dict[int, Finding] = {}
    # Backwards: of several problems of a GPU the first counts.
    for problem in reversed(context.machine.problems):
        if problem.blocking:
            left_out.update(dict.fromkeys(problem.gpus, problem))
    faults = dict(left_out)
    for gpu in context.machine.gpus:
        left_out.pop(gpu.index, None)
    # A GPU that has fallen off the bus is not listed any more. With --gpus it was refused by its name, or not asked for.
    if context.demand.request.gpus is not None:
        left_out = {}
    usable = []
    for gpu in context.gpus:
        fault = faults.get(gpu.index) or context.rules.gpu_fault(gpu)
        if fault:
            left_out[gpu.index] = fault
        else:
            usable.append(gpu)
    return replace(
        context,
        gpus=tuple(usable),
        left_out=dict(sorted(left_out.items())),
    )


def refused(
    context: PlanContext,
    reasons: tuple[Reason, ...],
    fix: str | None = None,
    *,
    error_class: type[GpuInstallError] = NoBuildError,
    rejected: tuple[RejectedBuild, ...] = (),
) -> Rejected:
    """Return the refusal of a request for the GPUs of a context.

    Args:
        context: What was chosen for.
        reasons: Why it is refused, the decisive one first.
        fix: What the user can do, as text.
        error_class: What is raised.
        rejected: The builds, each with its reason.
    """
    # That no source answers is not the fault of the request, which may be served tomorrow: exit 4 and not 3.
    if error_class is NoBuildError and reasons[0].code == "unreachable":
        error_class = InstallationError
    indices = {gpu.index for gpu in context.gpus}.union(context.left_out)
    return Rejected(
        error_class,
        reasons,
        fix=fix or None,
        gpus=tuple(map(Run, sorted(indices))),
        rejected=rejected,
    )


def machine_fault(context: PlanContext) -> Rejected | None:
    """Refuse a system that no wheel fits, and for its GPUs a machine with a problem that blocks all of it."""
    if context.machine.libc == "musl":
        why = Reason("musl", "torch has no wheels for musl; they require glibc")
        fix = "Use a distribution or a container with glibc (Debian, Ubuntu, Fedora, …)"
        return refused(context, (why,), fix)
    blocking = context.machine.blocking
    if not blocking or context.demand.backends == {CPU}:
        return None
    return _not_repaired(context, blocking)


def _not_repaired(
    context: PlanContext,
    faults: Sequence[Finding],
    *others: Reason,
) -> Rejected:
    """Refuse a machine with faults, by the first fix that one of them has."""
    fixes = [fault.fix for fault in faults if fault.fix]
    reasons = [fault.reason for fault in faults]
    return refused(
        context,
        (*reasons, *others),
        fixes[0] if fixes else None,
        error_class=MachineError,
    )


def gpu_fault(context: PlanContext, usable: PlanContext) -> Rejected | None:
    """Refuse a machine whose GPUs cannot be used; one that no build was ever made for does not count as usable.

    Args:
        context: What was requested, with all its GPUs.
        usable: The same without those that are left out.
    """
    rules = context.rules
    fault = rules.platform_fault()
    if fault:
        return refused(context, (fault.reason,), fault.fix)
    if not (usable.gpus or usable.left_out):
        return _backend_of_another_maker(context)
    driver_fault = rules.driver_fault(context.gpus)
    has_usable = any(map(rules.ever_served, usable.gpus))
    if driver_fault is None and (has_usable or not usable.left_out):
        return None
    unsupported = {}
    for gpu in context.gpus:
        if not rules.ever_served(gpu):
            unsupported[gpu.index] = never_made(gpu, context)
    distinct = tuple(dict.fromkeys(unsupported.values()))
    if context.gpus and len(unsupported) == len(context.gpus):
        return refused(usable, distinct, "\n".join(rules.own_builds()) or None)
    if usable.gpus and driver_fault:
        return _not_repaired(context, [driver_fault])
    # The fix is that of the newest GPU that can be repaired; for the others no build was made.
    ranks = {gpu.index: rules.rank(gpu) for gpu in context.gpus}
    repairable = [index for index in usable.left_out if index not in unsupported]
    repairable.sort(key=lambda index: ranks.get(index, ()), reverse=True)
    faults = [usable.left_out[index] for index in repairable]
    return _not_repaired(usable, faults, *distinct)


def _backend_of_another_maker(context: PlanContext) -> Rejected | None:
    """Refuse the build of one maker for a machine whose GPUs are another's; one without any may stand for a third."""
    machine = context.machine
    present = [gpu for gpu in machine.gpus if is_planned_for(gpu, machine)]
    tags = sorted(backend.tag for backend in context.demand.backends)
    if not present or not tags:
        return None
    message = (
        f"{' and '.join(tags)} is for {context.rules.name} GPUs, "
        f"and this machine has {present[0].label}"
    )
    fix = (
        "Leave out --backend for the build that runs here, "
        "or describe the target machine: --machine, --gpu"
    )
    return refused(context, (Reason("backend-of-another-maker", message),), fix)


def never_made(gpu: Gpu, context: PlanContext) -> Reason:
    """Return that no build was ever made for a GPU on this platform."""
    name = gpu.label
    architecture = context.rules.architecture(gpu)
    if architecture:
        name += f" ({architecture})"
    platform = f"{context.machine.os} {context.machine.arch}"
    return Reason(
        "no-build-ever", f"no build in the catalogue supports {name} on {platform}"
    )
