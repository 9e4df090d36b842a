"""One CUDA error, many causes: what else is known about the machine tells them apart. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from gpuinstall.failures import problems
from gpuinstall.failures.problems import FixContext
from gpuinstall.failures.table import load_errors, load_problems
from gpuinstall.probe.libcuda import is_compat
from gpuinstall.versions import DriverVersion

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuinstall.machine import Machine, Problem

BLACKWELL = 10
UNLISTED = "cuda-error"


@dataclass(frozen=True)
class Cause:
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
class Scene:
    """What is known where CUDA refused. ``driver`` is the kernel module's release, ``library`` the file of libcuda.

    ``context`` is where a fix would be applied, ``blackwells`` counts such GPUs, ``unsliced`` says that the GPU is in
    MIG mode without a slice, ``uvm`` whether /dev/nvidia-uvm can be opened.
    """

    wsl: bool = False
    container: str | None = None
    context: FixContext = field(default_factory=FixContext)
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
            context=FixContext.of_machine(machine),
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


def refusal(status: int, scene: Scene, gpus: tuple[int, ...] = ()) -> Problem:
    """Say why CUDA returned ``status``: for these GPUs, or for the whole machine where none are named."""
    return problem(cause_of(status, scene), gpus, seen(status, scene), scene.context)


def cause_of(status: int, scene: Scene) -> Cause:
    """Find the cause of a CUresult."""
    narrow, error = _NARROWED.get(status), load_errors("cuda").get(status)
    cause = known_cause(error.code if error else UNLISTED)
    return cause if narrow is None else narrow(cause, scene)


def known_cause(code: str) -> Cause:
    """Read a cause in the words of the table of failures."""
    kind = load_problems()[code]
    return Cause(code, kind.message, kind.why)


def problem(
    cause: Cause, gpus: tuple[int, ...], facts: str | None, context: FixContext, *, blocking: bool = True
) -> Problem:
    """Make a cause a problem of these GPUs."""
    message = cause.message.format(where=place_of(gpus))
    closer = context.near(*cause.near).knowing(gpu=",".join(map(str, gpus)) or "<gpu>", **dict(cause.words))
    found = problems.problem(
        cause.of or cause.code, message, closer, why=cause.why, seen=facts, gpus=gpus, blocking=blocking
    )
    return replace(found, code=cause.code)


def place_of(gpus: tuple[int, ...]) -> str:
    """Name GPUs within a sentence."""
    *first, last = [str(gpu) for gpu in gpus] or ["the GPU"]
    if first:
        return f"GPUs {', '.join(first)} and {last}"
    return f"GPU {last}" if gpus else last


def seen(status: int, scene: Scene) -> str:
    """The facts behind a refusal."""
    facts = (f"CUDA error {status} ({_name_of(status)})", scene.driver and f"driver {scene.driver}", scene.library)
    return " · ".join(fact for fact in facts if fact)


def _name_of(status: int) -> str:
    error = load_errors("cuda").get(status)
    return error.name if error else f"CUresult {status}"


def _not_initialized(cause: Cause, scene: Scene) -> Cause:
    if scene.blackwells < 2:
        return cause
    why = "with several Blackwell GPUs, nvidia_uvm's heterogeneous memory fails under address randomization"
    return replace(cause, why=why, near=("several-blackwells",))


def _no_device(cause: Cause, scene: Scene) -> Cause:
    return known_cause("mig-without-instances") if scene.unsliced else _unreached(cause, scene)


def _unreached(cause: Cause, scene: Scene) -> Cause:
    """NVML reaches the card and CUDA does not: what only CUDA needs is missing."""
    if scene.wsl:
        return _wsl(cause, scene)
    if scene.container is None and scene.uvm is not False:
        return cause
    why = "CUDA needs /dev/nvidia-uvm, which NVML does not"
    return Cause("device-nodes-unusable", cause.message, why)


def _wsl(cause: Cause, scene: Scene) -> Cause:
    if scene.library is None or scene.library.startswith("/usr/lib/wsl/"):
        return replace(cause, why="WSL has lost the Windows driver", of="wsl-driver-unreachable")
    why = f"libcuda is {scene.library}, and the one that reaches Windows lies in /usr/lib/wsl/lib"
    return replace(known_cause("wsl-linux-driver"), why=why)


def _mismatch(cause: Cause, scene: Scene) -> Cause:
    if scene.compat:
        return _without_compat(scene)
    if scene.container:
        why = "the image has driver libraries of its own, or the host's driver was updated under the container"
        return replace(cause, why=why)
    if not scene.differs:
        return cause
    return replace(cause, message=f"the kernel module ({scene.driver}) and libcuda ({scene.library_version}) differ")


def _compat_unsupported(cause: Cause, scene: Scene) -> Cause:
    if scene.compat:
        return _without_compat(scene)
    if scene.container:
        return replace(
            cause, why="the image's CUDA is newer than the host's driver, or that was updated under the container"
        )
    if not scene.differs:
        return cause
    return replace(cause, why=known_cause("driver-library-mismatch").why, of="driver-library-mismatch")


def _without_compat(scene: Scene) -> Cause:
    folder = str(PurePosixPath(scene.library or "").parent)
    why = f"it comes from {folder}, NVIDIA's forward-compatibility package, which is for data-centre GPUs"
    return replace(known_cause("forward-compatibility-unsupported"), why=why, words=(("folder", folder),))


_NARROWED: dict[int, Callable[[Cause, Scene], Cause]] = {
    3: _not_initialized,
    100: _no_device,
    101: _no_device,
    803: _mismatch,
    804: _compat_unsupported,
    999: _unreached,
}
