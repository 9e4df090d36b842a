"""What is wrong with the machine itself, before any build is looked at."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gpuinstall.catalog.build import CPU
from gpuinstall.plan.code import Code, code_for
from gpuinstall.plan.values import Plan, Reason, Run
from gpuinstall.versions import CudaVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.catalog.drivers import Generation
    from gpuinstall.machine import Gpu
    from gpuinstall.plan.case import PlanContext
    from gpuinstall.plan.gpus import LeftOut
    from gpuinstall.plan.values import Rejection

NO_BUILD_FITS = 3
NO_SOURCE_ANSWERS = 4
ONLY_MENDING_HELPS = 8
CPU_INSTEAD = "for the CPU build instead: --backend cpu"

_ANY_CUDA = CudaVersion(999, 0)
_JETSON_WHEELS = "https://docs.nvidia.com/deeplearning/frameworks/install-pytorch-jetson-platform/"


def refused(
    case: PlanContext,
    exit_code: int,
    reasons: tuple[Reason, ...],
    fix: str | None,
    *,
    left_out: tuple[LeftOut, ...] = (),
    rejected: tuple[Rejection, ...] = (),
) -> Plan:
    """Refuse, for the reasons given; where there is a GPU and a CPU build would run, the fix ends with it."""
    indices = sorted({*(gpu.index for gpu in case.gpus), *(out.gpu for out in left_out)})
    cpu_runs = case.machine.libc != "musl" and CPU not in case.demand.backends
    ways = [fix, CPU_INSTEAD if indices and cpu_runs else None]
    return Plan(
        status="refused",
        choice=None,
        gpus=tuple(Run(index, None, "none") for index in indices),
        reasons=reasons,
        rejected=rejected,
        exit_code=exit_code,
        fix="\n".join(way for way in ways if way) or None,
    )


def platform_fault(case: PlanContext) -> Plan | None:
    """Refuse a system that no wheel fits, whatever the GPU."""
    if case.machine.libc != "musl":
        return None
    fix = "use a distribution or a container with glibc (Debian, Ubuntu, Fedora, …)"
    return refused(case, NO_BUILD_FITS, (Reason("musl", "no wheel of torch fits musl; they need glibc"),), fix)


def machine_fault(case: PlanContext) -> Plan | None:
    """Refuse a machine with a problem that blocks all of it."""
    blocking = case.machine.blocking
    if not blocking:
        return None
    fix = next((problem.fix for problem in blocking if problem.fix), None)
    return refused(case, ONLY_MENDING_HELPS, tuple(Reason(found.code, found.message) for found in blocking), fix)


def gpu_fault(case: PlanContext, usable: tuple[Gpu, ...], left_out: tuple[LeftOut, ...]) -> Plan | None:
    """Refuse a machine whose GPUs cannot be used; one that no build was ever made for does not count as usable."""
    if _is_old_jetson(case):
        return _old_jetson(case)
    if not (usable or left_out):
        return None
    driven = _driver_is_known(case)
    if driven and not (left_out and all(never_served(gpu, case) for gpu in usable)):
        return None
    never = {gpu.index: never_made(gpu, case) for gpu in case.gpus if never_served(gpu, case)}
    if case.gpus and len(never) == len(case.gpus):
        return refused(case, NO_BUILD_FITS, tuple(dict.fromkeys(never.values())), None, left_out=left_out)
    if usable and not driven:
        return _no_driver(case)
    return _to_mend(case, left_out, never)


def never_served(gpu: Gpu, case: PlanContext) -> bool:
    """Say whether no build of this platform ever had code for a GPU."""
    chip = gpu.compute_capability
    if chip is None:
        return False
    cuda = (build for build in case.builds if build.backend != CPU)
    return not any(isinstance(code_for(build, chip, case.catalog.drivers, _ANY_CUDA), Code) for build in cuda)


def never_made(gpu: Gpu, case: PlanContext) -> Reason:
    """Say that nobody ever made a build for a GPU on this platform."""
    chip = f" ({gpu.compute_capability.sm})" if gpu.compute_capability else ""
    platform = f"{case.machine.os} {case.machine.arch}"
    return Reason("no-build-ever", f"no build in the catalogue was ever made for {gpu.label}{chip} on {platform}")


def _to_mend(case: PlanContext, left_out: tuple[LeftOut, ...], never: Mapping[int, Reason]) -> Plan:
    """Give the fix of the newest GPU that can be mended, and say of the others that no build was ever made for them."""
    chips = {gpu.index: gpu.compute_capability for gpu in case.gpus}
    mendable = [out for out in left_out if out.gpu not in never]
    mendable.sort(key=lambda out: chips.get(out.gpu) or (0, 0), reverse=True)
    fix = next((out.fix for out in mendable if out.fix), None)
    reasons = (*(out.reason for out in mendable), *dict.fromkeys(never.values()))
    return refused(case, ONLY_MENDING_HELPS, reasons, fix, left_out=left_out)


def _driver_is_known(case: PlanContext) -> bool:
    driver = case.machine.driver
    return driver is not None and (driver.version is not None or driver.cuda is not None)


def _no_driver(case: PlanContext) -> Plan:
    names = " and ".join(dict.fromkeys(gpu.label for gpu in case.gpus))
    if case.machine.driver is None:
        reason = Reason("no-driver", f"there is no NVIDIA driver for {names}")
        return refused(case, ONLY_MENDING_HELPS, (reason,), f"install the NVIDIA driver{_branches(case)}")
    reason = Reason("driver-unknown", f"the NVIDIA driver for {names} does not say its version")
    return refused(case, ONLY_MENDING_HELPS, (reason,), "nvidia-smi should say it; if it fails, reinstall the driver")


def _branches(case: PlanContext) -> str:
    """Name the driver branches that drive the GPUs of the case and serve the newest CUDA that they can have."""
    last = last_branch(case)
    if last is None:
        return f", {max(case.floors.values())} or newer"
    names = dict.fromkeys(found.name for found in _generations(case) if found.last_branch == last)
    return f" of branch {last}, the last for {' and '.join(names)}"


def last_branch(case: PlanContext) -> int | None:
    """The last driver branch that drives the newest GPU and all that can share a driver with it; None: no end."""
    generations = _generations(case)
    first = max((case.floor(found.floor).branch for found in generations if found.floor), default=0)
    lasts = [found.last_branch for found in generations if found.last_branch is not None]
    return min((last for last in lasts if last >= first), default=None)


def _generations(case: PlanContext) -> list[Generation]:
    """The generations, as far as the catalogue knows them, of the GPUs that a build was ever made for."""
    chips = [gpu.compute_capability for gpu in case.gpus if gpu.compute_capability and not never_served(gpu, case)]
    found = (case.catalog.drivers.generation(chip) for chip in chips)
    return [generation for generation in found if generation is not None]


def _is_old_jetson(case: PlanContext) -> bool:
    l4t = case.machine.environment.l4t
    number = re.search(r"[0-9]+", l4t or "")
    return number is not None and int(number[0]) < case.catalog.drivers.server_l4t


def _old_jetson(case: PlanContext) -> Plan:
    l4t = case.machine.environment.l4t
    reason = Reason("jetson", f"a Jetson with L4T {l4t} (before JetPack 7) runs only NVIDIA's own wheels of torch")
    return refused(case, NO_BUILD_FITS, (reason,), f"NVIDIA's wheels: {_JETSON_WHEELS}\nor update to JetPack 7")
