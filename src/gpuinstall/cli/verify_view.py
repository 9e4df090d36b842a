"""How a person reads what verify found: the devices with their faults, and the measurements."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gpuinstall.verify.kernels.programs import PROGRAMS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.verify import Device, Verdict
    from gpuinstall.verify.bench import Bench, BenchChange, Measurement

STYLES = {"passed": "green", "failed": "red", "unproven": "yellow"}
WORTH_A_WORD = ("ecc", "clocks", "pcie-link", "peer-to-peer", "compile", "build")
PROGRAM_CHECKS = {program.check for program in PROGRAMS}

BAR = 24


def show_verdict(terminal: Terminal, verdict: Verdict, python: Path) -> None:
    """Write a verdict."""
    tested = verdict.environment
    torch = f"torch {tested.torch}" if tested.torch else "no torch"
    terminal.field("Environment", f"{torch} · Python {tested.python} · {python}")
    for device in verdict.devices:
        _show_device(terminal, device)
        for fault in device.faults:
            mark = f"   [{fault.id}]" if fault.id else ""
            terminal.prose(f"  {fault.message}{mark}", 4)
            if fault.why:
                terminal.prose(f"    why   {fault.why}", 10)
            for label, command in zip(("do   ", "or   ", "or   "), map(str, fault.fixes), strict=False):
                terminal.line(f"    {label} " + command.removeprefix("or ").replace("\n", "\n" + " " * 10))
    unproven = [device.label for device in verdict.devices if device.status == "unproven"]
    if unproven:
        terminal.warn(f"unproven: {', '.join(unproven)}; gpuinstall verify proves it when it can be tried")


def _show_device(terminal: Terminal, device: Device) -> None:
    status = terminal.style(device.status, STYLES[device.status])
    name = "" if device.label == device.name else f"{device.name}: "
    terminal.field(device.label, f"{name}{status}{_detail(device)}")
    if terminal.verbose:
        for check in device.checks:
            terminal.line(
                f"  {check.name:<22} {check.status:<8} {check.seconds:7.3f} s  {check.message or ''}".rstrip()
            )
        return
    for check in device.checks:
        left_out = check.name in PROGRAM_CHECKS and check.status == "skipped"
        if (left_out or check.name in WORTH_A_WORD) and check.status != "failed" and check.message:
            terminal.prose(f"  {check.name:<16} {check.message}", 19)


def _detail(device: Device) -> str:
    if device.status == "unproven":
        return f": {device.unproven}"
    statuses = Counter(check.status for check in device.checks)
    if device.status == "failed":
        return f" in {statuses['failed']} of {len(device.checks)} checks"
    skipped = f", {statuses['skipped']} skipped" if statuses["skipped"] else ""
    return f", {statuses['passed']} checks{skipped}, {sum(check.seconds for check in device.checks):.1f} s"


def show_bench(terminal: Terminal, bench: Bench) -> None:
    """Write a run."""
    for device in bench.devices:
        terminal.line()
        terminal.field("Measured", f"{device.name}, torch {bench.torch}")
        for measurement in device.measurements:
            terminal.line(_line(measurement))
        for name, reason in device.left_out.items():
            terminal.line(f"  {name:<24} left out: {reason}")


def show_changes(terminal: Terminal, changes: Sequence[BenchChange], earlier: Bench) -> None:
    """Write what changed since an earlier run, the slower in red."""
    names = ", ".join(device.name for device in earlier.devices)
    other = "" if changes else ": it measured nothing that was measured now"
    terminal.line()
    terminal.field("Against", f"{names}, torch {earlier.torch}{other}")
    for change in changes:
        text = f"  {change.name:<24} {change.before:>10.4g} → {change.now:<10.4g} {change.unit:<8} {change.gain:+.0%}"
        terminal.line(terminal.style(text, "red") if change.worse else text)


def _line(measurement: Measurement) -> str:
    text = f"  {measurement.name:<24} {measurement.value:>10.4g} {measurement.unit:<8}"
    if measurement.settings:
        return f"{text} with {', '.join(f'{key}={value}' for key, value in measurement.settings.items())}"
    if measurement.share is None:
        return text.rstrip()
    filled = round(BAR * min(measurement.share, 1.0))
    return f"{text} {'█' * filled}{'░' * (BAR - filled)} {measurement.share:.0%} of {measurement.ceiling:.4g}"
