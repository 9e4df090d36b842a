"""Main program of a child process that imports torch and runs checks.

The process writes JSON lines to its original stdout, to which no other code can write.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from . import all_gpus, bench, deep, quick
from .context import (
    MARK,
    Check,
    CheckContext,
    Skip,
    Wrong,
    allow_tf32,
    applies_to,
    first_line,
    is_out_of_memory,
)
from .programs import create_program_check

MAX_TEXT = 8000
BUSY = (
    "busy or unavailable",
    "cudaErrorDevicesUnavailable",
    "MPS server is not ready",
)
"""Messages about a GPU that other processes use."""


class Channel:
    """Stream of JSON records to the process that started this one.

    Other output to stdout, from Python or C, is redirected to stderr.
    """

    def __init__(self) -> None:
        sys.stdout.flush()
        self._stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def send(self, **record: Any) -> None:
        """Write and flush a record, so that a later crash cannot lose it."""
        self._stream.write(f"{MARK}{json.dumps(record)}\n")
        self._stream.flush()

    def attempt(
        self,
        name: str,
        run: Callable[[], str | None],
    ) -> str:
        """Run a check, send its start and result, and return its status."""
        self.send(begin=name)
        start = time.perf_counter()
        outcome = _run_and_classify(run)
        seconds = time.perf_counter() - start
        status = str(outcome["status"])
        if status == "unproven":
            outcome.update(status="skipped", unproven=outcome["message"])
        self.send(name=name, seconds=round(seconds, 4), **outcome)
        return status


def _run_and_classify(run: Callable[[], str | None]) -> dict[str, Any]:
    try:
        return {"status": "passed", "message": run()}
    except Skip as reason:
        return {"status": reason.status, "message": str(reason)}
    except Exception as error:  # noqa: BLE001  a broken environment raises any exception
        # If other processes use the GPU or its memory, the build is not the cause.
        is_busy = is_out_of_memory(error) or any(sign in str(error) for sign in BUSY)
        return {
            "status": "unproven" if is_busy else "failed",
            "message": _format_error(error),
            "evidence": traceback.format_exc()[-MAX_TEXT:],
        }


def _format_error(error: Exception) -> str:
    if isinstance(error, Wrong):
        return str(error)
    message = f"{type(error).__name__}: {first_line(error)}".rstrip(": ")
    cause = first_line(error.__cause__)
    return f"{message} ({cause})" if cause else message


class Options(NamedTuple):
    """Options from the JSON object on the command line."""

    device: str
    """torch's name for the device, "all" (all GPUs at once), or "none"."""

    gpus: int
    """The number of GPUs if the device is "all"."""

    work: str
    """The table of checks: quick, deep, or bench."""

    seconds: float
    """The time limit of this process in seconds."""

    program: str | None
    """The module to test instead of torch, if any."""


def main() -> None:
    """Run the checks that the command line requests."""
    options = Options(**json.loads(sys.argv[1]))
    channel = Channel()
    faulthandler.enable()
    # Python cannot interrupt a driver call. At the limit, a thread prints the call trace and ends the process.
    faulthandler.dump_traceback_later(options.seconds, exit=True)
    if options.program:
        check = create_program_check(options.program, options.device)
        channel.attempt(check.name, lambda: _run_check(check, _create_context(options)))
        # Exit without waiting for the program's threads, which are not part of the check.
        os._exit(0)
    if channel.attempt("import", _import_torch) == "passed":
        # Report the architectures first, because the first kernel may crash.
        context = _create_context(options)
        _send_architectures(channel, context)
        _run_checks(channel, context, options.work)


def _import_torch() -> str:
    torch = import_module("torch")
    # Python also imports a folder without __init__.py.
    if not hasattr(torch, "_C"):
        raise ImportError("torch is a folder without PyTorch's modules")
    return str(torch.__file__)


def _create_context(options: Options) -> CheckContext:
    return CheckContext(import_module("torch"), options.device, gpus=options.gpus)


def _send_architectures(channel: Channel, context: CheckContext) -> None:
    """Send the GPU architectures of torch.

    ``torch.cuda.get_arch_list()`` returns nothing without a usable GPU. The function
    also prevents the use of CUDA in forked processes, which the checks of all GPUs
    need.
    """
    if context.device == "all":
        return
    core = context.torch._C  # noqa: SLF001
    architectures: list[str] = []
    # Each kind of GPU has a function, such as _cuda_getArchFlags.
    for name in filter(re.compile(".+_getArchFlags").fullmatch, dir(core)):
        architectures = architectures or (getattr(core, name)() or "").split()
    channel.send(architectures=architectures)


def _run_checks(
    channel: Channel,
    context: CheckContext,
    work: str,
) -> None:
    """Run a table of checks until a fault breaks the GPU's context.

    Args:
        channel: Receives the results.
        context: The context of the checks.
        work: The table of checks: quick, deep, or bench.
    """
    if context.on_gpu:
        allow_tf32(context.torch, False)
    checks = select_checks(context.device, work)
    channel.send(checks=len(checks))
    for check in checks:
        status = channel.attempt(check.name, partial(_run_check, check, context))
        if status == "unproven":
            break
        if status == "failed" and (check.name == "device" or _is_context_lost(context)):
            break


def select_checks(device: str, work: str) -> list[Check]:
    """Return the checks for a kind of device, or for ``all`` GPUs together."""
    tables = {
        "quick": (*quick.CHECKS, *all_gpus.CHECKS),
        "deep": (*quick.CHECKS, *deep.CHECKS, *all_gpus.CHECKS),
        "bench": bench.CHECKS,
    }
    return [check for check in tables[work] if applies_to(check.where, device)]


def _run_check(check: Check, context: CheckContext) -> str | None:
    context = context._replace(limit=check.limit or 0.0)
    message = check.run(context)
    context.synchronize()
    return message


def _is_context_lost(context: CheckContext) -> bool:
    try:
        context.synchronize()
    except RuntimeError:
        return True
    return False
