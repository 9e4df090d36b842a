"""AMD's chips and its rules: a build runs on exactly the chips that it names, by their code, ``gfx1100``. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuinstall.finding import Finding, Reason
from gpuinstall.vendors.protocol import Code, Rules

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuinstall.catalog import Build
    from gpuinstall.machine import Gpu

SPLIT = (7, 14)
"""From this ROCm on a build's libraries are packages of their own, one of them code: see ``builds_rocm.toml``."""
ON_WINDOWS = (
    "https://rocm.docs.amd.com/projects/radeon-ryzen/en/latest/docs/install/installrad/windows/"
)

Span = tuple[int, ...]

_BEFORE_MONTH = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)


class Chip(NamedTuple):
    """A chip by the name of its code; ``integrated``: it is part of a processor and shares its memory."""

    architecture: str
    name: str
    integrated: bool = False


def amd_chip(table: Mapping[str, Any], architecture: str | None) -> Chip | None:
    """Find a chip; None for one that nobody has listed."""
    row = next((row for row in table["chips"] if row["architecture"] == architecture), None)
    return Chip(row["architecture"], row["chip"], row.get("integrated", False)) if row else None


def product_named(table: Mapping[str, Any], name: str) -> str | None:
    """Find the code of a product by its whole name, as Windows gives it: ``AMD Radeon RX 9070 XT``."""
    words = name.removeprefix("AMD ").split()
    rows = (
        row for row in table["chips"] for product in row["products"] if product.split() == words
    )
    return next((str(row["architecture"]) for row in rows), None)


def is_integrated(table: Mapping[str, Any], architecture: str | None) -> bool:
    """Whether a chip is known to be part of a processor."""
    chip = amd_chip(table, architecture)
    return chip is not None and chip.integrated


class AmdRules(Rules):
    """The rules for one machine, by the rows of ``gpus_amd.toml``."""

    vendor = "amd"
    name = "AMD"
    kind = "rocm"
    software = "ROCm"
    no_code_causes = ("F79", "F79")
    driver_reasons = ("split-packages",)
    architecture_source = "the kernel's topology"
    not_proven = "builds for AMD's GPUs are not proven on a GPU yet: verify decides (please send probe --record)"

    @property
    def driver(self) -> str:
        """The kernel, and AMD's own module where it was installed."""
        amdgpu = self.machine_fact("amdgpu")
        module = f"amdgpu {amdgpu} on " if amdgpu else ""
        return f"{module}Linux {self.machine_fact('kernel') or 'of unknown release'}"

    def platform_fault(self) -> Finding | None:
        """Refuse Windows and WSL, for which the index of torch has nothing."""
        if self.machine.os != "windows" and not self.machine.environment.wsl:
            return None
        place = "WSL" if self.machine.environment.wsl else "Windows"
        message = f"PyTorch's index has no build for AMD GPUs on {place}; AMD's own builds cannot be locked"
        return Finding("amd-elsewhere", message, fixes=(f"AMD's guide: {ON_WINDOWS}",))

    def rank(self, gpu: Gpu) -> tuple[int, ...]:
        """A card before a processor's graphics: the numbers of chips say nothing of what they can do."""
        return (0 if is_integrated(self.chips, gpu.architecture) else 1,)

    def against_driver(self, build: Build) -> Reason | None:
        """Take no build whose libraries are packages of their own."""
        if build.toolkit is None or build.toolkit < SPLIT:
            return None
        own = "separate packages, one of which is built on this machine"
        return Reason("split-packages", f"the libraries of {build.name} are {own}")

    def preference(
        self, build: Build, codes: Sequence[Code | Reason], gpus: Sequence[Gpu]
    ) -> tuple[object, ...]:
        """Prefer what nothing is reported against, then a ROCm as old as the kernel, then the newest ROCm."""
        toolkit = build.toolkit or (0, 0)
        return (
            any(self._reports(build, gpus)),
            self._distance(build) is not None,
            tuple(-part for part in toolkit),
        )

    def merit(self, better: tuple[object, ...], other: tuple[object, ...]) -> str:
        """Return what the better build has, in the order of ``preference``."""
        if other[0] and not better[0]:
            return "it has no known problem on this chip"
        if other[1] and not better[1]:
            return "its ROCm is closer to the kernel's driver"
        return "its ROCm is newer"

    def warnings(self, build: Build, gpus: Sequence[Gpu]) -> tuple[Reason, ...]:
        """Warn of what nobody has tried, of what others met, and of a kernel far from the build's ROCm."""
        reports = (
            Reason("reported", f"{text}: verify decides") for text in self._reports(build, gpus)
        )
        distance = self._distance(build)
        far = [Reason("kernel-far-from-rocm", distance)] if distance else []
        return (*super().warnings(build, gpus), *reports, *far)

    def _reports(self, build: Build, gpus: Sequence[Gpu]) -> Iterator[str]:
        """What people met with such a ROCm, or such a kernel, on these chips."""
        chips = {gpu.architecture for gpu in gpus}
        kernel, rocm = _numbers(self.machine_fact("kernel")), build.toolkit or ()
        for row in self.chips["reports"]:
            with_rocm = _is_within(rocm, row.get("rocm_from"), row.get("rocm_before"))
            with_kernel = _is_within(kernel, row.get("kernel_from"), row.get("kernel_before"))
            if with_rocm and with_kernel and not chips.isdisjoint(row["architectures"]):
                yield row["says"]

    def _distance(self, build: Build) -> str | None:
        """Return that a ROCm and the kernel's own driver are further apart than AMD tests them."""
        if build.toolkit is None or self.machine_fact("amdgpu") is not None:
            return None
        apart = _days_apart(
            self.chips["distance"], build.toolkit, _numbers(self.machine_fact("kernel"))
        )
        if apart is None or apart <= self.chips["distance"]["days"]:
            return None
        pair = f"{self.driver} and ROCm {'.'.join(map(str, build.toolkit))}"
        return f"{pair} are {apart} days apart, more than the year that AMD tests: verify decides"


def _days_apart(
    table: Mapping[str, Any], rocm: tuple[int, int], kernel: Sequence[int]
) -> int | None:
    """Count the days between both releases; a kernel counts as the newest one of the table that is not newer."""
    older = [
        version for version in table["kernel"] if kernel and _numbers(version) <= tuple(kernel[:2])
    ]
    rocm_day = table["rocm"].get(".".join(map(str, rocm)))
    if rocm < _numbers(table["first"]) or rocm_day is None or not older:
        return None
    return abs(_days(rocm_day) - _days(table["kernel"][max(older, key=_numbers)]))


def _numbers(text: str | None) -> Span:
    leading = re.match(r"[0-9]+(?:\.[0-9]+)*", text or "")
    return tuple(int(part) for part in leading[0].split(".")) if leading else ()


def _is_within(version: Span, first: str | None, before: str | None) -> bool:
    """Whether a version is in a span; one that is not known is in none but the span of everything."""
    if first is None and before is None:
        return True
    return (
        bool(version)
        and _numbers(first) <= version
        and (before is None or version < _numbers(before))
    )


def _days(day: str) -> int:
    """Count from the year 0, to the day but for leap years."""
    year, month, of_month = map(int, day.split("-"))
    return year * 365 + _BEFORE_MONTH[month - 1] + of_month
