"""Which code of a build a chip runs: SASS of its own major, PTX that its driver can compile, or none."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.vendors.protocol import Code, Reason
from gpuinstall.versions import ComputeCapability, CudaVersion

if TYPE_CHECKING:
    from gpuinstall.catalog import Build
    from gpuinstall.catalog.drivers import Drivers

    Toolkit = tuple[int, int] | None
    Made = tuple[tuple[str, ...], Toolkit, tuple[tuple[str, str], ...]]


class Sass(NamedTuple):
    """Machine code for one architecture: ``sm_90``, ``sm_90a`` (exactly that one), ``sm_103f`` (its family)."""

    capability: ComputeCapability
    suffix: str = ""

    @classmethod
    def parse(cls, name: str) -> Sass:
        """Read ``"sm_90"``, ``"sm_90a"`` or ``"sm_103f"``."""
        number = name.removeprefix("sm_")
        suffix = number[-1] if number[-1] in "af" else ""
        return cls(ComputeCapability.from_sm(int(number.removesuffix(suffix))), suffix)

    def __str__(self) -> str:
        return f"{self.capability.sm}{self.suffix}"


@lru_cache
def split_code(names: tuple[str, ...]) -> tuple[tuple[Sass, ...], tuple[ComputeCapability, ...]]:
    """Read the code of a build: its SASS (``sm_90a``) and its PTX (``compute_90``)."""
    ptx = (name.removeprefix("compute_").rstrip("af") for name in names if name.startswith("compute_"))
    return (
        tuple(Sass.parse(name) for name in names if name.startswith("sm_")),
        tuple(ComputeCapability.from_sm(int(number)) for number in ptx),
    )


def code_for(build: Build, chip: ComputeCapability, drivers: Drivers, cuda: CudaVersion | None) -> Code | Reason:
    """Find the code of ``build`` that ``chip`` runs with a driver that serves ``cuda``, or say why there is none."""
    return _code_for((build.code, build.toolkit, build.libraries), chip, drivers, cuda)


@lru_cache(maxsize=4096)
def _code_for(made: Made, chip: ComputeCapability, drivers: Drivers, cuda: CudaVersion | None) -> Code | Reason:
    """Decide once for all builds that are made alike."""
    names, toolkit, libraries = made
    runnable = [code for code in split_code(names)[0] if _runs(code, chip, toolkit, drivers)]
    code = Code(str(max(runnable)), "sass") if runnable else _ptx_for(chip, names, toolkit, cuda)
    missing = isinstance(code, Code) and _cudnn_lacks(chip, dict(libraries).get("cudnn"), toolkit, drivers)
    return Reason("no-cudnn-code", missing) if missing else code


def _cudnn_lacks(chip: ComputeCapability, cudnn: str | None, toolkit: Toolkit, drivers: Drivers) -> str | None:
    """Say that the cuDNN in a build has no code for a chip."""
    if cudnn is None:
        return None
    floor, ceiling = drivers.cudnn_floor(cudnn), drivers.cudnn_ceiling(cudnn, toolkit and toolkit[0])
    if floor and chip < floor:
        return f"its cuDNN has no code for {chip.sm}, only for {floor.sm} and later"
    if ceiling and chip > ceiling:
        return f"its cuDNN {cudnn} has no code for {chip.sm}, only up to {ceiling.sm}"
    return None


def _runs(code: Sass, chip: ComputeCapability, toolkit: Toolkit, drivers: Drivers) -> bool:
    if code.capability == chip:
        return True
    if code.capability.major != chip.major or code.capability > chip or code.suffix == "a":
        return False
    if code.suffix == "f":
        return chip in drivers.families.get(code.capability, ())
    if chip not in drivers.tegra:
        return True
    unified = drivers.tegra[chip]
    return unified is not None and toolkit is not None and toolkit >= unified.ran


def _ptx_for(
    chip: ComputeCapability, names: tuple[str, ...], toolkit: Toolkit, cuda: CudaVersion | None
) -> Code | Reason:
    sass, ptx = split_code(names)
    newest = max((capability for capability in ptx if capability <= chip), default=None)
    if newest is None:
        return Reason("no-code", f"no code for {chip.sm}, only for {', '.join(map(str, sass)) or 'none'}")
    if toolkit is not None and (cuda is None or cuda < toolkit):
        needed = CudaVersion(*toolkit)
        return Reason("driver-too-old-for-ptx", f"{chip.sm} would run its PTX, which needs a driver for CUDA {needed}")
    return Code(f"compute_{newest.major}{newest.minor}", "ptx")
