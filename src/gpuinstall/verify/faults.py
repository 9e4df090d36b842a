"""What a verdict says to a person: its faults, gathered by what they have in common, and what mends them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.verify.verdict import MACHINE

if TYPE_CHECKING:
    from gpuinstall.machine import Machine
    from gpuinstall.verify.verdict import Device

REBUILD = (
    "rm -r .venv && gpuinstall install   # the same lock, made anew",
    "an environment that is not ours: reinstall torch with the tool that made it",
)
OWN_FIXES = {
    "torch is not installed": ("gpuinstall install",),
    "torch has lost": REBUILD,
    "NumPy cannot be loaded": ("uv pip install --reinstall numpy",),
    "would import another torch": (
        "unset PYTHONPATH   # where the other torch comes from there",
        "where it lies in this folder: give it another name",
    ),
    "does not start here unless isolated": ("unset PYTHONPATH PYTHONHOME",),
    "it passes without LD_PRELOAD": ("unset LD_PRELOAD",),
    "it passes without LD_LIBRARY_PATH": ("unset LD_LIBRARY_PATH",),
}


class Fault(NamedTuple):
    """Checks of one device that failed for the same reason; ``cause`` is the failure catalogue's entry."""

    names: tuple[str, ...]
    message: str
    cause: str | None


def faults(device: Device) -> tuple[Fault, ...]:
    """Gather a device's failed checks by cause, or by message where no cause is known; the first message speaks."""
    groups: dict[str, list[tuple[str, str, str | None]]] = {}
    for check in device.checks:
        if check.status == "failed":
            message = check.message or "failed"
            groups.setdefault(check.cause or message, []).append((check.name, message, check.cause))
    return tuple(Fault(tuple(row[0] for row in rows), rows[0][1], rows[0][2]) for rows in groups.values())


def title_of(fault: Fault) -> str | None:
    """Give the catalogue's one line about the cause."""
    from gpuinstall.doctor.failures import load_failures

    return load_failures()[fault.cause].title if fault.cause else None


def fixes(fault: Fault, machine: Machine) -> tuple[str, ...]:
    """Give the commands that mend it on this machine, the most certain first."""
    if MACHINE in fault.names:
        return tuple(filter(None, [machine.refusing[0].fix]))
    from gpuinstall.doctor.circumstances import Circumstances
    from gpuinstall.doctor.failures import load_failures
    from gpuinstall.doctor.repair import repair
    from gpuinstall.doctor.transcript import Transcript

    own = next((commands for sign, commands in OWN_FIXES.items() if sign in fault.message), ())
    if own or fault.cause is None:
        return own
    circumstances = Circumstances(Transcript(fault.message), machine)
    return repair(load_failures()[fault.cause].fix, machine, circumstances)
