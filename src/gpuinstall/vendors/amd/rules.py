"""AMD's rules: a build runs on exactly the chips that it names; a driver far from it is only warned about."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from gpuinstall.vendors.amd.chips import is_integrated
from gpuinstall.vendors.protocol import Code, Reason, Unusable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.build import Build
    from gpuinstall.machine import Gpu, Machine

SPLIT = (7, 14)
"""From this ROCm on a build's libraries are packages of their own, one of them code: see ``builds_rocm.toml``."""
ON_WINDOWS = "https://rocm.docs.amd.com/projects/radeon-ryzen/en/latest/docs/install/installrad/windows/"

Span = tuple[int, ...]

_BEFORE_MONTH = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)


@dataclass(frozen=True)
class AmdRules:
    """The rules for one machine, by the rows of ``gpus_amd.toml``."""

    machine: Machine
    catalog: Catalog

    vendor: ClassVar = "amd"
    name: ClassVar = "AMD"
    kind: ClassVar = "rocm"
    software: ClassVar = "ROCm"
    code_reasons: ClassVar = ("no-code",)
    no_code_causes: ClassVar = ("F79", "F79")
    driver_reasons: ClassVar = ("split-packages",)

    @property
    def driver(self) -> str:
        """The kernel, and AMD's own module where it was installed."""
        module = f"amdgpu {self._said('amdgpu')} on " if self._said("amdgpu") else ""
        return f"{module}Linux {self._said('kernel') or 'of unknown release'}"

    def platform_fault(self) -> Unusable | None:
        """Refuse Windows and WSL, for which the index of torch has nothing."""
        if self.machine.os != "windows" and not self.machine.environment.wsl:
            return None
        place = "WSL" if self.machine.environment.wsl else "Windows"
        message = f"PyTorch's index has no build for AMD's GPUs on {place}; AMD's own cannot be locked"
        return Unusable(Reason("amd-elsewhere", message), f"AMD's guide: {ON_WINDOWS}")

    def driver_fault(self, gpus: Sequence[Gpu]) -> Unusable | None:  # noqa: ARG002
        """Say nothing: what keeps a program from the GPUs is the probe's to find."""
        return None

    def gpu_fault(self, gpu: Gpu) -> Unusable | None:
        """Say that the chip is not known: its kernel tells it."""
        if gpu.architecture is not None:
            return None
        message = f"which code {gpu.label} runs is not known: the kernel's topology tells it"
        return Unusable(Reason("unknown-gpu", message), "gpuinstall probe   # on the machine itself")

    def architecture(self, gpu: Gpu) -> str | None:
        """The name of its code, ``gfx1100``."""
        return gpu.architecture

    def rank(self, gpu: Gpu) -> tuple[int, ...]:
        """A card before a processor's graphics: the numbers of chips say nothing of what they can do."""
        return (0 if is_integrated(self._table, gpu.architecture) else 1,)

    def ever_served(self, gpu: Gpu) -> bool:
        """Say whether a build for this platform names the chip."""
        builds = self.catalog.builds_for(self.machine.os, self.machine.arch)
        return gpu.architecture is None or any(gpu.architecture in build.code for build in builds)

    def code(self, build: Build, gpu: Gpu) -> Code | Reason:
        """Find the chip among those that a build names: none runs the code of another."""
        if gpu.architecture and (gpu.architecture in build.code or build.lists_no_code):
            return Code(gpu.architecture, "sass")
        if not build.code:
            return Reason("no-code", f"which chips {build.name} has code for is not known")
        return Reason("no-code", f"no code for {gpu.architecture}, only for {', '.join(build.code)}")

    def lacks(self, build: Build, gpus: Sequence[Gpu]) -> str:  # noqa: ARG002
        """Say that a build has no code for a chip."""
        return "has none"

    def predates(self, build: Build, gpu: Gpu) -> bool:  # noqa: ARG002
        """The numbers of chips have no order that says which is the older."""
        return False

    def against_driver(self, build: Build) -> Reason | None:
        """Take no build whose libraries are packages of their own."""
        if build.toolkit is None or build.toolkit < SPLIT:
            return None
        message = (
            f"the libraries of {build.name} are packages of their own, one of them built here by code that asks the GPU"
        )
        return Reason("split-packages", message)

    def driver_for(self, build: Build) -> str:  # noqa: ARG002
        """No driver is known to be the oldest for a build."""
        return "a kernel with amdgpu"

    def driver_fix(self, build: Build, code: str, gpus: Sequence[Gpu]) -> str | None:  # noqa: ARG002
        """No driver helps against what the rules reject."""
        return None

    def preference(self, build: Build, codes: Sequence[Code | Reason], gpus: Sequence[Gpu]) -> tuple[object, ...]:  # noqa: ARG002
        """Prefer what nothing is reported against, then a ROCm as old as the kernel, then the newest ROCm."""
        toolkit = build.toolkit or (0, 0)
        return (any(self._reports(build, gpus)), self._distance(build) is not None, tuple(-part for part in toolkit))

    def merit(self, better: tuple[object, ...], other: tuple[object, ...]) -> str:
        """Say what the better build has, in the order of ``preference``."""
        if other[0] and not better[0]:
            return "nothing is reported against it on this chip"
        if other[1] and not better[1]:
            return "its ROCm is closer to the kernel's driver"
        return "its ROCm is newer"

    def warnings(self, build: Build, gpus: Sequence[Gpu]) -> tuple[Reason, ...]:
        """Warn of what nobody has tried, of what others met, and of a kernel far from the build's ROCm."""
        proof = "builds for AMD's GPUs are not proven on a card yet: verify decides (please send probe --record)"
        reports = (Reason("reported", f"{text}: verify decides") for text in self._reports(build, gpus))
        distance = self._distance(build)
        far = [Reason("kernel-far-from-rocm", distance)] if distance else []
        return (Reason("not-proven", proof), *reports, *far)

    def floors(self, build: Build) -> Mapping[str, str]:  # noqa: ARG002
        """No oldest driver is known."""
        return {}

    @property
    def _table(self) -> Mapping[str, Any]:
        return self.catalog.chips[self.kind]

    def _said(self, fact: str) -> str | None:
        value = self.machine.makers.get(self.vendor, {}).get(fact)
        return value if isinstance(value, str) else None

    def _reports(self, build: Build, gpus: Sequence[Gpu]) -> Iterator[str]:
        """What people met with such a ROCm, or such a kernel, on these chips."""
        chips = {gpu.architecture for gpu in gpus}
        kernel, rocm = _numbers(self._said("kernel")), build.toolkit or ()
        for row in self._table["reports"]:
            met = (
                _is_within(rocm, row.get("rocm_from"), row.get("rocm_before")),
                _is_within(kernel, row.get("kernel_from"), row.get("kernel_before")),
            )
            if chips & set(row["architectures"]) and all(met):
                yield row["says"]

    def _distance(self, build: Build) -> str | None:
        """Say that a ROCm and the kernel's own driver are further apart than AMD tests them."""
        if build.toolkit is None or self._said("amdgpu") is not None:
            return None
        apart = _days_apart(self._table["distance"], build.toolkit, _numbers(self._said("kernel")))
        if apart is None or apart <= self._table["distance"]["days"]:
            return None
        rocm = ".".join(map(str, build.toolkit))
        return (
            f"{self.driver} and ROCm {rocm} are {apart} days apart, more than the year that AMD tests: verify decides"
        )


