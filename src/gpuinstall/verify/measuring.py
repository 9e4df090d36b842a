"""The measurements: taken by an environment's own torch, beside what the card is published to reach."""

from __future__ import annotations

import os
import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from gpuinstall.backend import CPU
from gpuinstall.reporter import SilentReporter
from gpuinstall.vendors.prober import GpuHealth
from gpuinstall.verify.bench import Bench, DeviceBench, Measurement
from gpuinstall.verify.devices import CPU_TARGET, device_targets, read_health
from gpuinstall.verify.interpreter import inspect_interpreter
from gpuinstall.verify.kernel_run import SECONDS, KernelRun

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpuinstall.machine import Machine
    from gpuinstall.reporter import Reporter
    from gpuinstall.verify.devices import DeviceTarget
    from gpuinstall.verify.kernel_run import KernelReport

PRODUCTS = ("float32", "tf32", "float16", "bfloat16", "fp8")
PINNED = ("host-to-device-pinned", "device-to-host-pinned")


def bench_environment(
    python: Path, machine: Machine, *, for_cpu: bool = False, reporter: Reporter | None = None
) -> Bench:
    """Measure the torch of ``python`` on every GPU of ``machine``, one after another, or on the CPU where it has none.

    Raise UsageError where ``python`` is no interpreter.
    """
    reporter = reporter or SilentReporter()
    interpreter = inspect_interpreter(python)
    for_cpu = for_cpu or interpreter.tested.backend == CPU or not machine.gpus
    run = KernelRun(python, interpreter.flags, "bench", SECONDS["bench"])
    kind = interpreter.tested.kind
    targets = (CPU_TARGET,) if for_cpu else device_targets(machine, kind=kind, gpus=None, environ=os.environ)
    health = read_health(targets)
    devices = tuple(_measured(run, target, health.get(target.index, GpuHealth()), reporter) for target in targets)
    return Bench(interpreter.tested.version, devices)


def _measured(run: KernelRun, target: DeviceTarget, health: GpuHealth, reporter: Reporter) -> DeviceBench:
    reporter.wait(f"measuring {target.name}")
    report = run.run_all([target])[0]
    left_out = {record.name: record.message or "" for record in report.records if record.status != "passed"}
    if target.unproven:
        left_out["device"] = target.unproven
    return DeviceBench(target.index, target.name, tuple(_measurements(report, target, health)), left_out)


def _measurements(report: KernelReport, target: DeviceTarget, health: GpuHealth) -> Iterator[Measurement]:
    ceilings = {**ceilings_of(target.name), **dict.fromkeys(PINNED, health.link_rate)}
    for found in report.measures:
        name, value = found["measure"], round(found["value"], 4)
        yield Measurement(name, value, found["unit"], ceilings.get(name), found.get("settings"))


def load_cards() -> list[dict[str, Any]]:
    """Read what cards are published to reach: authored rows with source and date."""
    import tomli

    cards: list[dict[str, Any]] = tomli.loads(
        files("gpuinstall.verify").joinpath("data", "ceilings.toml").read_text(encoding="utf-8")
    )["card"]
    return cards


def ceilings_of(name: str) -> dict[str, float]:
    """Give the ceilings of a card by the names of the measurements; empty for a card that no row names."""
    bare = name.removeprefix("NVIDIA ")
    row = next((card for card in load_cards() if re.fullmatch(card["name"], bare)), {})
    found = {f"product-{kind}": float(row[kind]) for kind in PRODUCTS if kind in row}
    return found | ({"memory": float(row["memory"])} if row else {})
