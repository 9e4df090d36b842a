"""One CUDA error, many causes: what else is known about the machine tells them apart. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from gpuinstall.failures import problems
from gpuinstall.failures.problems import FixContext
from gpuinstall.failures.table import load_errors, load_problems
from gpuinstall.vendors.nvidia.chips import drivers
from gpuinstall.vendors.nvidia.libcuda import is_compat
from gpuinstall.vendors.prober import format_gpus
from gpuinstall.versions import ComputeCapability, DriverVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuinstall.finding import Finding
    from gpuinstall.machine import Machine


@dataclass(frozen=True)
class CudaCause:
    """Why CUDA refuses: ``{where}`` in the message stands for the GPUs.

    ``of`` names the problem behind it, where it is another than usual here; ``near`` and ``words`` narrow the fix.
    """

    code: str
    message: str
    why: str
    of: str | None = None
    near: tuple[str, ...] = ()
    words: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class CudaContext:
    """What is known where CUDA refused. ``driver`` is the kernel module's release, ``library`` the file of libcuda.

    ``fix_context`` is where a fix would be applied, ``blackwells`` counts such GPUs, ``unsliced`` says that the GPU is
    in MIG mode without a slice, ``uvm`` whether /dev/nvidia-uvm can be opened.
    """

    wsl: bool = False
    container: str | None = None
    fix_context: FixContext = field(default_factory=FixContext)
    driver: DriverVersion | None = None
    library: str | None = None
    blackwells: int = 0
    unsliced: bool = False
    uvm: bool | None = None

    @classmethod
    def of(cls, machine: Machine, library: str | None = None) -> CudaContext:
        """Take from a machine what matters here."""
        capabilities = [gpu.compute_capability for gpu in machine.gpus]
        return cls(
            wsl=machine.environment.wsl,
            container=machine.environment.container,
            fix_context=FixContext.of_machine(machine),
            driver=machine.driver.version if machine.driver else None,
            library=library,
            blackwells=blackwells(capabilities),
        )

    @property
    def compat(self) -> bool:
        """Whether libcuda comes from NVIDIA's forward-compatibility package."""
        return is_compat(self.library)

    @property
    def library_version(self) -> DriverVersion | None:
        """The driver's release in the name of libcuda's file; None where it is not there."""
        try:
            version = DriverVersion.parse((self.library or "").rpartition("libcuda.so.")[2])
        except ValueError:
            return None
        return version if len(version.parts) > 1 else None

    @property
    def differs(self) -> bool:
        """Whether libcuda and the kernel module are known to be of different releases."""
        return self.driver is not None and self.library_version not in (None, self.driver)


def blackwells(capabilities: Iterable[ComputeCapability | None]) -> int:
    """Count the chips that only the open kernel module drives."""
    first = drivers().kernel_modules.open_only_from
    return sum(capability is not None and capability >= first for capability in capabilities)


def cuda_refusal(status: int, context: CudaContext, gpus: tuple[int, ...] = ()) -> Finding:
    """Say why CUDA returned ``status``: for these GPUs, or for the whole machine where none are named."""
    return problem_of_cause(cuda_cause(status, context), gpus, cuda_evidence(status, context), context.fix_context)


def cuda_cause(status: int, context: CudaContext) -> CudaCause:
    """Find the cause of a CUresult."""
    narrow, error = _NARROWED.get(status), load_errors("cuda").get(status)
    cause = known_cause(error.code if error else "cuda-error")
    return cause if narrow is None else narrow(cause, context)


def known_cause(code: str) -> CudaCause:
    """Read a cause in the words of the table of failures."""
    kind = load_problems()[code]
    return CudaCause(code, kind.message, kind.why)


def problem_of_cause(
    cause: CudaCause, gpus: tuple[int, ...], facts: str | None, fix_context: FixContext, *, blocking: bool = True
) -> Finding:
    """Make a cause a problem of these GPUs."""
    message = cause.message.format(where=format_gpus(gpus))
    closer = fix_context.near(*cause.near).knowing(gpu=",".join(map(str, gpus)) or "<gpu>", **dict(cause.words))
    finding = problems.finding_for(
        cause.of or cause.code, message, closer, why=cause.why, evidence=facts, gpus=gpus, blocking=blocking
    )
    return replace(finding, code=cause.code)


def cuda_evidence(status: int, context: CudaContext) -> str:
    """The facts behind a refusal."""
    driver, error = context.driver and f"driver {context.driver}", load_errors("cuda").get(status)
    facts = (f"CUDA error {status} ({error.name if error else f'CUresult {status}'})", driver, context.library)
    return " · ".join(fact for fact in facts if fact)


def _not_initialized(cause: CudaCause, context: CudaContext) -> CudaCause:
    if context.blackwells < 2:
        return cause
    why = "with several Blackwell GPUs, nvidia_uvm's heterogeneous memory fails under address randomization"
    return replace(cause, why=why, near=("several-blackwells",))


def _no_device(cause: CudaCause, context: CudaContext) -> CudaCause:
    return known_cause("mig-without-instances") if context.unsliced else _unreached(cause, context)


def _unreached(cause: CudaCause, context: CudaContext) -> CudaCause:
    """NVML reaches the card and CUDA does not: what only CUDA needs is missing."""
    if context.wsl and (context.library is None or context.library.startswith("/usr/lib/wsl/")):
        return replace(cause, why="WSL has lost the Windows driver", of="wsl-driver-unreachable")
    if context.wsl:
        why = f"libcuda is {context.library}, and the one that reaches Windows lies in /usr/lib/wsl/lib"
        return replace(known_cause("wsl-linux-driver"), why=why)
    if context.container is None and context.uvm is not False:
        return cause
    return CudaCause("device-nodes-unusable", cause.message, "CUDA needs /dev/nvidia-uvm, which NVML does not")


def _mismatch(cause: CudaCause, context: CudaContext) -> CudaCause:
    if context.compat:
        return _without_compat(context)
    if context.container:
        why = "the image has driver libraries of its own, or the host's driver was updated under the container"
        return replace(cause, why=why)
    if not context.differs:
        return cause
    kernel, library = context.driver, context.library_version
    return replace(cause, message=f"the kernel module ({kernel}) and libcuda ({library}) differ")


def _compat_unsupported(cause: CudaCause, context: CudaContext) -> CudaCause:
    if context.compat:
        return _without_compat(context)
    if context.container:
        why = "the image's CUDA is newer than the host's driver, or that was updated under the container"
        return replace(cause, why=why)
    if not context.differs:
        return cause
    return replace(cause, why=known_cause("driver-library-mismatch").why, of="driver-library-mismatch")


def _without_compat(context: CudaContext) -> CudaCause:
    folder = str(PurePosixPath(context.library or "").parent)
    why = f"it comes from {folder}, NVIDIA's forward-compatibility package, which is for data-centre GPUs"
    return replace(known_cause("forward-compatibility-unsupported"), why=why, words=(("folder", folder),))


_NARROWED: dict[int, Callable[[CudaCause, CudaContext], CudaCause]] = {
    3: _not_initialized,
    100: _no_device,
    101: _no_device,
    803: _mismatch,
    804: _compat_unsupported,
    999: _unreached,
}
