"""What became of the proof, as frozen values. The document is ``gpuinstall.verdict/1``."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

SCHEMA = "gpuinstall.verdict/1"
MACHINE = "machine"

CheckStatus = Literal["passed", "failed", "skipped"]
Status = Literal["passed", "failed", "unproven"]


@dataclass(frozen=True)
class Check:
    """One check on one device; ``cause`` is the failure catalogue's entry where one is recognised."""

    name: str
    status: CheckStatus
    seconds: float = 0.0
    message: str | None = None
    cause: str | None = None


@dataclass(frozen=True)
class Device:
    """One GPU (or slice of it, or the CPU); ``unproven`` says why it could not be tried."""

    index: int
    name: str
    checks: tuple[Check, ...] = ()
    unproven: str | None = None

    @property
    def status(self) -> Status:
        """Failed beats unproven beats passed."""
        if any(check.status == "failed" for check in self.checks):
            return "failed"
        return "unproven" if self.unproven or not self.checks else "passed"

    def with_checks(self, checks: Iterable[Check]) -> Device:
        """Return the same device with further checks."""
        return replace(self, checks=(*self.checks, *checks))


@dataclass(frozen=True)
class Subject:
    """The environment that was tested: versions of Python and torch, the backend tag, the build's architectures."""

    python: str | None = None
    torch: str | None = None
    backend: str | None = None
    architectures: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The outcome of ``verify``."""

    environment: Subject
    devices: tuple[Device, ...]

    @property
    def status(self) -> Status:
        """Failed beats unproven beats passed."""
        found = {device.status for device in self.devices}
        if "failed" in found:
            return "failed"
        return "unproven" if "unproven" in found or not found else "passed"

    @property
    def refused(self) -> bool:
        """Say whether it is the machine that failed, before any kernel could."""
        return any(check.name == MACHINE for device in self.devices for check in device.checks)

    def to_dict(self) -> dict[str, Any]:
        """Write the Verdict document."""
        return {
            "schema": SCHEMA,
            "status": self.status,
            "environment": asdict(self.environment) | {"architectures": list(self.environment.architectures)},
            "devices": [_written(device) for device in self.devices],
        }


def _written(device: Device) -> dict[str, Any]:
    return {
        "index": device.index,
        "name": device.name,
        "status": device.status,
        "checks": [asdict(check) for check in device.checks],
    }
