"""What became of the proof, as frozen values. The document is ``gpuinstall.verdict/1``."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from gpuinstall.failures.table import load_failures

if TYPE_CHECKING:
    from collections.abc import Iterable

SCHEMA = "gpuinstall.verdict/1"
MACHINE = "machine"
CPU = "CPU"
NO_GPU = "no usable GPU"

CheckStatus = Literal["passed", "failed", "skipped"]
VerdictStatus = Literal["passed", "failed", "unproven"]


@dataclass(frozen=True)
class CheckResult:
    """How one check on one device ended.

    ``cause`` is the failure catalogue's entry where one is recognised, ``fix`` what repairs it, the surest first.
    """

    name: str
    status: CheckStatus
    seconds: float = 0.0
    message: str | None = None
    cause: str | None = None
    fix: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Write it as the Verdict document holds it."""
        return {key: value for key, value in asdict(self).items() if key != "fix"}


class DeviceFault(NamedTuple):
    """Checks of one device that failed for the same reason; the first of them speaks for all."""

    names: tuple[str, ...]
    message: str
    cause: str | None
    fix: tuple[str, ...] = ()

    @property
    def title(self) -> str | None:
        """The failure catalogue's one line about the cause."""
        return load_failures()[self.cause].title if self.cause else None


@dataclass(frozen=True)
class Device:
    """One GPU (or slice of it, or the CPU); ``unproven`` says why it could not be tried."""

    index: int
    name: str
    checks: tuple[CheckResult, ...] = ()
    unproven: str | None = None

    @property
    def status(self) -> VerdictStatus:
        """Failed beats unproven beats passed."""
        if any(check.status == "failed" for check in self.checks):
            return "failed"
        return "unproven" if self.unproven or not self.checks else "passed"

    @property
    def label(self) -> str:
        """The device in a few letters: a GPU by its index, the CPU by its name."""
        return self.name if self.name in {CPU, NO_GPU} else f"GPU {self.index}"

    @property
    def faults(self) -> tuple[DeviceFault, ...]:
        """The checks that failed, gathered by cause, or by message where no cause is known."""
        groups: dict[str, list[CheckResult]] = {}
        for check in self.checks:
            if check.status == "failed":
                groups.setdefault(check.cause or check.message or "failed", []).append(check)
        return tuple(
            DeviceFault(
                tuple(check.name for check in group), group[0].message or "failed", group[0].cause, group[0].fix
            )
            for group in groups.values()
        )

    def with_checks(self, checks: Iterable[CheckResult]) -> Device:
        """Return the same device with further checks."""
        return replace(self, checks=(*self.checks, *checks))


@dataclass(frozen=True)
class VerifiedEnvironment:
    """The environment that was tested: versions of Python and torch, the backend tag, the build's architectures."""

    python: str | None = None
    torch: str | None = None
    backend: str | None = None
    architectures: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The outcome of ``verify``."""

    environment: VerifiedEnvironment
    devices: tuple[Device, ...]

    @property
    def status(self) -> VerdictStatus:
        """Failed beats unproven beats passed."""
        found = {device.status for device in self.devices}
        if "failed" in found:
            return "failed"
        return "unproven" if "unproven" in found or not found else "passed"

    @property
    def proves_gpus(self) -> bool:
        """Say whether kernels passed on a GPU."""
        return any(device.status == "passed" and device.label != CPU for device in self.devices)

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
        "checks": [check.to_dict() for check in device.checks],
    }
