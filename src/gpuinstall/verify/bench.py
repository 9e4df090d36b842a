"""How fast an environment is on each device, measured by its own torch."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from gpuinstall.base.backend import CPU
from gpuinstall.base.values import dataclass
from gpuinstall.verify.devices import CPU_TARGET, DeviceTarget, device_targets
from gpuinstall.verify.interpreter import inspect_interpreter
from gpuinstall.verify.kernel_run import KERNEL_SECONDS, KernelRun

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gpuinstall.base.machine import Machine
    from gpuinstall.base.reporter import Reporter


@dataclass(frozen=True)
class Measurement:
    """One number with its unit."""

    name: str
    value: float
    unit: str


@dataclass(frozen=True)
class DeviceBench:
    """The measurements on one device."""

    index: int
    name: str
    measurements: tuple[Measurement, ...]
    left_out: Mapping[str, str]
    """Why other measurements could not be taken, by their names."""


@dataclass(frozen=True)
class Bench:
    """One run."""

    torch: str | None
    """The version of torch that was measured."""

    devices: tuple[DeviceBench, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return what ``verify --json`` shows of it."""
        return asdict(self)


def bench_environment(
    python: Path,
    machine: Machine,
    *,
    for_cpu: bool,
    reporter: Reporter,
) -> Bench:
    """Measure the torch of an interpreter on every GPU, one after another, or on the CPU if there is none.

    Raises:
        UsageError: if ``python`` is no interpreter.
    """
    interpreter = inspect_interpreter(python)
    torch = interpreter.tested
    targets: tuple[DeviceTarget, ...] = (CPU_TARGET,)
    if machine.gpus and not for_cpu and torch.backend != CPU:
        targets = device_targets(machine, kind=torch.kind, gpus=None, environ=os.environ)
    run = KernelRun(python, interpreter.flags, "bench", KERNEL_SECONDS["bench"])
    devices = []
    for target in targets:
        reporter.wait(f"measuring {target.name}")
        devices.append(_measure(run, target))
    return Bench(torch.version, tuple(devices))


def _measure(run: KernelRun, target: DeviceTarget) -> DeviceBench:
    (report,) = run.run_all([target])
    left_out = {
        record.name: record.message or "" for record in report.records if record.status != "passed"
    }
    if target.unproven:
        left_out["device"] = target.unproven
    measurements = [
        Measurement(row["measure"], round(row["value"], 4), row["unit"]) for row in report.measures
    ]
    return DeviceBench(target.index, target.name, tuple(measurements), left_out)