def _days_apart(table: Mapping[str, Any], rocm: tuple[int, int], kernel: Sequence[int]) -> int | None:
    """Count the days between both releases, of the rows of ``distance``; None where one of them is in none.

    A kernel counts as the newest one of the table that is not newer than it.
    """
    rocm_day, kernel_day = table["rocm"].get(".".join(map(str, rocm))), _newest(table["kernel"], tuple(kernel[:2]))
    if rocm < _numbers(table["first"]) or rocm_day is None or kernel_day is None:
        return None
    return abs(_days(rocm_day) - _days(kernel_day))


def _numbers(text: str | None) -> Span:
    leading = re.match(r"[0-9]+(?:\.[0-9]+)*", text or "")
    return tuple(int(part) for part in leading[0].split(".")) if leading else ()


def _is_within(version: Span, first: str | None, before: str | None) -> bool:
    """Say whether a version is in a span; one that is not known is in none but the span of everything."""
    if first is None and before is None:
        return True
    return bool(version) and _numbers(first) <= version and (before is None or version < _numbers(before))


def _newest(table: Mapping[str, str], kernel: tuple[int, ...]) -> str | None:
    older = [version for version in table if kernel and _numbers(version) <= kernel]
    return table[max(older, key=_numbers)] if older else None


def _days(day: str) -> int:
    """Count from the year 0, to the day but for leap years."""
    year, month, of_month = map(int, day.split("-"))
    return year * 365 + _BEFORE_MONTH[month - 1] + of_month
