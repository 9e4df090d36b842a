"""What a verdict says to a person: its faults, gathered by what they have in common, and what mends them."""

from __future__ import annotations

import re
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.failures.classify import fix_context
from gpuinstall.failures.problems import code_told, fix
from gpuinstall.failures.table import load_failures
from gpuinstall.verify.verdict import MACHINE

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.machine import Machine
    from gpuinstall.verify.verdict import Device

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
    return load_failures()[fault.cause].title if fault.cause else None


def fixes(fault: Fault, machine: Machine, python: Path) -> tuple[str, ...]:
    """Give the commands that mend the environment of ``python`` on this machine, the most certain first."""
    if MACHINE in fault.names:
        return tuple(filter(None, [machine.refusing[0].fix]))
    if found := IN_THE_WAY.search(fault.message):
        return (f"mv {quote(found[1])} {quote(found[1] + '.away')}",)
    if known := code_told(fault.message) or fault.cause:
        return fix(known, fix_context(fault.message, machine).knowing(python=quote(str(python))))
    return (_rebuilding(python),) if "import" in fault.names else ()


def _rebuilding(python: Path) -> str:
    """Make an environment of ours anew from its lock, or the torch of another's by whatever made it."""
    from gpuinstall.environments.marker import read_marker

    venv = python.parent.parent
    if read_marker(venv) is None:
        program = quote(str(python))
        return f"uv pip install --python {program} --reinstall torch   # or with the tool that made the environment"
    return f"rm -r {quote(str(venv))} && gpuinstall install --venv {quote(str(venv))}   # the same lock, made anew"
