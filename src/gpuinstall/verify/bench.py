"""How fast an environment is on each device: measured by its own torch, beside what the card is published to reach."""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

from gpuinstall.errors import UsageError
from gpuinstall.reporter import SilentReporter
from gpuinstall.verify.ceilings import ceilings_of
from gpuinstall.verify.child import SECONDS, Child
from gpuinstall.verify.environment import look
from gpuinstall.verify.health import link_rate, read_cards
from gpuinstall.verify.targets import targets

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gpuinstall.machine import Machine
    from gpuinstall.reporter import Reporter
    from gpuinstall.verify.report import Report
    from gpuinstall.verify.targets import Target

SCHEMA = "gpuinstall.bench/1"
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
        written = {"name": self.name, "value": self.value, "unit": self.unit, "ceiling": self.ceiling, "share": share}
        return written | ({"settings": dict(self.settings)} if self.settings else {})


@dataclass(frozen=True)
class Benched:
    """The measurements on one device, and why others could not be taken."""

    index: int
    name: str
    measurements: tuple[Measurement, ...]
    left_out: Mapping[str, str]


@dataclass(frozen=True)
class Bench:
    """One run: the torch that was measured, and every device. The document is ``gpuinstall.bench/1``."""

    torch: str | None
    devices: tuple[Benched, ...]

    def to_dict(self) -> dict[str, Any]:
        """Write the document."""
        return {
            "schema": SCHEMA,
            "torch": self.torch,
            "devices": [
                {
                    "index": device.index,
                    "name": device.name,
                    "measurements": [measurement.to_dict() for measurement in device.measurements],
                    "left_out": dict(device.left_out),
                }
                for device in self.devices
            ],
        }

    @classmethod
    def from_dict(cls, document: object) -> Bench:
        """Read the document of an earlier run; raise UsageError where it is none."""
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
            raise UsageError("bench-malformed", f"the earlier run is not a {SCHEMA!r} document")
        try:
            return cls(document["torch"], tuple(map(_device, document["devices"])))
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise UsageError("bench-malformed", f"the earlier run is malformed at {error}") from None


def _device(body: Mapping[str, Any]) -> Benched:
    measured = tuple(
        Measurement(str(one["name"]), _finite(one["value"]), str(one["unit"]), one.get("ceiling"), one.get("settings"))
        for one in body["measurements"]
    )
    return Benched(int(body["index"]), str(body["name"]), measured, body.get("left_out", {}))


def _finite(value: Any) -> float:
    number = float(value)
    if not isfinite(number):
        raise ValueError(f"the value {value!r}")
    return number


def bench_environment(
    python: Path, machine: Machine, *, for_cpu: bool = False, reporter: Reporter | None = None
) -> Bench:
    """Measure the torch of ``python`` on every GPU of ``machine``, one after another, or on the CPU where it has none.

    Raise UsageError where ``python`` is no interpreter.
    """
    reporter = reporter or SilentReporter()
    around = look(python)
    for_cpu = for_cpu or around.tested.backend == "cpu" or not machine.gpus
    child = Child(python, around.flags, "bench", SECONDS["bench"])
    wanted = targets(machine, for_cpu=for_cpu, gpus=None, environ=os.environ)
    cards = {} if for_cpu else read_cards(len(wanted))
    devices = tuple(_measured(child, target, cards.get(target.index, {}), reporter) for target in wanted)
    return Bench(around.tested.version, devices)


def _measured(child: Child, target: Target, card: Mapping[str, Any], reporter: Reporter) -> Benched:
    reporter.wait(f"measuring {target.name}")
    report = child.run_all([target])[0]
    left_out = {record.name: record.message or "" for record in report.records if record.status != "passed"}
    if target.unproven:
        left_out["device"] = target.unproven
    return Benched(target.index, target.name, tuple(_measurements(report, target, card)), left_out)


def _measurements(report: Report, target: Target, card: Mapping[str, Any]) -> Iterator[Measurement]:
    ceilings = {**ceilings_of(target.name), **dict.fromkeys(PINNED, link_rate(card))}
    for found in report.measures:
        name, value = found["measure"], round(found["value"], 4)
        yield Measurement(name, value, found["unit"], ceilings.get(name), found.get("settings"))
