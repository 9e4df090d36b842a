"""One CUDA error, many causes: what else is known about the machine tells them apart. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from gpuinstall.failures.problems import FixContext, fix_of
from gpuinstall.machine import Problem
from gpuinstall.vendors.nvidia.chips import drivers
from gpuinstall.vendors.nvidia.cuda_errors import CAUSES, UNLISTED, Cause, name_of
from gpuinstall.vendors.nvidia.libcuda import is_compat
from gpuinstall.vendors.prober import format_gpus
from gpuinstall.versions import DriverVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuinstall.machine import Machine
    from gpuinstall.versions import ComputeCapability


@dataclass(frozen=True)
class CudaContext:
    """What is known where CUDA refused. ``driver`` is the kernel module's release, ``library`` the file of libcuda.

    ``blackwells`` counts such GPUs, ``unsliced`` says that the GPU is in MIG mode without a slice, ``uvm`` whether
    /dev/nvidia-uvm can be opened.
    """

    wsl: bool = False
    container: str | None = None
    distribution: str | None = None
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
            distribution=machine.distribution,
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

    @property
    def start_again(self) -> str:
        """How this kind of container is started again with GPUs."""
        context = FixContext((self.container,) if self.container else ())
        return f"start it anew: {fix_of('start-container-with-gpus', context)}"


def blackwells(capabilities: Iterable[ComputeCapability | None]) -> int:
    """Count the chips that only the open kernel module drives."""
    return sum(
        capability is not None and capability >= drivers().kernel_modules.open_only_from for capability in capabilities
    )


def refusal(status: int, context: CudaContext, gpus: tuple[int, ...] = ()) -> Problem:
    """Say why CUDA returned ``status``: for these GPUs, or for the whole machine where none are named."""
    return problem(cause_of(status, context), gpus, evidence_line(status, context))


def cause_of(status: int, context: CudaContext) -> Cause:
    """Find the cause of a CUresult."""
    narrow = _NARROWED.get(status)
    cause = CAUSES.get(status, UNLISTED)
    return cause if narrow is None else narrow(cause, context)


def problem(cause: Cause, gpus: tuple[int, ...], facts: str | None, *, blocking: bool = True) -> Problem:
    """Make a cause a problem of these GPUs."""
    return Problem(
        code=cause.code,
        message=cause.message.format(where=format_gpus(gpus)),
        fix=cause.fix or None,
        id=cause.id,
        blocking=blocking,
        gpus=gpus,
        why=cause.why,
        seen=facts,
        needs=cause.needs,
    )


def evidence_line(status: int, context: CudaContext) -> str:
    """The facts behind a refusal."""
    facts = (f"CUDA error {status} ({name_of(status)})", context.driver and f"driver {context.driver}", context.library)
    return " · ".join(fact for fact in facts if fact)


def _not_initialized(cause: Cause, context: CudaContext) -> Cause:
    if context.blackwells < 2:
        return cause
    return replace(
        cause,
        why="with several Blackwell GPUs, nvidia_uvm's heterogeneous memory fails under address randomization",
        fix="echo 'options nvidia_uvm uvm_disable_hmm=1' | sudo tee /etc/modprobe.d/nvidia-uvm.conf\nsudo reboot",
        needs=("root", "reboot"),
    )


def _no_device(cause: Cause, context: CudaContext) -> Cause:
    return _unsliced(cause) if context.unsliced else _unreached(cause, context)


def _unsliced(cause: Cause) -> Cause:
    return replace(
        cause,
        code="mig-without-instances",
        message="{where} is in MIG mode and has no compute instance",
        why="CUDA sees MIG's instances only, and there are none",
        fix="nvidia-smi mig -lgip\nsudo nvidia-smi mig -cgi <profile> -C\nor, without MIG: sudo nvidia-smi -mig 0",
        id="F17",
    )


def _unreached(cause: Cause, context: CudaContext) -> Cause:
    """NVML reaches the card and CUDA does not: what only CUDA needs is missing."""
    if context.wsl:
        return _wsl(cause, context)
    if context.container is None and context.uvm is not False:
        return cause
    nodes = replace(CAUSES[304], message=cause.message, why="CUDA needs /dev/nvidia-uvm, which NVML does not")
    if context.container is None:
        return nodes
    return replace(nodes, fix=f"on the host: sudo nvidia-modprobe -c 0 -u\nthen {context.start_again}")


def _wsl(cause: Cause, context: CudaContext) -> Cause:
    if context.library is None or context.library.startswith("/usr/lib/wsl/"):
        return replace(
            cause,
            why="WSL has lost the Windows driver",
            fix="wsl.exe --update\nwsl.exe --shutdown",
            id="F23",
            needs=(),
        )
    return replace(
        cause,
        code="wsl-linux-driver",
        message="a Linux driver inside WSL hides the Windows driver",
        why=f"libcuda is {context.library}, and the one that reaches Windows lies in /usr/lib/wsl/lib",
        fix="sudo apt-get purge '^libnvidia-.*' '^nvidia-.*'\nwsl.exe --shutdown",
        id="F23",
    )


def _system_not_ready(cause: Cause, context: CudaContext) -> Cause:
    if context.container:
        return replace(cause, fix="\n".join(f"on the host: {line}" for line in cause.fix.splitlines()))
    return replace(cause, fix=f"{_install_fabric_manager(context)}\n{cause.fix}")


def _install_fabric_manager(context: CudaContext) -> str:
    distribution = (context.distribution or "").lower()
    if context.driver is None:
        return "install nvidia-fabricmanager, of the driver's own version"
    if any(name in distribution for name in ("ubuntu", "debian")):
        return f"sudo apt-get install nvidia-fabricmanager-{context.driver.branch}   # must be {context.driver}"
    if any(name in distribution for name in ("red hat", "rocky", "alma", "centos", "fedora", "amazon", "oracle")):
        return f"sudo dnf install nvidia-fabricmanager-{context.driver}"
    if "suse" in distribution:
        return f"sudo zypper install nvidia-fabricmanager-{context.driver}"
    return f"install nvidia-fabricmanager {context.driver}"


def _mismatch(cause: Cause, context: CudaContext) -> Cause:
    if context.compat:
        return _without_compat(CAUSES[804], context)
    if context.container:
        return replace(
            cause,
            why="the image has driver libraries of its own, or the host's driver was updated under the container",
            fix=f"{context.start_again}\nand take libcuda.so* and libnvidia-* out of the image",
            needs=(),
        )
    if not context.differs:
        return cause
    kernel, library = context.driver, context.library_version
    return replace(cause, message=f"the kernel module ({kernel}) and libcuda ({library}) differ")


def _compat_unsupported(cause: Cause, context: CudaContext) -> Cause:
    if context.compat:
        return _without_compat(cause, context)
    if context.container:
        return replace(
            cause,
            why="the image's CUDA is newer than the host's driver, or that was updated under the container",
            fix=f"{context.start_again}\nor take an image with an older CUDA",
        )
    updated = CAUSES[803]
    return replace(cause, why=updated.why, fix=updated.fix, needs=updated.needs) if context.differs else cause


def _without_compat(cause: Cause, context: CudaContext) -> Cause:
    folder = PurePosixPath(context.library or "").parent
    return replace(
        cause,
        why=f"it comes from {folder}, NVIDIA's forward-compatibility package, which is for data-centre GPUs",
        fix=f"unset LD_LIBRARY_PATH   # or take {folder} out of it\ngrep -rl compat /etc/ld.so.conf.d",
    )


_NARROWED: dict[int, Callable[[Cause, CudaContext], Cause]] = {
    3: _not_initialized,
    100: _no_device,
    101: _no_device,
    802: _system_not_ready,
    803: _mismatch,
    804: _compat_unsupported,
    999: _unreached,
}
