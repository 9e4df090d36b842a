"""Result of a verification (document ``gpuinstall.verdict/1``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from gpuinstall.base.codec import read_object, write_object
from gpuinstall.base.finding import CheckResult, Finding
from gpuinstall.base.text import format_count
from gpuinstall.base.values import Value, replace

VERDICT_SCHEMA = "gpuinstall.verdict/1"
MACHINE = "machine"

DeviceKind = Literal["gpu", "cpu", "none"]
"""The kind of a tested device. ``none`` represents a missing GPU."""
CPU_NAME = "CPU"
"""The name of the CPU as a device."""
VerdictStatus = Literal["passed", "failed", "unproven"]


class Device(Value):
    """GPU, MIG device, or CPU with the results of its checks."""

    index: int
    name: str
    checks: tuple[CheckResult, ...] = ()
    unproven: str | None = None
    """The reason why the device could not be tested, if any."""
    kind: DeviceKind = "gpu"

    @property
    def status(self) -> VerdictStatus:
        """The worst status, in the order failed, unproven, passed."""
        if any(check.status == "failed" for check in self.checks):
            return "failed"
        # A device without checks was not verified.
        if self.unproven or not self.checks:
            return "unproven"
        return "passed"

    @property
    def label(self) -> str:
        """The short name of the device, such as ``GPU 0`` or ``CPU``."""
        return f"GPU {self.index}" if self.kind == "gpu" else self.name

    @property
    def outcome(self) -> str:
        """The result of the device for messages: ``passed, 14 checks``."""
        statuses = Counter(check.status for check in self.checks)
        if self.status == "failed":
            return f"failed in {statuses['failed']} of {format_count(len(self.checks), 'check')}"
        if self.status == "unproven":
            return f"unproven: {self.unproven}" if self.unproven else "unproven"
        skipped = f", {statuses['skipped']} skipped" if statuses["skipped"] else ""
        return f"passed, {format_count(statuses['passed'], 'check')}{skipped}"

    @property
    def faults(self) -> tuple[Finding, ...]:
        """The failed checks, grouped by cause or, if unknown, by message.

        A fault of the machine is the cause of all other failures.
        """
        groups: dict[str, list[CheckResult]] = {}
        failed = [check for check in self.checks if check.status == "failed"]
        of_machine = [check for check in failed if check.name == MACHINE]
        for check in of_machine or failed:
            groups.setdefault(check.id or check.message or "failed", []).append(check)
        return tuple(map(_create_finding, groups.values()))

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of a Verdict document."""
        return {
            "index": self.index,
            "name": self.name,
            "status": self.status,
            "checks": [check.to_dict() for check in self.checks],
        }

    def with_checks(self, checks: Iterable[CheckResult]) -> Device:
        """Return a copy of the device with additional checks."""
        return replace(self, checks=(*self.checks, *checks))


def _create_finding(group: Sequence[CheckResult]) -> Finding:
    """Return one finding for failed checks with the same cause."""
    from gpuinstall.catalog.failures.table import load_failures  # slow to import

    first = group[0]
    names = ", ".join(check.name for check in group)
    return Finding(
        "kernel-failed",
        f"{names}: {first.message or 'failed'}",
        id=first.id,
        why=load_failures()[first.id].title if first.id else None,
        fixes=first.fixes,
        where="machine" if first.name == MACHINE else "environment",
    )


class VerifiedEnvironment(Value):
    """Environment that was verified, with its Python and torch."""

    python: str | None = None
    torch: str | None = None
    backend: str | None = None
    """The tag of torch's backend, such as ``cu128``."""

    architectures: tuple[str, ...] = ()
    """The GPU architectures that torch was built for."""


class Verdict(Value):
    """Result of verifying an environment, by device."""

    environment: VerifiedEnvironment
    devices: tuple[Device, ...]

    @property
    def status(self) -> VerdictStatus:
        """The worst status, in the order failed, unproven, passed."""
        statuses = {device.status for device in self.devices}
        if "failed" in statuses:
            return "failed"
        return "passed" if statuses == {"passed"} else "unproven"

    @property
    def verifies_gpus(self) -> bool:
        """Whether kernels passed on a GPU."""
        return any(
            device.status == "passed" and device.kind == "gpu"
            for device in self.devices
        )

    @property
    def refused(self) -> bool:
        """Whether a fault of the machine prevented every kernel."""
        return any(
            check.name == MACHINE for device in self.devices for check in device.checks
        )

    def add_machine_fault(self, fault: Finding) -> Verdict:
        """Return a verdict with a machine's fault on every device."""
        check = CheckResult(
            MACHINE, "failed", 0.0, fault.message, id=fault.id, fixes=fault.fixes
        )
        devices = [
            replace(device, checks=(check, *device.checks)) for device in self.devices
        ]
        return replace(self, devices=tuple(devices))

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Verdict:
        """Read a Verdict document, except the reasons of unproven devices."""
        devices = []
        for device in document["devices"]:
            checks = tuple(
                CheckResult(one["name"], one["status"], one["seconds"], one["message"])
                for one in device["checks"]
            )
            kind: DeviceKind = "cpu" if device["name"] == CPU_NAME else "gpu"
            devices.append(Device(device["index"], device["name"], checks, kind=kind))
        environment = read_object(VerifiedEnvironment, document["environment"])
        return cls(environment, tuple(devices))

    def to_dict(self) -> dict[str, Any]:
        """Return the Verdict document."""
        return {
            "schema": VERDICT_SCHEMA,
            "status": self.status,
            "environment": write_object(self.environment),
            "devices": [device.to_dict() for device in self.devices],
        }


def update_programs(
    verdict: dict[str, Any],
    modules: Iterable[str],
    tested: Verdict | None,
) -> dict[str, Any]:
    """Return a Verdict document with updated results of programs.

    Args:
        verdict: The document.
        modules: The programs that were removed or tested again.
        tested: The new results of these programs on the same devices.
    """
    packages = {module.replace("_", "-") for module in modules}
    new_checks = {}
    for tested_device in tested.devices if tested else ():
        checks = tested_device.to_dict()["checks"]
        new_checks[tested_device.index, tested_device.name] = checks
    devices = []
    for device in verdict["devices"]:
        # The name of a program's check is PACKAGE-WORD.
        checks = [
            check
            for check in device["checks"]
            if check["name"].rpartition("-")[0] not in packages
        ]
        checks += new_checks.get((device["index"], device["name"]), [])
        devices.append({**device, "checks": checks})
    return {**verdict, "devices": devices}
