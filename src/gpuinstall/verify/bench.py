"""How fast an environment is on each device, measured by its own torch, beside what the card is published to reach."""

from __future__ import annotations

import os
import re
from dataclasses import asdict, dataclass
from importlib.resources import files
from math import isfinite
from typing import TYPE_CHECKING, Any

from gpuinstall.backend import CPU
from gpuinstall.errors import UsageError
from gpuinstall.reporter import Reporter, SilentReporter
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
    """One number with its unit; ``ceiling`` is the published one, ``settings`` what a DataLoader reached it with."""

    name: str
    value: float
    unit: str
    ceiling: float | None = None
    settings: Mapping[str, Any] | None = None

    @property
    def share(self) -> float | None:
        """How far it got towards the ceiling, 0 to 1."""
        return self.value / self.ceiling if self.ceiling else None

    def to_dict(self) -> dict[str, Any]:
        """Write it for the document."""
        share = None if self.share is None else round(self.share, 3)
        written = {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "ceiling": self.ceiling,
            "share": share,
        }
        return written | ({"settings": dict(self.settings)} if self.settings else {})


@dataclass(frozen=True)
class DeviceBench:
    """The measurements on one device, and why others could not be taken."""

    index: int
    name: str
    measurements: tuple[Measurement, ...]
    left_out: Mapping[str, str]


@dataclass(frozen=True)
class Bench:
    """One run: the torch that was measured, and every device. The document is ``gpuinstall.bench/1``."""

    torch: str | None
    devices: tuple[DeviceBench, ...]

    def to_dict(self) -> dict[str, Any]:
        """Write the document."""
        devices = [
            asdict(device)
            | {"measurements": [measurement.to_dict() for measurement in device.measurements]}
            for device in self.devices
        ]
        return {"schema": BENCH_SCHEMA, "torch": self.torch, "devices": devices}

    @classmethod
    def from_dict(cls, document: object) -> Bench:
        """Read the document of an earlier run; raise UsageError where it is none."""
        if not isinstance(document, dict) or document.get("schema") != BENCH_SCHEMA:
            raise UsageError(
                "bench-malformed", f"the earlier run is not a {BENCH_SCHEMA!r} document"
            )
        try:
            return cls(document["torch"], tuple(map(_device, document["devices"])))
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise UsageError(
                "bench-malformed", f"the earlier run is malformed at {error}"
            ) from None


@dataclass(frozen=True)
class BenchChange:
    """One measurement, then and now; ``gain`` is +0.10 where it is now a tenth better."""

    device: str
    name: str
    before: float
    now: float
    unit: str

    @property
    def gain(self) -> float:
        """How much better it is, as a fraction of what it was."""
        better, worse = (
            (self.before, self.now) if self.name in LESS_IS_BETTER else (self.now, self.before)
        )
        return better / worse - 1 if worse else 0.0

    @property
    def worse(self) -> bool:
        """Say whether it is worse by more than two runs of the same thing differ."""
        return self.gain < -NOISE

    def to_dict(self) -> dict[str, Any]:
        """Write it for the document."""
        return asdict(self) | {"gain": round(self.gain, 3)}


def bench_environment(
    python: Path, machine: Machine, *, for_cpu: bool = False, reporter: Reporter | None = None
) -> Bench:
    """Measure the torch of ``python`` on every GPU of ``machine``, one after another, or on the CPU where it has none.

    Raise UsageError where ``python`` is no interpreter.
    """
    reporter = reporter or SilentReporter()
    interpreter = inspect_interpreter(python)
    for_cpu = for_cpu or interpreter.tested.backend == CPU or not machine.gpus
    run = KernelRun(python, interpreter.flags, "bench", KERNEL_SECONDS["bench"])
    kind = interpreter.tested.kind
    targets = (
        (CPU_TARGET,)
        if for_cpu
        else device_targets(machine, kind=kind, gpus=None, environ=os.environ)
    )
    health = read_health(targets)
    devices = tuple(
        _measured(run, target, health.get(target.index, GpuHealth()), reporter)
        for target in targets
    )
    return Bench(interpreter.tested.version, devices)


def compare(now: Bench, before: Bench) -> tuple[BenchChange, ...]:
    """Compare what both runs measured on the same devices."""
    earlier = dict(_each(before))
    return tuple(
        BenchChange(
            key[1], measurement.name, earlier[key].value, measurement.value, measurement.unit
        )
        for key, measurement in _each(now)
        if key in earlier
    )


def load_cards() -> list[dict[str, Any]]:
    """Read what cards are published to reach: authored rows with source and date."""
    import tomli

    text = files("gpuinstall.verify").joinpath("data", "ceilings.toml").read_text("utf-8")
    cards: list[dict[str, Any]] = tomli.loads(text)["card"]
    return cards


def ceilings_of(name: str, memory_mib: int | None = None) -> dict[str, float]:
    """Return the ceilings of a card by the names of the measurements; empty for a card that no row names.

    Where two cards share a name, the memory tells which it is.
    """
    bare = name.removeprefix("NVIDIA ")
    named = [card for card in load_cards() if re.fullmatch(card["name"], bare)]
    row = next(
        (
            card
            for card in named
            if len(named) == 1 or card["gib"] == round((memory_mib or 0) / 1024)
        ),
        {},
    )
    ceilings = {f"product-{kind}": float(row[kind]) for kind in PRODUCTS if kind in row}
    return ceilings | ({"memory": float(row["memory"])} if row else {})


def _measured(
    run: KernelRun, target: DeviceTarget, health: GpuHealth, reporter: Reporter
) -> DeviceBench:
    reporter.wait(f"measuring {target.name}")
    report = run.run_all([target])[0]
    left_out = {
        record.name: record.message or "" for record in report.records if record.status != "passed"
    }
    if target.unproven:
        left_out["device"] = target.unproven
    ceilings: dict[str, float | None] = dict.fromkeys(PINNED, health.link_rate)
    ceilings.update(ceilings_of(target.name, target.gpu.memory_mib if target.gpu else None))
    measurements = []
    for row in report.measures:
        name, value = row["measure"], round(row["value"], 4)
        measurements.append(
            Measurement(name, value, row["unit"], ceilings.get(name), row.get("settings"))
        )
    return DeviceBench(target.index, target.name, tuple(measurements), left_out)


def _device(body: Mapping[str, Any]) -> DeviceBench:
    measured = tuple(
        Measurement(
            str(row["name"]),
            _finite(row["value"]),
            str(row["unit"]),
            row.get("ceiling"),
            row.get("settings"),
        )
        for row in body["measurements"]
    )
    return DeviceBench(int(body["index"]), str(body["name"]), measured, body.get("left_out", {}))


def _finite(value: Any) -> float:
    number = float(value)
    if not isfinite(number):
        raise ValueError(f"the value {value!r}")
    return number


def _each(bench: Bench) -> Iterator[tuple[tuple[int, str, str], Measurement]]:
    for device in bench.devices:
        for measurement in device.measurements:
            yield (device.index, device.name, measurement.name), measurement
