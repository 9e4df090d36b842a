"""Why CUDA refuses: the cause behind a CUresult on one machine, and the finding that it makes. Pure."""

from __future__ import annotations

from dataclasses import field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from gpuinstall.base.values import dataclass
from gpuinstall.base.versions import ComputeCapability, DriverVersion
from gpuinstall.catalog.failures.problems import FixContext, finding_for
from gpuinstall.catalog.failures.table import load_errors, load_problems
from gpuinstall.machine.nvidia.evidence import drivers
from gpuinstall.machine.nvidia.libraries import is_compat
from gpuinstall.machine.prober import format_gpus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuinstall.base.finding import Finding
    from gpuinstall.base.machine import Machine


@dataclass(frozen=True)
class CudaCause:
    """Why CUDA refuses."""

    code: str
    message: str
    """``{where}`` in it stands for the GPUs."""
    why: str
    problem: str | None = None
    """The problem whose fixes apply, if that is not ``code``."""
    near: tuple[str, ...] = ()
    """The keys of a closer fix."""
    words: tuple[tuple[str, str], ...] = ()
    """Words that the fix names."""


@dataclass(frozen=True)
class CudaContext:
    """What is known of the place where CUDA refused."""

    wsl: bool = False
    container: str | None = None
    fix_context: FixContext = field(default_factory=FixContext)
    driver: DriverVersion | None = None
    """The kernel module's release."""
    library: str | None = None
    """The file of libcuda."""
    blackwells: int = 0
    """The number of GPUs that only the open kernel module drives."""
    unsliced: bool = False
    """Whether the GPU is in MIG mode without a slice."""
    without_uvm: bool = False
    """Whether /dev/nvidia-uvm is known to be out of reach."""
    switches: int | None = None
    """The number of NVSwitches on the bus; None: nobody looked."""

    @classmethod
    def of(cls, machine: Machine, library: str | None = None) -> CudaContext:
        """Return what a machine's document tells of it."""
        capabilities = [gpu.compute_capability for gpu in machine.gpus]
        return cls(
            wsl=machine.environment.wsl,
            container=machine.environment.container,
            fix_context=FixContext.of_machine(machine),
            driver=machine.driver.version if machine.driver else None,
            library=library,
            blackwells=count_blackwells(capabilities),
        )

    @property
    def library_version(self) -> DriverVersion | None:
        """The driver's release in the name of libcuda's file; None if it has none."""
        _, _, release = (self.library or "").rpartition("libcuda.so.")
        try:
            version = DriverVersion.parse(release)
        except ValueError:
            return None
        return version if len(version.parts) > 1 else None

    @property
    def differs(self) -> bool:
        """Whether libcuda and the kernel module are known to be of different releases."""
        return self.driver is not None and self.library_version not in (None, self.driver)


def count_blackwells(capabilities: Iterable[ComputeCapability | None]) -> int:
    """Return the number of chips that only the open kernel module drives."""
    first = drivers().kernel_modules.open_only_from
    return sum(capability is not None and capability >= first for capability in capabilities)


def cuda_refusal(status: int, context: CudaContext) -> Finding:
    """Return why CUDA answered with the CUresult ``status``, as a fault of the machine."""
    return finding_of_cause(
        cuda_cause(status, context),
        gpus=(),
        evidence=cuda_evidence(status, context),
        fix_context=context.fix_context,
    )


def finding_of_cause(
    cause: CudaCause,
    *,
    gpus: tuple[int, ...],
    evidence: str | None,
    fix_context: FixContext,
    blocking: bool = True,
) -> Finding:
    """Return a cause as a finding about these GPUs."""
    closest = fix_context.near(*cause.near)
    numbers = ",".join(map(str, gpus)) or "<gpu>"
    finding = finding_for(
        cause.problem or cause.code,
        cause.message.format(where=format_gpus(gpus)),
        closest.knowing(gpu=numbers, **dict(cause.words)),
        why=cause.why,
        evidence=evidence,
        gpus=gpus,
        blocking=blocking,
    )
    return replace(finding, code=cause.code)


