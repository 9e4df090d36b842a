"""How fast an environment is on each device, measured by its own torch, beside what the card is published to reach."""

from __future__ import annotations

import os
import re
from dataclasses import asdict
from importlib.resources import files
from math import isfinite
from typing import TYPE_CHECKING, Any

import tomli

from gpuinstall.backend import CPU
from gpuinstall.errors import UsageError
from gpuinstall.reporter import Reporter, SilentReporter
from gpuinstall.values import dataclass
from gpuinstall.vendors.prober import GpuHealth
from gpuinstall.verify.devices import CPU_TARGET, DeviceTarget, device_targets, read_health
from gpuinstall.verify.interpreter import inspect_interpreter
from gpuinstall.verify.kernel_run import KERNEL_SECONDS, KernelRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gpuinstall.machine import Machine

BENCH_SCHEMA = "gpuinstall.bench/1"
NOISE = 0.05
LESS_IS_BETTER = frozenset({"launch"})
PRODUCTS = ("float32", "tf32", "float16", "bfloat16", "fp8")
PINNED = ("host-to-device-pinned", "device-to-host-pinned")


@dataclass(frozen=True)
class Measurement:
    """One number with its unit."""

    name: str
    value: float
    unit: str
    ceiling: float | None = None
    """The published one."""

    settings: Mapping[str, Any] | None = None
    """What a DataLoader reached it with."""

    @property
    def share(self) -> float | None:
        """How far it got towards the ceiling, 0 to 1."""
        return self.value / self.ceiling if self.ceiling else None

    def to_dict(self) -> dict[str, Any]:
        """Return it as the document has it."""
        document: dict[str, Any] = {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "ceiling": self.ceiling,
            "share": None if self.share is None else round(self.share, 3),
        }
        if self.settings:
            document["settings"] = dict(self.settings)
        return document


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
    """One run; the document is ``gpuinstall.bench/1``."""

    torch: str | None
    """The version of torch that was measured."""

    devices: tuple[DeviceBench, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the document."""
        devices = []
        for device in self.devices:
            measurements = [measurement.to_dict() for measurement in device.measurements]
            devices.append(asdict(device) | {"measurements": measurements})
        return {"schema": BENCH_SCHEMA, "torch": self.torch, "devices": devices}

    @classmethod
    def from_dict(cls, document: object) -> Bench:
        """Read the document of an earlier run; raise UsageError if it is none."""
        if not isinstance(document, dict) or document.get("schema") != BENCH_SCHEMA:
            raise UsageError(
                "bench-malformed", f"the earlier run is not a {BENCH_SCHEMA!r} document"
            )
        try:
            return cls(document["torch"], tuple(map(_read_device, document["devices"])))
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise UsageError(
                "bench-malformed", f"the earlier run is malformed at {error}"
            ) from None


def _read_device(document: Mapping[str, Any]) -> DeviceBench:
    return DeviceBench(
        int(document["index"]),
        str(document["name"]),
        tuple(map(_read_measurement, document["measurements"])),
        left_out=document.get("left_out", {}),
    )


def _read_measurement(document: Mapping[str, Any]) -> Measurement:
    value = float(document["value"])
    if not isfinite(value):
        raise ValueError(f"the value {document['value']!r}")
    return Measurement(
        str(document["name"]),
        value,
        str(document["unit"]),
        ceiling=document.get("ceiling"),
        settings=document.get("settings"),
    )


@dataclass(frozen=True)
class BenchChange:
    """One measurement, then and now."""

    device: str
    name: str
    before: float
    now: float
    unit: str

    @property
    def gain(self) -> float:
        """How much better it is, as a fraction of what it was: +0.10 is a tenth better."""
        better, worse = self.now, self.before
        if self.name in LESS_IS_BETTER:
            better, worse = worse, better
        return better / worse - 1 if worse else 0.0

    @property
    def worse(self) -> bool:
        """Whether it is worse by more than two runs of the same thing differ."""
        return self.gain < -NOISE

    def to_dict(self) -> dict[str, Any]:
        """Return it as the document has it."""
        return asdict(self) | {"gain": round(self.gain, 3)}


def bench_environment(
    python: Path,
    machine: Machine,
    *,
    for_cpu: bool = False,
    reporter: Reporter | None = None,
) -> Bench:
    """Measure the torch of an interpreter on every GPU, one after another, or on the CPU if there is none.

    Raises:
        UsageError: if ``python`` is no interpreter.
    """
    reporter = reporter or SilentReporter()
    interpreter = inspect_interpreter(python)
    torch = interpreter.tested
    targets: tuple[DeviceTarget, ...] = (CPU_TARGET,)
    if machine.gpus and not for_cpu and torch.backend != CPU:
        targets = device_targets(
            machine,
            kind=torch.kind,
            gpus=None,
            environ=os.environ,
        )
    run = KernelRun(
        python,
        interpreter.flags,
        "bench",
        KERNEL_SECONDS["bench"],
    )
    health = read_health(targets)
    devices = []
    for target in targets:
        reporter.wait(f"measuring {target.name}")
        devices.append(_measure(run, target, health.get(target.index, GpuHealth())))
    return Bench(torch.version, tuple(devices))


def _measure(
    run: KernelRun,
    target: DeviceTarget,
    health: GpuHealth,
) -> DeviceBench:
    (report,) = run.run_all([target])
    left_out = {
        record.name: record.message or "" for record in report.records if record.status != "passed"
    }
    if target.unproven:
        left_out["device"] = target.unproven
    ceilings: dict[str, float | None] = dict.fromkeys(PINNED, health.link_rate)
    ceilings.update(ceilings_of(target.name, target.gpu.memory_mib if target.gpu else None))
    measurements = [
        Measurement(
            row["measure"],
            round(row["value"], 4),
            row["unit"],
            ceiling=ceilings.get(row["measure"]),
            settings=row.get("settings"),
        )
        for row in report.measures
    ]
    return DeviceBench(
        target.index,
        target.name,
        tuple(measurements),
        left_out,
    )


def compare(now: Bench, before: Bench) -> tuple[BenchChange, ...]:
    """Compare what both runs measured on the same devices."""
    earlier = dict(_measurements(before))
    changes = []
    for key, measurement in _measurements(now):
        if key in earlier:
            _, device, name = key
            changes.append(
                BenchChange(
                    device,
                    name,
                    before=earlier[key].value,
                    now=measurement.value,
                    unit=measurement.unit,
                )
            )
    return tuple(changes)


def _measurements(bench: Bench) -> Iterator[tuple[tuple[int, str, str], Measurement]]:
    for device in bench.devices:
        for measurement in device.measurements:
            yield (device.index, device.name, measurement.name), measurement


def load_cards() -> list[dict[str, Any]]:
    """Read what cards are published to reach: authored rows with source and date."""
    text = files("gpuinstall.verify").joinpath("data", "ceilings.toml").read_text("utf-8")
    cards: list[dict[str, Any]] = tomli.loads(text)["card"]
    return cards


def ceilings_of(name: str, memory_mib: int | None = None) -> dict[str, float]:
    """Return the ceilings of a card by the names of the measurements; empty for a card that no row names.

    If two cards share a name, the memory tells which it is.
    """
    bare = name.removeprefix("NVIDIA ")
    rows = [card for card in load_cards() if re.fullmatch(card["name"], bare)]
    if len(rows) > 1:
        gib = round((memory_mib or 0) / 1024)
        rows = [card for card in rows if card["gib"] == gib]
    if not rows:
        return {}
    row = rows[0]
    ceilings = {f"product-{kind}": float(row[kind]) for kind in PRODUCTS if kind in row}
    ceilings["memory"] = float(row["memory"])
    return ceilings
