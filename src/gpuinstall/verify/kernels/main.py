"""A child's course: open the channel, import torch, run a table of checks or measurements, or one program, on a device.

What a child tells the runner are JSON lines on the stream that was its stdout, which nothing else can reach.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import sys
import time
import traceback
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import all_gpus, bench, deep, quick
from .context import Check, CheckContext, Skip, Unproven, Wrong, allow_tf32, runs_on
from .programs import program_check

if TYPE_CHECKING:
    from collections.abc import Callable

    from .bench import Measure

MOST_TEXT = 8000
BUSY = (
    "busy or unavailable",
    "CUDA out of memory",
    "CUDA error: out of memory",
    "cudaErrorDevicesUnavailable",
    "MPS server is not ready",
)
"""What is said of a GPU that others use."""


class Channel:
    """Writes records to the runner; whatever prints to stdout from now on, in Python or in C, ends on stderr."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def send(self, **record: Any) -> None:
        """Write one record at once, so that a crash loses none."""
        self._stream.write(json.dumps(record) + "\n")
        self._stream.flush()

    def attempt(self, name: str, run: Callable[[], str | None]) -> str:
        """Run one check: say that it begins, then its status, seconds and message; return the status."""
        self.send(begin=name)
        start = time.perf_counter()
        outcome = _outcome(run)
        self.send(name=name, seconds=round(time.perf_counter() - start, 4), **outcome)
        return str(outcome["status"])


def _outcome(run: Callable[[], str | None]) -> dict[str, Any]:
    try:
        return {"status": "passed", "message": run()}
    except Skip as reason:
        return {"status": "skipped", "message": str(reason)}
    except Unproven as reason:
        return {"status": "unproven", "message": str(reason)}
    except Wrong as reason:
        return {
            "status": "failed",
            "message": str(reason),
            "text": traceback.format_exc()[-MOST_TEXT:],
        }
    except Exception as error:  # noqa: BLE001  whatever a broken environment raises is the result
        lines = str(error).strip().splitlines() or [""]
        message = f"{type(error).__name__}: {lines[0]}".rstrip(": ")
        if error.__cause__ and str(error.__cause__).strip():
            message += f" ({str(error.__cause__).strip().splitlines()[0]})"
        status = "unproven" if any(sign in str(error) for sign in BUSY) else "failed"
        return {"status": status, "message": message, "text": traceback.format_exc()[-MOST_TEXT:]}


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--device", required=True, help="as torch names it; cpu, all (GPUs at once) or none"
    )
    parser.add_argument(
        "--gpus", type=int, default=1, help="how many GPUs the device all stands for"
    )
    parser.add_argument("--work", choices=["quick", "deep", "bench"], default="quick")
    parser.add_argument(
        "--program", help="the module of a package to prove instead, after importing torch"
    )
    parser.add_argument(
        "--script", help="the row of what the program does, as JSON; else our table has it"
    )
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    channel = Channel()
    faulthandler.enable()
    faulthandler.dump_traceback_later(options.seconds, exit=True)
    if options.program:
        check = program_check(options.program, options.device, options.script)
        channel.attempt(
            check.name, lambda: _tried(check, CheckContext(import_module("torch"), options.device))
        )
        os._exit(0)  # what the program's threads do at an orderly exit is nobody's question
    modules: list[Any] = []
    if channel.attempt("import", lambda: _import_torch(modules)) != "passed":
        return
    context = CheckContext(modules[0], options.device, gpus=options.gpus)
    if options.device != "all":
        # torch's public list is empty where no card can be opened. Asking forbids CUDA in forked processes, which the
        # checks of all devices need.
        core = context.torch._C  # noqa: SLF001
        flags = (
            getattr(core, name, lambda: None)()
            for name in ("_cuda_getArchFlags", "_xpu_getArchFlags")
        )
        channel.send(architectures=next((text.split() for text in flags if text), []))
    if options.work == "bench":
        for measure in bench.MEASURES:
            if runs_on(measure.where, context.device):
                channel.attempt(measure.name, partial(_taken, channel, measure, context))
        return
    _run(channel, context, options.work)
    # Not only what is installed: torch looks for a NumPy in any case.
    channel.send(loaded=sorted({"numpy", *(name.partition(".")[0] for name in sys.modules)}))


def _import_torch(modules: list[Any]) -> str:
    modules.append(import_module("torch"))
    return str(modules[0].__file__)


def _architecture(context: CheckContext) -> str | None:
    """Name the code of the GPU in its maker's words, ``sm_89`` or ``gfx942``; None where torch does not say."""
    if context.capability:
        return "sm_{}{}".format(*context.capability)
    name = getattr(context.gpu.get_device_properties(0), "gcnArchName", None)
    return name and str(name).partition(":")[0]


def _run(channel: Channel, context: CheckContext, work: str) -> None:
    """Run the table that fits; after a fault that ends the GPU's context, skip the rest."""
    if context.on_gpu:
        allow_tf32(context.torch, False)
    lost = None
    for check in table(context.device, work):
        if lost:
            channel.send(name=check.name, status="skipped", seconds=0.0, message=lost)
            continue
        status = channel.attempt(check.name, partial(_tried, check, context))
        if status == "unproven" or (check.name == "device" and status == "failed"):
            return
        if check.name == "device" and context.on_gpu:
            channel.send(architecture=_architecture(context))
        if status == "failed" and context.on_gpu and _context_lost(context):
            lost = f"the {context.device.upper()} context was lost in {check.name}"


def table(device: str, work: str) -> list[Check]:
    """Choose the checks for one kind of device."""
    checks = (*quick.CHECKS, *deep.CHECKS) if work == "deep" else quick.CHECKS
    return [check for check in (*checks, *all_gpus.CHECKS) if runs_on(check.where, device)]


def _tried(check: Check, context: CheckContext) -> str | None:
    context = context._replace(limit=check.limit or 0.0)
    message = check.run(context)
    context.synchronize()
    return message


def _context_lost(context: CheckContext) -> bool:
    try:
        context.gpu.synchronize()
    except RuntimeError:
        return True
    return False


def _taken(channel: Channel, measure: Measure, context: CheckContext) -> None:
    value = measure.run(context)
    measurement = value if isinstance(value, dict) else {"value": value}
    channel.send(measure=measure.name, unit=measure.unit, **measurement)
