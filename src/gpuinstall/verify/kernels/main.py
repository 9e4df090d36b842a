"""Main program of a child: import torch, and run checks on a device.

It reports JSON lines on its original stdout, to which nothing else can write.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
import traceback
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from . import all_gpus, bench, deep, quick
from .context import (
    MARK,
    Check,
    CheckContext,
    Skip,
    Unproven,
    Wrong,
    allow_tf32,
    first_line,
    is_out_of_memory,
    runs_on,
)
from .programs import program_check

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_TEXT = 8000
BUSY = (
    "busy or unavailable",
    "cudaErrorDevicesUnavailable",
    "MPS server is not ready",
)
"""The messages about a GPU that other processes use."""


class Channel:
    """Stream of records for the runner.

    It redirects other output on stdout, from Python or C, to stderr.
    """

    def __init__(self) -> None:
        sys.stdout.flush()
        self._stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def send(self, **record: Any) -> None:
        """Write a record immediately, so that a crash loses none."""
        self._stream.write(f"{MARK}{json.dumps(record)}\n")
        self._stream.flush()

    def attempt(
        self,
        name: str,
        run: Callable[[], str | None],
    ) -> str:
        """Run a check, report its start and result, and return its status."""
        self.send(begin=name)
        start = time.perf_counter()
        outcome = _outcome(run)
        seconds = time.perf_counter() - start
        status = str(outcome["status"])
        if status == "unproven":
            self.send(unproven=outcome["message"])
            outcome["status"] = "skipped"
        self.send(name=name, seconds=round(seconds, 4), **outcome)
        return status


def _outcome(run: Callable[[], str | None]) -> dict[str, Any]:
    try:
        return {"status": "passed", "message": run()}
    except Skip as reason:
        return {"status": "skipped", "message": str(reason)}
    except Unproven as reason:
        return {"status": "unproven", "message": str(reason)}
    except Wrong as reason:
        return _failure(str(reason))
    except Exception as error:  # noqa: BLE001  a broken environment raises any exception
        failure = _failure(_message(error))
        # This build is not at fault if other processes use the GPU or its memory.
        if is_out_of_memory(error) or any(sign in str(error) for sign in BUSY):
            failure["status"] = "unproven"
        return failure


def _failure(message: str) -> dict[str, Any]:
    text = traceback.format_exc()
    return {"status": "failed", "message": message, "evidence": text[-MOST_TEXT:]}


def _message(error: Exception) -> str:
    message = f"{type(error).__name__}: {first_line(error)}".rstrip(": ")
    cause = first_line(error.__cause__)
    return f"{message} ({cause})" if cause else message


class Options(NamedTuple):
    """The command line, a JSON object."""

    device: str
    """torch's name of the device, or cpu, all (GPUs at once), or none."""

    gpus: int
    """The number of GPUs of the device "all"."""

    work: str
    """quick, deep, or bench."""

    seconds: float
    """The limit of this process."""

    program: str | None
    """The module to test instead, after importing torch."""


def main() -> None:
    """Read the command line and run."""
    options = Options(**json.loads(sys.argv[1]))
    channel = Channel()
    faulthandler.enable()
    # Python cannot interrupt a driver call. This thread ends the process, and prints its position.
    faulthandler.dump_traceback_later(options.seconds, exit=True)
    if options.program:
        check = program_check(options.program, options.device)
        channel.attempt(check.name, lambda: _run_check(check, _context(options)))
        # The program's threads at exit are not part of the check.
        os._exit(0)
    if channel.attempt("import", _import_torch) == "passed":
        # Report the architectures first, because the first kernel may crash.
        context = _context(options)
        _send_architectures(channel, context)
        _run_checks(channel, context, options.work)


def _import_torch() -> str:
    torch = import_module("torch")
    # A folder without its files can be imported too.
    if not hasattr(torch, "_C"):
        raise ImportError("the folder torch has no torch in it")
    return str(torch.__file__)


def _context(options: Options) -> CheckContext:
    return CheckContext(import_module("torch"), options.device, gpus=options.gpus)


def _send_architectures(channel: Channel, context: CheckContext) -> None:
    """Report the architectures of the build.

    torch's public list is empty without a usable GPU. It also prevents CUDA in forked processes, which the checks of
    all GPUs need.
    """
    if context.device == "all":
        return
    architectures: list[str] = []
    for name in ("_cuda_getArchFlags", "_xpu_getArchFlags"):
        flags = getattr(context.torch._C, name, None)  # noqa: SLF001
        if flags and not architectures:
            architectures = (flags() or "").split()
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
        work: The table: quick, deep, or bench.
    """
    if context.on_gpu:
        allow_tf32(context.torch, False)
    for check in table(context.device, work):
        status = channel.attempt(check.name, partial(_run_check, check, context))
        if status == "unproven":
            break
        if status == "failed" and (check.name == "device" or _is_context_lost(context)):
            break


def table(device: str, work: str) -> list[Check]:
    """Return the checks for a kind of device, or for ``all`` GPUs together."""
    tables = {
        "quick": (*quick.CHECKS, *all_gpus.CHECKS),
        "deep": (*quick.CHECKS, *deep.CHECKS, *all_gpus.CHECKS),
        "bench": bench.CHECKS,
    }
    return [check for check in tables[work] if runs_on(check.where, device)]


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
