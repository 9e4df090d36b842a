"""What surrounds an error: said by the text, or known of the machine it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuinstall.failures.problems import LINUX, FixContext, distribution_keys
from gpuinstall.failures.table import load_circumstances, load_machine_circumstances

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuinstall.failures.transcript import Transcript
    from gpuinstall.machine import Machine

# Where a text may come from, the closest first; the last of them are systems without a distribution.
PLACES = ("wsl", "windows", "container", "conda", "macos")
OTHER_SYSTEMS = {"windows", "macos"}
ARM = ("aarch64", "arm64")


class Circumstances:
    """Answers whether a named circumstance holds; each is looked for once, and only when asked for."""

    def __init__(self, transcript: Transcript, machine: Machine | None) -> None:
        self._transcript = transcript
        self._held = dict.fromkeys(of_machine(machine) if machine else (), True)

    def hold(self, name: str) -> bool:
        """Say whether the circumstance ``name`` holds."""
        if name not in self._held:
            patterns = load_circumstances()[name]
            self._held[name] = any(self._transcript.find(pattern) is not None for pattern in patterns)
        return self._held[name]

    def fix_context(self, machine: Machine | None) -> FixContext:
        """Say where a fix will be applied: what the text says goes before the machine on which it is read."""
        here = FixContext.of_machine(machine) if machine else FixContext((LINUX,))
        told = tuple(name for name in PLACES if self.hold(name))
        if not told and not self.hold("native-linux"):
            return here
        system = () if OTHER_SYSTEMS.intersection(told) else (*distribution_keys(_distribution(machine)), LINUX)
        engine = (machine.environment.container,) if machine and "container" in told else ()
        return FixContext((*filter(None, engine), *told, *system), here.words)


def of_machine(machine: Machine) -> frozenset[str]:
    """Name the circumstances that a machine shows."""
    return frozenset((*_of_platform(machine), *_of_gpus(machine)))


def _distribution(machine: Machine | None) -> str:
    return (machine.distribution if machine else None) or ""


def _of_platform(machine: Machine) -> Iterator[str]:
    environment = machine.environment
    around = {"wsl": environment.wsl, "container": environment.container, "jetson": environment.l4t}
    yield from (name for name, there in around.items() if there)
    if machine.os in OTHER_SYSTEMS:
        yield machine.os
    elif not any(around.values()):
        yield "native-linux"
    if machine.arch in ARM and machine.os == LINUX and not environment.l4t:
        yield from ("aarch64", "aarch64-server")


def _of_gpus(machine: Machine) -> Iterator[str]:
    """Compare the driver's branch, its CUDA and the GPUs with the bounds of the table."""
    driver, capabilities = machine.driver, {gpu.compute_capability for gpu in machine.gpus if gpu.compute_capability}
    mixed = len({capability.major for capability in capabilities}) > 1
    found: dict[str, list[tuple[int, ...]]] = {
        "driver": [(driver.version.branch,)] if driver and driver.version else [],
        "cuda": [tuple(driver.cuda)] if driver and driver.cuda else [],
        "newest": [] if mixed or not capabilities else [tuple(max(capabilities))],
        "any": list(map(tuple, capabilities)),
    }
    for row in load_machine_circumstances():
        if any(_is_within(row[name], value) for name, values in found.items() if name in row for value in values):
            yield from row["holds"]
    if mixed:
        yield "mixed"
    if any(gpu.mig for gpu in machine.gpus):
        yield "mig"


def _is_within(bounds: Mapping[str, Any], value: tuple[int, ...]) -> bool:
    low, high, end = (_numbers(bounds.get(name)) for name in ("from", "to", "below"))
    return (low is None or value >= low) and (high is None or value <= high) and (end is None or value < end)


def _numbers(text: str | None) -> tuple[int, ...] | None:
    return tuple(map(int, text.split("."))) if text else None
