"""GPU code in CUDA builds, and the GPUs that run it.

A GPU runs SASS for its own major compute capability, or PTX that the driver can
compile.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.finding import Reason
from gpuinstall.base.versions import ComputeCapability, CudaVersion
from gpuinstall.machine.protocol import Code, Toolkit

if TYPE_CHECKING:
    from gpuinstall.catalog import Build
    from gpuinstall.catalog.drivers import Drivers


class Sass(NamedTuple):
    """Machine code for one architecture.

    The suffix ``a`` restricts the code to exactly that chip, and ``f`` restricts it to the chip's family.
    """

    capability: ComputeCapability
    suffix: str = ""

    @classmethod
    def parse(cls, name: str) -> Sass:
        """Parse ``"sm_90"``, ``"sm_90a"``, or ``"sm_103f"``."""
        number = name.removeprefix("sm_")
        suffix = number[-1] if number[-1] in "af" else ""
        return cls(ComputeCapability.from_sm(int(number.removesuffix(suffix))), suffix)

    def __str__(self) -> str:
        return f"{self.capability.sm}{self.suffix}"


@lru_cache
def split_code(
    names: tuple[str, ...],
) -> tuple[tuple[Sass, ...], tuple[ComputeCapability, ...]]:
    """Split code into SASS (``sm_90a``) and PTX (``compute_90``)."""
    sass = []
    ptx = []
    for name in names:
        kind, _, number = name.partition("_")
        if kind == "sm":
            sass.append(Sass.parse(name))
        elif kind == "compute":
            ptx.append(ComputeCapability.from_sm(int(number.rstrip("af"))))
    return tuple(sass), tuple(ptx)


@lru_cache(maxsize=4096)
def find_code(
    build: Build,
    chip: ComputeCapability,
    drivers: Drivers,
    cuda: CudaVersion | None,
) -> Code | Reason:
    """Return a build's code for a chip, or the reason why it has none.

    Args:
        build: The build.
        chip: The GPU's compute capability.
        drivers: The tables of chips, toolkits, and cuDNN.
        cuda: The newest CUDA version that the driver supports, if known. This version limits which PTX can be compiled.
    """
    sass, _ = split_code(build.code)
    runnable = [
        code for code in sass if _is_runnable(code, chip, build.toolkit, drivers)
    ]
    code = _find_ptx(chip, build, drivers, cuda)
    if runnable:
        code = Code(str(max(runnable)), "sass")
    cudnn = dict(build.libraries).get("cudnn")
    if cudnn is None or isinstance(code, Reason):
        return code
    return _find_cudnn_rejection(chip, cudnn, build.toolkit, drivers) or code


def _is_runnable(
    code: Sass,
    chip: ComputeCapability,
    toolkit: Toolkit,
    drivers: Drivers,
) -> bool:
    if code.capability == chip:
        return True
    if code.capability.major != chip.major or code.capability > chip:
        return False
    # This code uses features that only one chip has.
    if code.suffix == "a":
        return False
    if code.suffix == "f":
        family = drivers.families.get(code.capability)
        return family is not None and str(chip) in family
    # A Tegra chip runs code for desktop GPUs only if a user reported that it does.
    if chip not in drivers.tegra:
        return True
    ran = drivers.tegra[chip].ran
    return ran is not None and toolkit is not None and toolkit >= ran


def _find_ptx(
    chip: ComputeCapability,
    build: Build,
    drivers: Drivers,
    cuda: CudaVersion | None,
) -> Code | Reason:
    sass, ptx = split_code(build.code)
    toolkit = build.toolkit
    older = [capability for capability in ptx if capability <= chip]
    newest = max(older, default=None)
    if newest is None:
        others = ", ".join(map(str, sass)) or "none"
        return Reason("no-code", f"no code for {chip.sm}, only for {others}")
    if toolkit is not None and (cuda is None or cuda < toolkit):
        branch = drivers.find_first_branch(toolkit)
        driver = f"driver {branch} or newer" if branch else "a newer driver"
        made = f"its PTX for {chip.sm} is of CUDA {CudaVersion(*toolkit)}"
        return Reason("driver-too-old-for-ptx", f"{made}, which requires {driver}")
    return Code(f"compute_{newest.major}{newest.minor}", "ptx")


def _find_cudnn_rejection(
    chip: ComputeCapability,
    cudnn: str,
    toolkit: Toolkit,
    drivers: Drivers,
) -> Reason | None:
    floor = drivers.cudnn_floor(cudnn)
    ceiling = drivers.cudnn_ceiling(cudnn, toolkit and toolkit[0])
    if floor and chip < floor:
        others = f"only for {floor.sm} and later"
    # torch's PTX does not help if cuDNN does not support the newer chip.
    elif ceiling and chip > ceiling:
        others = f"only up to {ceiling.sm}"
    else:
        return None
    return Reason(
        "no-cudnn-code", f"its cuDNN {cudnn} has no code for {chip.sm}, {others}"
    )
