"""AMD's chips and its rules: a build runs on exactly the chips that it names, by their code, ``gfx1100``. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuinstall.base.finding import Finding, Reason
from gpuinstall.base.versions import numbers
from gpuinstall.machine.protocol import Code, Preference, Rules, Toolkit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuinstall.base.machine import Gpu
    from gpuinstall.catalog import Build

    _Table = Mapping[str, Any]

SPLIT = (7, 14)
"""From this ROCm on a build's libraries are packages of their own, one of them code: see ``builds_rocm.toml``."""
ON_WINDOWS = "https://rocm.docs.amd.com/projects/radeon-ryzen/en/latest/docs/install/installrad/windows/"


def is_integrated(table: _Table, architecture: str | None) -> bool:
    """Whether the chip that runs some code is known to be part of a processor, whose memory it shares."""
    integrated = [
        row["architecture"] for row in table["chips"] if row.get("integrated")
    ]
    return architecture in integrated


class AmdRules(Rules):
    """The rules for one machine, by the rows of ``gpus_amd.toml``."""

    vendor = "amd"
    name = "AMD"
    kind = "rocm"
    software = "ROCm"
    no_code = "F79"
    driver_reasons = ("split-packages",)
    architecture_source = "the kernel's topology"
    not_proven = "builds for AMD's GPUs are not proven on a GPU yet: verify decides (please send probe --json)"

    @property
    def driver(self) -> str:
        """The kernel, and AMD's own module if it is installed."""
        kernel = f"Linux {self.machine_fact('kernel') or 'of unknown release'}"
        amdgpu = self.machine_fact("amdgpu")
        return f"amdgpu {amdgpu} on {kernel}" if amdgpu else kernel

    def platform_fault(self) -> Finding | None:
        """Return that torch's index has nothing for Windows and WSL."""
        wsl = self.machine.environment.wsl
        if self.machine.os != "windows" and not wsl:
            return None
        place = "WSL" if wsl else "Windows"
        fixes = [f"AMD's guide: {ON_WINDOWS}"]
        if not wsl:
            fixes = [*self.own_builds(), *fixes]
        return Finding(
            "amd-elsewhere",
            f"PyTorch's index has no build for AMD GPUs on {place}; AMD's own builds cannot be locked",
            fixes=tuple(fixes),
        )

    def own_builds(self) -> Iterator[str]:
        """Yield the command that installs AMD's own builds, if they have code for a GPU: for the first that they have."""
        table = self.chips["own_index"]
        for gpu in sorted(self.machine.gpus, key=self.rank, reverse=True):
            if gpu.architecture in table["architectures"]:
                lines = (
                    line.format(architecture=gpu.architecture)
                    for line in table["requirements"]
                )
                words = " ".join(f'"{line}"' for line in lines)
                why = f"for {gpu.label}, into the environment in use; that index has no hashes"
                yield f"python -m pip install --index-url {table['index']} {words}   # {why}"
                return

    def rank(self, gpu: Gpu) -> tuple[int, ...]:
        """Return a card before a processor's graphics: the numbers of chips tell nothing of what they can do."""
        return (0 if is_integrated(self.chips, gpu.architecture) else 1,)

    def against_driver(self, build: Build) -> Reason | None:
        """Return that the libraries of a build are packages of their own."""
        if build.toolkit is None or build.toolkit < SPLIT:
            return None
        return Reason(
            "split-packages",
            f"the libraries of {build.name} are separate packages, one of which is built on this machine",
        )

    def preference(
        self,
        toolkit: Toolkit,
        codes: Sequence[Code | Reason],
        gpus: Sequence[Gpu],
    ) -> Preference:
        """Prefer what the least is reported against, then a ROCm as old as the kernel, then the newest ROCm."""
        major, minor = toolkit or (0, 0)
        return (
            (
                len([*self._reports(toolkit, gpus)]),
                "it has fewer known problems on this chip",
            ),
            (
                self._distance(toolkit) is not None,
                "its ROCm is closer to the kernel's driver",
            ),
            ((-major, -minor), "its ROCm is newer"),
        )

    def warnings(
        self,
        build: Build,
        gpus: Sequence[Gpu],
    ) -> tuple[Reason, ...]:
        """Return what is untried, what users reported, and that the kernel is far from the build's ROCm."""
        reasons = list(super().warnings(build, gpus))
        for report in self._reports(build.toolkit, gpus):
            message = f"{report}: verify decides"
            reasons.append(Reason("reported", message))
        distance = self._distance(build.toolkit)
        if distance:
            reasons.append(Reason("kernel-far-from-rocm", distance))
        return tuple(reasons)

    def _reports(
        self,
        toolkit: Toolkit,
        gpus: Sequence[Gpu],
    ) -> Iterator[str]:
        """Yield what users met with such a ROCm, or such a kernel, on these chips."""
        chips = {gpu.architecture for gpu in gpus}
        rocm = toolkit or ()
        for row in self.chips["reports"]:
            if chips.isdisjoint(row["architectures"]):
                continue
            is_such_rocm = _is_within(rocm, row, "rocm")
            is_such_kernel = _is_within(self._kernel, row, "kernel")
            if is_such_rocm and is_such_kernel:
                yield row["says"]

    def _distance(self, toolkit: Toolkit) -> str | None:
        """Return that a ROCm and the kernel's own driver are further apart than AMD tests them.

        A kernel counts as the newest one of the table that is not newer.
        """
        table = self.chips["distance"]
        rocm = ".".join(map(str, toolkit or ()))
        rocm_day = table["rocm"].get(rocm)
        kernels = [one for one in table["kernel"] if numbers(one) <= self._kernel[:2]]
        is_tested = toolkit is not None and toolkit >= numbers(table["first"])
        is_kernels_own = self.machine_fact("amdgpu") is None
        if not (is_tested and is_kernels_own and rocm_day and kernels):
            return None
        kernel_day = table["kernel"][max(kernels, key=numbers)]
        days = abs((rocm_day - kernel_day).days)
        if days <= table["days"]:
            return None
        return (
            f"{self.driver} and ROCm {rocm} are {days} days apart,"
            " more than the year that AMD tests: verify decides"
        )

    @property
    def _kernel(self) -> tuple[int, ...]:
        return numbers(self.machine_fact("kernel") or "")


def _is_within(
    version: tuple[int, ...],
    row: _Table,
    name: str,
) -> bool:
    """Whether a version is in a row's span; one that is not known is in none but the span of everything.

    Args:
        version: The numbers of a release; empty: it is unknown.
        row: A row of reports.
        name: How the keys of the span begin: ``rocm`` or ``kernel``.
    """
    first = numbers(row.get(f"{name}_from", ""))
    before = numbers(row.get(f"{name}_before", ""))
    if not version:
        return not (first or before)
    return first <= version and (not before or version < before)
