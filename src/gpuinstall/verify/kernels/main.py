"""A child's course: open the channel, import torch, run one table of checks on one device."""

from __future__ import annotations

import argparse
import faulthandler
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from .bed import CheckContext, allow_tf32
from .bench import run as measure
from .protocol import Channel

if TYPE_CHECKING:
    from typing import Any

    from .bed import Check


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=["cuda", "cpu", "mps", "all", "none"], required=True)
    parser.add_argument("--work", choices=["quick", "deep", "bench"], default="quick")
    parser.add_argument("--seconds", type=float, required=True)
    asked = parser.parse_args()
    channel = Channel()
    faulthandler.enable()
    faulthandler.dump_traceback_later(asked.seconds, exit=True)
    found: list[Any] = []
    if channel.attempt("import", lambda: _import_torch(found)) == "passed":
        torch = found[0]
        if asked.device != "all":
            channel.send(architectures=architectures(torch))
        if asked.work == "bench":
            measure(channel, torch, asked.device)
            return
        run(channel, torch, asked.device, asked.work)
        if asked.device == "cpu" and torch.backends.mps.is_available():
            run(channel, torch, "mps", asked.work, prefix="mps-")


def _import_torch(found: list[Any]) -> str:
    found.append(import_module("torch"))
    return str(found[0].__file__)


def architectures(torch: Any) -> list[str]:
    """List the architectures that the build has code for; torch's public list is empty where no card can be opened.

    Asking forbids CUDA in forked processes, which the checks of all devices need.
    """
    core = torch._C  # noqa: SLF001
    flags = getattr(core, "_cuda_getArchFlags", lambda: None)()
    return (flags or "").split()


def run(channel: Channel, torch: Any, device: str, work: str, prefix: str = "") -> None:
    """Run the table that fits; after a fault that ends the CUDA context, skip the rest."""
    if device == "cuda":
        allow_tf32(torch, False)
    lost = None
    for check in table(device, work):
        name = prefix + check.name
        if lost:
            channel.send(name=name, status="skipped", seconds=0.0, message=lost)
            continue
        status = channel.attempt(name, partial(_tried, check, torch, device))
        if status == "unproven" or (name == "device" and status == "failed"):
            return
        if name == "device" and device == "cuda":
            channel.send(capability=list(torch.cuda.get_device_capability()))
        if status == "failed" and device == "cuda" and _context_lost(torch):
            lost = f"the CUDA context was lost in {name}"


def table(device: str, work: str) -> list[Check]:
    """Choose the checks for one kind of device."""
    return [check for check in _tables(device, work) if device in check.where.split()]


def _tables(device: str, work: str) -> tuple[Check, ...]:
    from . import deep, quick, together

    if device == "all":
        return together.CHECKS
    return (*quick.CHECKS, *deep.CHECKS) if work == "deep" else quick.CHECKS


def _tried(check: Check, torch: Any, device: str) -> str | None:
    bed = CheckContext(torch, device, check.limit or 0.0)
    message = check.run(bed)
    bed.synchronize()
    return message


def _context_lost(torch: Any) -> bool:
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False
