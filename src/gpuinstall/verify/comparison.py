"""Two runs of the measurements side by side: pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuinstall.verify.bench import Bench, Measurement

NOISE = 0.05
LESS_IS_BETTER = frozenset({"launch"})


@dataclass(frozen=True)
class Change:
    """One measurement, then and now; ``gain`` is +0.10 where it is now a tenth better."""

    device: str
    name: str
    before: float
    now: float
    unit: str

    @property
    def gain(self) -> float:
        """How much better it is, as a fraction of what it was."""
        better, worse = (self.before, self.now) if self.name in LESS_IS_BETTER else (self.now, self.before)
        return better / worse - 1 if worse else 0.0

    @property
    def worse(self) -> bool:
        """Say whether it is worse by more than two runs of the same thing differ."""
        return self.gain < -NOISE

    def to_dict(self) -> dict[str, Any]:
        """Write it for the document."""
        numbers = {"before": self.before, "now": self.now, "unit": self.unit, "gain": round(self.gain, 3)}
        return {"device": self.device, "name": self.name} | numbers


def compare(now: Bench, before: Bench) -> tuple[Change, ...]:
    """Compare what both runs measured on the same devices."""
    earlier = dict(_each(before))
    return tuple(
        Change(key[1], measurement.name, earlier[key].value, measurement.value, measurement.unit)
        for key, measurement in _each(now)
        if key in earlier
    )


def _each(bench: Bench) -> Iterator[tuple[tuple[int, str, str], Measurement]]:
    for device in bench.devices:
        for measurement in device.measurements:
            yield (device.index, device.name, measurement.name), measurement
