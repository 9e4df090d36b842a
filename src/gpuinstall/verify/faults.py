"""What a verdict says to a person: its faults, gathered by what they have in common, and what mends them."""

from __future__ import annotations

import re
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.verify.verdict import MACHINE

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.machine import Machine
    from gpuinstall.verify.verdict import Device

OWN_FIXES = {
    "torch is not installed": "gpuinstall install",
    "NumPy cannot be loaded": "uv pip install --python {python} --reinstall numpy",
    ", from PYTHONPATH": "unset PYTHONPATH",
    ", from packages of the user": "export PYTHONNOUSERSITE=1",
    "; PYTHONHOME=": "unset PYTHONHOME",
    "does not start here unless isolated": "unset PYTHONPATH",
    "TMPDIR names": "unset TMPDIR",
    "killed by SIGKILL": "sudo dmesg | grep -i -e oom -e 'killed process'",
    "it passes without LD_PRELOAD": "unset LD_PRELOAD",
    "it passes without LD_LIBRARY_PATH": "unset LD_LIBRARY_PATH",
}

IN_THE_WAY = re.compile(r"(?s).*: (.+), which lies in it$")


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
    from gpuinstall.failures.table import load_failures

    return load_failures()[fault.cause].title if fault.cause else None


def fixes(fault: Fault, machine: Machine, python: Path) -> tuple[str, ...]:
    """Give the commands that mend the environment of ``python`` on this machine, the most certain first."""
    if MACHINE in fault.names:
        return tuple(filter(None, [machine.refusing[0].fix]))
    if own := _own_fix(fault.message, python):
        return (own,)
    if fault.cause:
        return _catalogued_fixes(fault.message, fault.cause, machine)
    return (_rebuilding(python),) if "import" in fault.names else ()


def _own_fix(message: str, python: Path) -> str | None:
    """Give the command for what only we can have seen."""
    if found := IN_THE_WAY.search(message):
        return f"mv {quote(found[1])} {quote(found[1] + '.away')}"
    command = next((command for sign, command in OWN_FIXES.items() if sign in message), None)
    return command and command.replace("{python}", quote(str(python)))


def _catalogued_fixes(message: str, cause: str, machine: Machine) -> tuple[str, ...]:
    from gpuinstall.failures.circumstances import Circumstances
    from gpuinstall.failures.repair import repair
    from gpuinstall.failures.table import load_failures
    from gpuinstall.failures.transcript import Transcript

    return repair(load_failures()[cause].fix, machine, Circumstances(Transcript(message), machine))


def _rebuilding(python: Path) -> str:
    """Make an environment of ours anew from its lock, or the torch of another's by whatever made it."""
    from gpuinstall.environments.marker import read_marker

    venv = python.parent.parent
    if read_marker(venv) is None:
        program = quote(str(python))
        return f"uv pip install --python {program} --reinstall torch   # or with the tool that made the environment"
    return f"rm -r {quote(str(venv))} && gpuinstall install --venv {quote(str(venv))}   # the same lock, made anew"
