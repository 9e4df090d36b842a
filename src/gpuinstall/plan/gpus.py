"""Select the GPUs to plan for, and refuse machines with blocking problems."""

from __future__ import annotations

from collections.abc import Sequence

from gpuinstall.base.advice import Hint, make_change
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
from gpuinstall.machine.vendors import can_select_builds, find_vendor
from gpuinstall.plan.context import PlanContext
from gpuinstall.plan.values import GpuSupport, Rejected, RejectedBuild

NO_BUILD_EVER = "no-build-ever"
"""Reason code for a GPU that no build in the catalog supports."""


def find_requested_gpus(
    machine: Machine,
    names: tuple[str | int, ...] | None,
    rules: Rules,
) -> tuple[Gpu, ...]:
    """Return the requested GPUs of a vendor, ordered by index.

    Args:
        machine: The machine with the GPUs.
        names: GPU indices, or prefixes of GPU or MIG device UUIDs; None for all GPUs.
        rules: The selection rules of the GPU vendor.

    Raises:
        UsageError: An index or UUID matches no GPU, or no GPU is selected.
    """
    gpus = [gpu for gpu in machine.gpus if find_vendor(gpu, machine) == rules.vendor]
    gpus.sort(key=lambda gpu: gpu.index)
    if names is None:
        return tuple(gpus)
    typed = ("--gpus", ",".join(map(str, names)))
    every = make_change(note="uses all GPUs", without=typed)
    if gpus and not names:
        message = "--gpus selects none of this machine's GPUs"
        cpu = make_change(
            "--backend", "cpu", note="selects the CPU build", without=typed
        )
        raise UsageError("no-such-gpu", message, hint=(every, cpu))
    requested = set()
    for name in names:
        indices = {gpu.index for gpu in gpus if _has_index_or_uuid(gpu, str(name))}
        if not indices:
            labels = [f"{gpu.index} ({gpu.label})" for gpu in gpus]
            hint = f"Select from {', '.join(labels)}" if labels else every
            message = f"this machine has no {rules.name} GPU {str(name)!r}"
            raise UsageError("no-such-gpu", message, hint=hint)
        requested |= indices
    return tuple(gpu for gpu in gpus if gpu.index in requested)


def _has_index_or_uuid(gpu: Gpu, name: str) -> bool:
    if name.isdecimal():
        return gpu.index == int(name)
    uuids = [device.uuid for device in gpu.mig_devices]
    if gpu.uuid:
        uuids.append(gpu.uuid)
    return any(uuid.lower().startswith(name.lower()) for uuid in uuids)


def exclude_unusable_gpus(context: PlanContext) -> PlanContext:
    """Exclude GPUs with blocking problems and GPUs that the driver ignores."""
    machine = context.machine
    faults: dict[int, Finding] = {}
    # Iterate in reverse order to keep the first problem of each GPU.
    for problem in reversed(machine.problems):
        if problem.blocking:
            faults |= dict.fromkeys(problem.gpus, problem)
    excluded: dict[int, Finding] = {}
    # The driver no longer lists a GPU that fell off the bus. With --gpus, such a GPU is refused or omitted.
    if context.demand.request.gpus is None:
        listed = {gpu.index for gpu in machine.gpus}
        excluded = {index: faults[index] for index in faults.keys() - listed}
    usable = []
    for gpu in context.gpus:
        fault = faults.get(gpu.index) or context.rules.find_gpu_fault(gpu)
        if fault:
            excluded[gpu.index] = fault
        else:
            usable.append(gpu)
    return replace(
        context, gpus=tuple(usable), excluded_gpus=dict(sorted(excluded.items()))
    )


def create_refusal(
    context: PlanContext,
    reasons: tuple[Reason, ...],
    *fixes: Hint,
    changes: tuple[Hint, ...] = (),
    error_class: type[GpuInstallError] = NoBuildError,
    rejected: tuple[RejectedBuild, ...] = (),
) -> Rejected:
    """Create the refusal of a request.

    Args:
        context: The request and its GPUs.
        reasons: The reasons for the refusal, most important first.
        fixes: The changes of the machine that make a build selectable, best first.
        changes: The changes of the request that do.
        error_class: The exception class for the refusal.
        rejected: The rejected builds with their reasons.
    """
    # If all sources are unreachable, the request is not at fault: exit with 4 instead of 3.
    if error_class is NoBuildError and reasons[0].code == "unreachable":
        error_class = InstallationError
    indices = {gpu.index for gpu in context.gpus}.union(context.excluded_gpus)
    return Rejected(
        error_class,
        reasons,
        fixes=fixes,
        changes=changes,
        gpus=tuple(map(GpuSupport, sorted(indices))),
        rejected=rejected,
    )


