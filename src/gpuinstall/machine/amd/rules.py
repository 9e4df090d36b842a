"""Rules for AMD GPUs. A ROCm build runs only on the chips that it lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from gpuinstall.base.advice import Advice, Hint, ShellText, make_command
from gpuinstall.base.finding import Finding, Reason
from gpuinstall.base.vendors import AMD
from gpuinstall.base.versions import version_key
from gpuinstall.machine.protocol import Code, Preference, Rules, Toolkit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuinstall.base.machine import Gpu
    from gpuinstall.catalog import Build

    _Table = Mapping[str, Any]

SPLIT = (7, 14)
"""The first ROCm version with separate library packages, including an sdist.

See ``amd.toml``.
"""
ON_WINDOWS = "https://rocm.docs.amd.com/projects/radeon-ryzen/en/latest/docs/install/installrad/windows/"


def find_chip(table: _Table, architecture: str | None) -> _Table:
    """Return the row of a GPU chip, or an empty row if it is unknown."""
    rows: Sequence[_Table] = table["chips"]
    return next((row for row in rows if row["architecture"] == architecture), {})


class AmdRules(Rules):
    """Rules for one machine's AMD GPUs, from ``amd.toml``."""

    vendor = AMD.name
    name = AMD.label
    kind = AMD.kind
    software = "ROCm"
    no_code = "F79"
    driver_reasons = ("split-packages",)
    idle_causes = ("F99", "F99")
    torch_device = "cuda"
    variables: ClassVar = {"HIP_VISIBLE_DEVICES": "{}"}
    no_device = "-1"
    # ROCR_VISIBLE_DEVICES hides GPUs before HIP numbers them. HIP treats the other two like HIP_VISIBLE_DEVICES.
    misleading_variables = (
        "ROCR_VISIBLE_DEVICES",
        "GPU_DEVICE_ORDINAL",
        "CUDA_VISIBLE_DEVICES",
    )

    @property
    def driver(self) -> str:
        """The Linux kernel release, and the amdgpu module's if installed."""
        kernel = f"Linux {self.read_machine_fact('kernel') or 'of unknown release'}"
        amdgpu = self.read_machine_fact("amdgpu")
        return f"amdgpu {amdgpu} on {kernel}" if amdgpu else kernel

    def find_platform_fault(self) -> Finding | None:
        """Reject Windows and WSL, for which torch's index has no builds."""
        wsl = self.machine.environment.wsl
        if self.machine.os != "windows" and not wsl:
            return None
        place = "WSL" if wsl else "Windows"
        fixes: list[Hint] = [f"AMD's guide: {ON_WINDOWS}"]
        if not wsl:
            fixes = [*self.list_install_commands(), *fixes]
        return Finding(
            "amd-elsewhere",
            f"PyTorch's index has no build for AMD GPUs on {place}; AMD's own builds cannot be locked",
            fixes=tuple(fixes),
        )

    def list_install_commands(self) -> Iterator[Advice]:
        """Yield the command that installs AMD's own builds, if supported."""
        table = self.chips["own_index"]
        for gpu in sorted(self.machine.gpus, key=self.rank, reverse=True):
            if gpu.architecture in table["architectures"]:
                lines = (
                    line.format(architecture=gpu.architecture)
                    for line in table["requirements"]
                )
                words = (
                    ShellText("-m pip install --index-url"),
                    table["index"],
                    *lines,
                )
                note = f"for {gpu.label}, in the active environment; that index has no hashes"
                yield Advice("python", words, note=note)
                return

    def rank(self, gpu: Gpu) -> tuple[int, ...]:
        """Rank discrete GPUs above integrated ones.

        Chip numbers such as gfx1100 do not indicate performance.
        """
        chip = find_chip(self.chips, gpu.architecture)
        return (0 if chip.get("integrated") else 1,)

    def find_driver_rejection(self, build: Build) -> Reason | None:
        """Reject ROCm builds whose libraries are in separate packages."""
        if build.toolkit is None or build.toolkit < SPLIT:
            return None
        return Reason(
            "split-packages",
            f"the libraries of {build.name} are separate packages, one of which is built on this machine",
        )

    def create_preference_key(
        self,
        toolkit: Toolkit,
        codes: Sequence[Code | Reason],
        gpus: Sequence[Gpu],
    ) -> Preference:
        """Prefer fewer known problems, then ROCm released near the kernel."""
        major, minor = toolkit or (0, 0)
        return (
            (
                len([*self._find_reports(toolkit, gpus)]),
                "it has fewer known problems on this chip",
            ),
            (
                self._find_distance_warning(toolkit) is not None,
                "its ROCm is closer to the kernel's driver",
            ),
            ((-major, -minor), "its ROCm is newer"),
        )

    def list_warnings(
        self,
        build: Build,
        gpus: Sequence[Gpu],
    ) -> tuple[Reason, ...]:
        """Return warnings about known ROCm problems and untested kernels."""
        reasons = list(super().list_warnings(build, gpus))
        reports = self._find_reports(build.toolkit, gpus)
        verify = (make_command("verify"),)
        reasons += [Reason("reported", report, fixes=verify) for report in reports]
        distance = self._find_distance_warning(build.toolkit)
        if distance:
            reasons.append(Reason("kernel-far-from-rocm", distance, fixes=verify))
        return tuple(reasons)

    def _find_reports(
        self,
        toolkit: Toolkit,
        gpus: Sequence[Gpu],
    ) -> Iterator[str]:
        """Yield the known problems that a ROCm version has on these GPUs."""
        chips = {gpu.architecture for gpu in gpus}
        rocm = toolkit or ()
        for row in self.chips["reports"]:
            if chips.isdisjoint(row["architectures"]):
                continue
            is_such_rocm = _is_within(rocm, row, "rocm")
            is_such_kernel = _is_within(self._kernel, row, "kernel")
            if is_such_rocm and is_such_kernel:
                yield row["says"]

    def _find_distance_warning(self, toolkit: Toolkit) -> str | None:
        """Return a warning if AMD does not test this ROCm with the kernel.

        The comparison uses the newest kernel in the table of release dates that is not
        newer than the machine's kernel.
        """
        table = self.chips["distance"]
        rocm = ".".join(map(str, toolkit or ()))
        rocm_day = table["rocm"].get(rocm)
        kernels = [
            one for one in table["kernel"] if version_key(one) <= self._kernel[:2]
        ]
        is_tested = toolkit is not None and toolkit >= version_key(table["first"])
        is_kernels_own = self.read_machine_fact("amdgpu") is None
        if not (is_tested and is_kernels_own and rocm_day and kernels):
            return None
        kernel_day = table["kernel"][max(kernels, key=version_key)]
        days = abs((rocm_day - kernel_day).days)
        if days <= table["days"]:
            return None
        return (
            f"{self.driver} and ROCm {rocm} were released {days} days apart;"
            " AMD tests at most one year"
        )

    @property
    def _kernel(self) -> tuple[int, ...]:
        return version_key(self.read_machine_fact("kernel") or "")


def _is_within(
    version: tuple[int, ...],
    row: _Table,
    name: str,
) -> bool:
    """Return whether a version is in the range of a problem report.

    Args:
        version: The numbers of the version. If it is empty (unknown), only a report
            without limits matches.
        row: A row in the table of reports.
        name: The prefix of the range's keys: ``rocm`` or ``kernel``.
    """
    first = version_key(row.get(f"{name}_from", ""))
    before = version_key(row.get(f"{name}_before", ""))
    if not version:
        return not (first or before)
    return first <= version and (not before or version < before)
