"""One CUDA error, many causes: what else is known about the machine tells them apart. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from gpuinstall.failures.problems import FixContext, fix_of
from gpuinstall.machine import Problem
from gpuinstall.probe.cuda_errors import CAUSES, UNLISTED, Cause, name_of
from gpuinstall.probe.libcuda import is_compat
from gpuinstall.versions import DriverVersion

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuinstall.machine import Machine

BLACKWELL = 10


@dataclass(frozen=True)
class Scene:
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
    def of(cls, machine: Machine, library: str | None = None) -> Scene:
        """Take from a machine what matters here."""
        capabilities = [gpu.compute_capability for gpu in machine.gpus]
        return cls(
            wsl=machine.environment.wsl,
            container=machine.environment.container,
            distribution=machine.distribution,
            driver=machine.driver.version if machine.driver else None,
            library=library,
            blackwells=sum(known is not None and known.major >= BLACKWELL for known in capabilities),
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
    def anew(self) -> str:
        """How this kind of container is started anew with GPUs."""
        place = FixContext((self.container,) if self.container else ())
        return f"start it anew: {fix_of('start-container-with-gpus', place)}"


def refusal(status: int, scene: Scene, gpus: tuple[int, ...] = ()) -> Problem:
    """Say why CUDA returned ``status``: for these GPUs, or for the whole machine where none are named."""
    return problem(cause_of(status, scene), gpus, seen(status, scene))


def cause_of(status: int, scene: Scene) -> Cause:
    """Find the cause of a CUresult."""
    narrow = _NARROWED.get(status)
    cause = CAUSES.get(status, UNLISTED)
    return cause if narrow is None else narrow(cause, scene)


def problem(cause: Cause, gpus: tuple[int, ...], facts: str | None, *, blocking: bool = True) -> Problem:
    """Make a cause a problem of these GPUs."""
    return Problem(
        code=cause.code,
        message=cause.message.format(where=place_of(gpus)),
        fix=cause.fix or None,
        id=cause.id,
        blocking=blocking,
        gpus=gpus,
        why=cause.why,
        seen=facts,
        needs=cause.needs,
    )


def place_of(gpus: tuple[int, ...]) -> str:
    """Name GPUs within a sentence."""
    *first, last = [str(gpu) for gpu in gpus] or ["the GPU"]
    if first:
        return f"GPUs {', '.join(first)} and {last}"
    return f"GPU {last}" if gpus else last


def seen(status: int, scene: Scene) -> str:
    """The facts behind a refusal."""
    facts = (f"CUDA error {status} ({name_of(status)})", scene.driver and f"driver {scene.driver}", scene.library)
    return " · ".join(fact for fact in facts if fact)


def _not_initialized(cause: Cause, scene: Scene) -> Cause:
    if scene.blackwells < 2:
        return cause
    return replace(
        cause,
        why="with several Blackwell GPUs, nvidia_uvm's heterogeneous memory fails under address randomization",
        fix="echo 'options nvidia_uvm uvm_disable_hmm=1' | sudo tee /etc/modprobe.d/nvidia-uvm.conf\nsudo reboot",
        needs=("root", "reboot"),
    )


def _no_device(cause: Cause, scene: Scene) -> Cause:
    return _unsliced(cause) if scene.unsliced else _unreached(cause, scene)


def _unsliced(cause: Cause) -> Cause:
    return replace(
        cause,
        code="mig-without-instances",
        message="{where} is in MIG mode and has no compute instance",
        why="CUDA sees MIG's instances only, and there are none",
        fix="nvidia-smi mig -lgip\nsudo nvidia-smi mig -cgi <profile> -C\nor, without MIG: sudo nvidia-smi -mig 0",
        id="F17",
    )


def _unreached(cause: Cause, scene: Scene) -> Cause:
    """NVML reaches the card and CUDA does not: what only CUDA needs is missing."""
    if scene.wsl:
        return _wsl(cause, scene)
    if scene.container is None and scene.uvm is not False:
        return cause
    nodes = replace(CAUSES[304], message=cause.message, why="CUDA needs /dev/nvidia-uvm, which NVML does not")
    if scene.container is None:
        return nodes
    return replace(nodes, fix=f"on the host: sudo nvidia-modprobe -c 0 -u\nthen {scene.anew}")


def _wsl(cause: Cause, scene: Scene) -> Cause:
    if scene.library is None or scene.library.startswith("/usr/lib/wsl/"):
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
        why=f"libcuda is {scene.library}, and the one that reaches Windows lies in /usr/lib/wsl/lib",
        fix="sudo apt-get purge '^libnvidia-.*' '^nvidia-.*'\nwsl.exe --shutdown",
        id="F23",
    )


def _system_not_ready(cause: Cause, scene: Scene) -> Cause:
    if scene.container:
        return replace(cause, fix="\n".join(f"on the host: {line}" for line in cause.fix.splitlines()))
    return replace(cause, fix=f"{_install_fabric_manager(scene)}\n{cause.fix}")


def _install_fabric_manager(scene: Scene) -> str:
    distribution = (scene.distribution or "").lower()
    if scene.driver is None:
        return "install nvidia-fabricmanager, of the driver's own version"
    if any(name in distribution for name in ("ubuntu", "debian")):
        return f"sudo apt-get install nvidia-fabricmanager-{scene.driver.branch}   # must be {scene.driver}"
    if any(name in distribution for name in ("red hat", "rocky", "alma", "centos", "fedora", "amazon", "oracle")):
        return f"sudo dnf install nvidia-fabricmanager-{scene.driver}"
    if "suse" in distribution:
        return f"sudo zypper install nvidia-fabricmanager-{scene.driver}"
    return f"install nvidia-fabricmanager {scene.driver}"


def _mismatch(cause: Cause, scene: Scene) -> Cause:
    if scene.compat:
        return _without_compat(CAUSES[804], scene)
    if scene.container:
        return replace(
            cause,
            why="the image has driver libraries of its own, or the host's driver was updated under the container",
            fix=f"{scene.anew}\nand take libcuda.so* and libnvidia-* out of the image",
            needs=(),
        )
    if not scene.differs:
        return cause
    return replace(cause, message=f"the kernel module ({scene.driver}) and libcuda ({scene.library_version}) differ")


def _compat_unsupported(cause: Cause, scene: Scene) -> Cause:
    if scene.compat:
        return _without_compat(cause, scene)
    if scene.container:
        return replace(
            cause,
            why="the image's CUDA is newer than the host's driver, or that was updated under the container",
            fix=f"{scene.anew}\nor take an image with an older CUDA",
        )
    updated = CAUSES[803]
    return replace(cause, why=updated.why, fix=updated.fix, needs=updated.needs) if scene.differs else cause


def _without_compat(cause: Cause, scene: Scene) -> Cause:
    folder = PurePosixPath(scene.library or "").parent
    return replace(
        cause,
        why=f"it comes from {folder}, NVIDIA's forward-compatibility package, which is for data-centre GPUs",
        fix=f"unset LD_LIBRARY_PATH   # or take {folder} out of it\ngrep -rl compat /etc/ld.so.conf.d",
    )


_NARROWED: dict[int, Callable[[Cause, Scene], Cause]] = {
    3: _not_initialized,
    100: _no_device,
    101: _no_device,
    802: _system_not_ready,
    803: _mismatch,
    804: _compat_unsupported,
    999: _unreached,
}
