"""Which code of a build a chip runs: SASS of its own major, PTX that its driver can compile, or none."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.plan.values import Reason

if TYPE_CHECKING:
    from gpuinstall.catalog.build import Architecture, Build
    from gpuinstall.catalog.drivers import Drivers
    from gpuinstall.plan.values import How
    from gpuinstall.versions import ComputeCapability, CudaVersion


class Code(NamedTuple):
    """The code that runs, such as ``sm_86`` or ``compute_120``, and whether it is SASS or PTX."""

    name: str
    how: How


def code_for(build: Build, chip: ComputeCapability, drivers: Drivers, cuda: CudaVersion | None) -> Code | Reason:
    """Find the code of ``build`` that ``chip`` runs with a driver that serves ``cuda``, or say why there is none."""
    code = _sass_for(build, chip, drivers) or _ptx_for(build, chip, cuda)
    floor = build.cudnn_floor
    if isinstance(code, Code) and floor is not None and chip < floor:
        return Reason("no-cudnn-code", f"its cuDNN has no code for {chip.sm}, only for {floor.sm} and later")
    return code


def _sass_for(build: Build, chip: ComputeCapability, drivers: Drivers) -> Code | None:
    relatives = [code for code in build.sass if code.capability.major == chip.major and code.capability <= chip]
    runnable = [code for code in relatives if _runs_sass(code, chip, build, drivers)]
    return Code(str(max(runnable)), "sass") if runnable else None


def _ptx_for(build: Build, chip: ComputeCapability, cuda: CudaVersion | None) -> Code | Reason:
    ptx = max((capability for capability in build.ptx if capability <= chip), default=None)
    if ptx is None:
        return Reason("no-code", f"no code for {chip.sm}, only for {_listed(build.sass)}")
    if build.toolkit is not None and (cuda is None or cuda < build.toolkit):
        message = f"{chip.sm} would run its PTX, which needs a driver for CUDA {build.toolkit}"
        return Reason("driver-too-old-for-ptx", message)
    return Code(f"compute_{ptx.major}{ptx.minor}", "ptx")


def _runs_sass(code: Architecture, chip: ComputeCapability, build: Build, drivers: Drivers) -> bool:
    if code.capability == chip:
        return True
    if code.suffix == "a":
        return False
    if code.suffix == "f":
        return chip in drivers.families.get(code.capability, ())
    if chip not in drivers.tegra:
        return True
    unified = drivers.tegra[chip]
    return unified is not None and build.toolkit is not None and build.toolkit >= unified


@lru_cache
def _listed(sass: tuple[Architecture, ...]) -> str:
    return ", ".join(map(str, sass)) or "none"
