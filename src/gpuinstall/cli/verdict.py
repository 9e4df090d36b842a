"""How a person reads a Verdict: one line a device, and each fault with its cause and what mends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.verify.faults import Fault, faults, fixes, title_of

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.machine import Machine
    from gpuinstall.verify import Device, Verdict

STYLES = {"passed": "green", "failed": "red", "unproven": "yellow"}
WORTH_A_WORD = ("ecc", "clocks", "pcie-link", "peer-to-peer", "compile", "build")


def show_verdict(terminal: Terminal, verdict: Verdict, machine: Machine, python: Path) -> None:
    """Write a verdict."""
    tested = verdict.environment
    torch = f"torch {tested.torch}" if tested.torch else "no torch"
    terminal.field("Environment", f"{torch} · Python {tested.python} · {python}")
    for device in verdict.devices:
        _show_device(terminal, device)
        for fault in faults(device):
            _show_fault(terminal, fault, machine, python)
    unproven = [place(device) for device in verdict.devices if device.status == "unproven"]
    if unproven:
        terminal.warn(f"unproven: {', '.join(unproven)}; gpuinstall verify proves it when it can be tried")


def place(device: Device) -> str:
    """Name a device: the GPU by its index, the CPU as it is."""
    return device.name if device.name in {"CPU", "no NVIDIA GPU"} else f"GPU {device.index}"


def _show_device(terminal: Terminal, device: Device) -> None:
    status = terminal.style(device.status, STYLES[device.status])
    name = "" if place(device) == device.name else f"{device.name}: "
    terminal.field(place(device), f"{name}{status}{_detail(device)}")
    if terminal.verbose:
        for check in device.checks:
            terminal.line(
                f"  {check.name:<22} {check.status:<8} {check.seconds:7.3f} s  {check.message or ''}".rstrip()
            )
        return
    for check in device.checks:
        if check.name in WORTH_A_WORD and check.status != "failed" and check.message:
            terminal.line(f"  {check.name:<16} {check.message}")


def _detail(device: Device) -> str:
    if device.status == "unproven":
        return f": {device.unproven}"
    count = {
        status: sum(check.status == status for check in device.checks) for status in ("passed", "failed", "skipped")
    }
    if device.status == "failed":
        return f" in {count['failed']} of {len(device.checks)} checks"
    skipped = f", {count['skipped']} skipped" if count["skipped"] else ""
    return f", {count['passed']} checks{skipped}, {sum(check.seconds for check in device.checks):.1f} s"


def _show_fault(terminal: Terminal, fault: Fault, machine: Machine, python: Path) -> None:
    mark = f"   [{fault.cause}]" if fault.cause else ""
    terminal.line(f"  {', '.join(fault.names)}: {fault.message}{mark}")
    title = title_of(fault)
    if title:
        terminal.line(f"    why   {title}")
    for label, command in zip(("do   ", "or   ", "or   "), fixes(fault, machine, python), strict=False):
        terminal.line(f"    {label} " + command.removeprefix("or ").replace("\n", "\n" + " " * 10))
