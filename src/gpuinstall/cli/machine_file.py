"""A machine that somebody else described: a Machine document, or the folder of a recorded machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.errors import UsageError
from gpuinstall.machine import Machine

if TYPE_CHECKING:
    from gpuinstall.reporter import Reporter


def read_machine_file(name: str, reporter: Reporter) -> Machine:
    """Read a Machine document from a file or stdin, or a recorded machine's folder."""
    if name != "-" and Path(name).is_dir():
        from gpuinstall.probe.probe import read_recording

        return read_recording(Path(name), reporter)
    return read_document(name)


def read_document(name: str) -> Machine:
    """Read a Machine document from a file, or from stdin; raise UsageError where there is none."""
    try:
        return Machine.from_dict(json.loads(_stdin() if name == "-" else Path(name).read_bytes()))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not JSON"
        place = "stdin" if name == "-" else name
        message = f"{place} cannot be read: {reason} (gpuinstall probe --json writes a right one)"
        raise UsageError("machine-malformed", message) from None


def _stdin() -> bytes:
    return sys.stdin.buffer.read() if sys.stdin else b""
