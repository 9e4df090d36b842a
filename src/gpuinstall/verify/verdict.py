"""What became of the proof, as frozen values. The document is ``gpuinstall.verdict/1``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from gpuinstall.failures.table import load_failures
from gpuinstall.finding import CheckResult, Finding

VERDICT_SCHEMA = "gpuinstall.verdict/1"
MACHINE = "machine"
THE_CPU = "CPU"
NO_GPU = "no usable GPU"

VerdictStatus = Literal["passed", "failed", "unproven"]


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
        return self.name if self.name in {THE_CPU, NO_GPU} else f"GPU {self.index}"

    @property
    def faults(self) -> tuple[Finding, ...]:
        """The checks that failed, gathered by cause, or by message where no cause is known; the first speaks for all.

        What lies in the machine itself is said to be there.
        """
        groups: dict[str, list[CheckResult]] = {}
        for check in self.checks:
            if check.status == "failed":
                groups.setdefault(check.id or check.message or "failed", []).append(check)
        return tuple(
            Finding(
                "kernel-failed",
                f"{', '.join(check.name for check in group)}: {group[0].message or 'failed'}",
                id=group[0].id,
                why=load_failures()[group[0].id].title if group[0].id else None,
                fixes=group[0].fixes,
                where="machine" if group[0].name == MACHINE else "environment",
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
        statuses = {device.status for device in self.devices} or {"unproven"}
        order: tuple[VerdictStatus, ...] = ("failed", "unproven", "passed")
        return next(status for status in order if status in statuses)

    @property
    def proves_gpus(self) -> bool:
        """Say whether kernels passed on a GPU."""
        return any(device.status == "passed" and device.label != THE_CPU for device in self.devices)

    @property
    def refused(self) -> bool:
        """Say whether it is the machine that failed, before any kernel could."""
        return any(check.name == MACHINE for device in self.devices for check in device.checks)

    def to_dict(self) -> dict[str, Any]:
        """Write the Verdict document."""
        devices = []
        for device in self.devices:
            checks = [check.to_dict() for check in device.checks]
            devices.append(
                {
                    "index": device.index,
                    "name": device.name,
                    "status": device.status,
                    "checks": checks,
                }
            )
        return {
            "schema": VERDICT_SCHEMA,
            "status": self.status,
            "environment": asdict(self.environment)
            | {"architectures": list(self.environment.architectures)},
            "devices": devices,
        }


def without_programs(verdict: dict[str, Any], modules: Iterable[str]) -> dict[str, Any]:
    """Return a Verdict document without the checks of programs that are no longer there."""
    names = [re.escape(module.replace("_", "-")) for module in modules]
    gone = re.compile(rf"(?:{'|'.join(names)})-\w+") if names else None
    devices = []
    for device in verdict["devices"]:
        checks = [
            check for check in device["checks"] if not (gone and gone.fullmatch(check["name"]))
        ]
        devices.append({**device, "checks": checks})
    return {**verdict, "devices": devices}


def with_programs(verdict: dict[str, Any], tested: Verdict) -> dict[str, Any]:
    """Return a Verdict document with the checks of programs that were tested by themselves, on the same devices."""
    new = {
        (device["index"], device["name"]): device["checks"]
        for device in tested.to_dict()["devices"]
    }
    devices = []
    for device in verdict["devices"]:
        added = new.get((device["index"], device["name"]), [])
        again = {check["name"] for check in added}
        checks = [check for check in device["checks"] if check["name"] not in again]
        devices.append({**device, "checks": [*checks, *added]})
    return {**verdict, "devices": devices}
