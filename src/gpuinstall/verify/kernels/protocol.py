"""What a child tells the runner: JSON lines on the stream that was its stdout, which nothing else can reach."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_TEXT = 8000


class Skip(Exception):  # noqa: N818  an outcome, not an error
    """The check has no meaning on this device or build; the argument says why."""


class Unproven(Exception):  # noqa: N818  an outcome, not an error
    """The device could not be tried; the argument says why."""


class Wrong(Exception):  # noqa: N818  an outcome, not an error
    """A kernel ran and its result is wrong; the argument says by how much."""


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
        return {"status": "failed", "message": str(reason), "text": traceback.format_exc()[-MOST_TEXT:]}
    except Exception as error:  # noqa: BLE001  whatever a broken environment raises is the result
        return _failure(error)


def _failure(error: Exception) -> dict[str, Any]:
    lines = str(error).strip().splitlines() or [""]
    message = f"{type(error).__name__}: {lines[0]}".rstrip(": ")
    status = "unproven" if busy(str(error)) else "failed"
    return {"status": status, "message": message, "text": traceback.format_exc()[-MOST_TEXT:]}


def busy(text: str) -> bool:
    """Say whether an error means that somebody else has the device or its memory."""
    signs = ("busy or unavailable", "CUDA out of memory", "CUDA error: out of memory", "cudaErrorDevicesUnavailable")
    return any(sign in text for sign in signs)
