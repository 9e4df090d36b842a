"""What surrounds an error: said by the text, or known of the machine it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.failures.table import load_circumstances
from gpuinstall.versions import ComputeCapability, CudaVersion

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from gpuinstall.failures.transcript import Transcript
    from gpuinstall.machine import Machine

TURING = ComputeCapability(7, 5)
BLACKWELL = ComputeCapability(10, 0)
GB10 = ComputeCapability(12, 1)


class Circumstances:
    """Answers whether a named circumstance holds; each is looked for once, and only when asked for."""

    def __init__(self, transcript: Transcript, machine: Machine | None, known: Collection[str] = ()) -> None:
        self._transcript = transcript
        self._held = dict.fromkeys((*known, *(of_machine(machine) if machine else ())), True)

    def hold(self, name: str) -> bool:
        """Say whether the circumstance ``name`` holds."""
        if name not in self._held:
            patterns = load_circumstances()[name]
            self._held[name] = any(self._transcript.find(pattern) is not None for pattern in patterns)
        return self._held[name]


def of_machine(machine: Machine) -> frozenset[str]:
    """Name the circumstances that a machine shows."""
    return frozenset((*_of_platform(machine), *_of_driver(machine), *_of_gpus(machine)))


def _of_platform(machine: Machine) -> Iterator[str]:
    environment = machine.environment
    if machine.os in ("windows", "macos"):
        yield machine.os
    if environment.wsl:
        yield "wsl"
    if environment.container:
        yield "container"
    if environment.l4t:
        yield "jetson"
    if machine.os == "linux" and not (environment.wsl or environment.container or environment.l4t):
        yield "native-linux"
    if machine.arch in ("aarch64", "arm64") and machine.os == "linux" and not environment.l4t:
        yield from ("aarch64", "aarch64-server")


def _of_driver(machine: Machine) -> Iterator[str]:
    driver = machine.driver
    if driver is None:
        return
    if driver.version and 525 <= driver.version.branch <= 529:
        yield "driver-525"
    if driver.version and 570 <= driver.version.branch <= 579:
        yield "driver-570"
    if driver.version and driver.version.branch >= 590:
        yield "driver-590"
    if driver.cuda in (CudaVersion(12, 8), CudaVersion(12, 9)):
        yield "cuda-12-8-driver"


def _of_gpus(machine: Machine) -> Iterator[str]:
    capabilities = {gpu.compute_capability for gpu in machine.gpus if gpu.compute_capability}
    if machine.gpus:
        yield from ("nvidia", "nvidia-card")
    if any(gpu.mig for gpu in machine.gpus):
        yield "mig"
    if len({capability.major for capability in capabilities}) > 1:
        yield "mixed"
    elif capabilities:
        yield _generation(max(capabilities))
    if GB10 in capabilities:
        yield "gb10"


def _generation(capability: ComputeCapability) -> str:
    if capability < TURING:
        return "pre-turing"
    return "blackwell" if capability >= BLACKWELL else "earlier-card"