def cuda_evidence(status: int, context: CudaContext) -> str:
    """Return the facts behind a refusal, in one line."""
    error = load_errors("cuda").get(status)
    name = error.name if error else f"CUresult {status}"
    facts = [f"CUDA error {status} ({name})"]
    if context.driver:
        facts.append(f"driver {context.driver}")
    if context.library:
        facts.append(context.library)
    return " · ".join(facts)


def known_cause(code: str) -> CudaCause:
    """Return a cause in the words of the table of failures."""
    kind = load_problems()[code]
    return CudaCause(code, kind.message, kind.why)


def cuda_cause(status: int, context: CudaContext) -> CudaCause:
    """Return the cause of a CUresult: that of the table, or the closer one that the context shows."""
    error = load_errors("cuda").get(status)
    cause = known_cause(error.code if error else "cuda-error")
    narrow = _NARROWED.get(status)
    return narrow(cause, context) if narrow else cause


def _not_initialized(cause: CudaCause, context: CudaContext) -> CudaCause:
    if context.blackwells < 2:
        return cause
    return replace(
        cause,
        why="with several Blackwell GPUs, nvidia_uvm's heterogeneous memory fails under address randomization",
        near=("several-blackwells",),
    )


def _no_device(cause: CudaCause, context: CudaContext) -> CudaCause:
    if context.unsliced:
        return known_cause("mig-without-instances")
    return _unreached(cause, context)


def _unreached(cause: CudaCause, context: CudaContext) -> CudaCause:
    """NVML reaches the card and CUDA does not: what only CUDA needs is missing."""
    if context.wsl:
        return _unreached_in_wsl(cause, context.library)
    if context.container is None and not context.without_uvm:
        return cause
    return CudaCause(
        code="device-nodes-unusable",
        message=cause.message,
        why="CUDA needs /dev/nvidia-uvm, which NVML does not",
    )


def _unreached_in_wsl(cause: CudaCause, library: str | None) -> CudaCause:
    if library is None or library.startswith("/usr/lib/wsl/"):
        return replace(
            cause,
            why="WSL no longer finds the Windows driver",
            problem="wsl-driver-unreachable",
        )
    return replace(
        known_cause("wsl-linux-driver"),
        why=f"libcuda is {library}, and the one that reaches Windows lies in /usr/lib/wsl/lib",
    )


def _not_ready(cause: CudaCause, context: CudaContext) -> CudaCause:
    """Without an NVSwitch in sight there is no fabric to wait for here; from Blackwell on none is on the bus."""
    if context.switches != 0 or context.blackwells:
        return cause
    return replace(
        cause,
        message="the GPUs are not ready for CUDA",
        why="confidential computing waits for its ready state, or this guest's host has no fabric manager",
        near=("no-switch",),
    )


def _mismatch(cause: CudaCause, context: CudaContext) -> CudaCause:
    if is_compat(context.library):
        return _compat_not_allowed(context.library)
    if context.container:
        return replace(
            cause,
            why="the image contains its own driver libraries, or the host's driver was updated while the container ran",
        )
    if not context.differs:
        return cause
    return replace(
        cause,
        message=f"the kernel module ({context.driver}) and libcuda ({context.library_version}) differ",
    )


def _compat_unsupported(cause: CudaCause, context: CudaContext) -> CudaCause:
    if is_compat(context.library):
        return _compat_not_allowed(context.library)
    if context.container:
        return replace(
            cause,
            why="the image's CUDA is newer than the host's driver, or that was updated while the container ran",
        )
    if not context.differs:
        return cause
    mismatch = known_cause("driver-library-mismatch")
    return replace(
        cause,
        why=mismatch.why,
        problem=mismatch.code,
    )


def _compat_not_allowed(library: str | None) -> CudaCause:
    folder = str(PurePosixPath(library or "").parent)
    return replace(
        known_cause("forward-compatibility-unsupported"),
        why=f"it comes from {folder}, NVIDIA's forward-compatibility package, which is for data-centre GPUs",
        words=(("folder", folder),),
    )


_NARROWED: dict[int, Callable[[CudaCause, CudaContext], CudaCause]] = {
    3: _not_initialized,
    100: _no_device,
    101: _no_device,
    802: _not_ready,
    803: _mismatch,
    804: _compat_unsupported,
    999: _unreached,
}