def find_machine_fault(context: PlanContext) -> Rejected | None:
    """Refuse a machine that has no wheels or has a blocking problem."""
    if context.machine.libc == "musl":
        why = Reason("musl", "torch has no wheels for musl; they require glibc")
        fix = "Use a distribution or a container with glibc (Debian, Ubuntu, Fedora, …)"
        return create_refusal(context, (why,), fix)
    blocking = context.machine.blocking
    if not blocking or context.demand.backends == {CPU}:
        return None
    return _refuse_faulty_machine(context, blocking)


def _refuse_faulty_machine(
    context: PlanContext,
    faults: Sequence[Finding],
    *others: Reason,
) -> Rejected:
    """Refuse a faulty machine, and suggest the first available fix."""
    fixes = next((fault.fixes for fault in faults if fault.fixes), ())
    reasons = [fault.reason for fault in faults]
    return create_refusal(
        context,
        (*reasons, *others),
        *fixes,
        error_class=MachineError,
    )


def find_gpu_fault(context: PlanContext, usable: PlanContext) -> Rejected | None:
    """Refuse a machine without a usable GPU.

    A GPU that no build has ever supported is not usable.

    Args:
        context: The request and all GPUs of the machine.
        usable: The same context without excluded GPUs.
    """
    rules = context.rules
    fault = rules.find_platform_fault()
    if fault:
        return create_refusal(context, (fault.reason,), *fault.fixes)
    if not (usable.gpus or usable.excluded_gpus):
        return _find_vendor_mismatch(context)
    driver_fault = rules.find_driver_fault(context.gpus)
    has_usable = any(map(rules.is_ever_supported, usable.gpus))
    if driver_fault is None and (has_usable or not usable.excluded_gpus):
        return None
    unsupported = {
        gpu.index: explain_unsupported_gpu(gpu, context)
        for gpu in context.gpus
        if not rules.is_ever_supported(gpu)
    }
    distinct = tuple(dict.fromkeys(unsupported.values()))
    if context.gpus and len(unsupported) == len(context.gpus):
        return create_refusal(usable, distinct, *rules.list_install_commands())
    if usable.gpus and driver_fault:
        return _refuse_faulty_machine(context, [driver_fault])
    # Suggest a fix for the most capable GPU that can be repaired.
    ranks = {gpu.index: rules.rank(gpu) for gpu in context.gpus}
    repairable = [index for index in usable.excluded_gpus if index not in unsupported]
    repairable.sort(key=lambda index: ranks.get(index, ()), reverse=True)
    faults = [usable.excluded_gpus[index] for index in repairable]
    return _refuse_faulty_machine(usable, faults, *distinct)


def _find_vendor_mismatch(context: PlanContext) -> Rejected | None:
    """Refuse a backend that does not match the vendor of the machine's GPUs.

    A machine without GPUs is not refused, because the build may be for another machine.
    """
    machine = context.machine
    present = [gpu for gpu in machine.gpus if can_select_builds(gpu, machine)]
    limits = [one for one in context.demand.limits if one.backends]
    if not present or not limits:
        return None
    source = limits[0]
    message = (
        f"{source} is for {context.rules.name} GPUs, "
        f"but this machine has {present[0].label}"
    )
    others = [source.package] if source.package else []
    change = source.suggest_removal("selects a build for this machine", *others)
    other = "Describe the target machine with --machine or --gpu"
    reason = Reason("backend-of-another-maker", message)
    return create_refusal(context, (reason,), changes=(change, other))


def explain_unsupported_gpu(gpu: Gpu, context: PlanContext) -> Reason:
    """Return a reason that no build in the catalog supports a GPU."""
    name = gpu.label
    architecture = gpu.code_name
    if architecture:
        name += f" ({architecture})"
    platform = f"{context.machine.os} {context.machine.arch}"
    return Reason(
        NO_BUILD_EVER, f"no build in the catalog supports {name} on {platform}"
    )
