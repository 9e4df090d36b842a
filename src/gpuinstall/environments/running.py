"""Identify the process that changes an environment.

On a file system without locks, the file with its identity is the lock.
"""

from __future__ import annotations

import os
import platform
import time
from contextlib import suppress
from pathlib import Path

from gpuinstall.base.files import read_document
from gpuinstall.environments.stamp import read_boot_id

ABANDONED_S = 600
"""The seconds after which an untouched file belongs to no running command."""


def describe_process() -> str:
    """Return the process ID, host, boot, and start time of this process."""
    number = os.getpid()
    lines = (
        f"process {number} on {platform.node()}",
        _read_system(),
        _read_start(number),
    )
    return "\n".join(lines)


def read_owner(file: Path) -> list[str]:
    """Return the process, boot, and start time in a file, or an empty list."""
    with suppress(OSError, ValueError):
        lines = read_document(file, file.parent).split("\n")
        if len(lines) == 3 and lines[0].split()[1].isdigit():
            return lines
    return []


def is_running(file: Path) -> bool:
    """Return whether the process that wrote a file may still be running.

    Processes of other containers and hosts touch the file.
    """
    with suppress(OSError, ValueError):
        is_new = time.time() - file.stat().st_mtime < ABANDONED_S
        name, system, start = read_owner(file)
        if start and system == _read_system():
            return _read_start(int(name.split()[1])) == start
        return is_new
    return False


def _read_system() -> str:
    """Return the boot and the namespace in which a process ID is valid."""
    with suppress(OSError):
        return f"{read_boot_id()} {Path('/proc/self/ns/pid').readlink()}"
    return platform.node()


def _read_start(number: int) -> str:
    """Return the start time of a process. Empty if unknown or not running."""
    with suppress(OSError):
        # The name in parentheses may contain spaces.
        text = Path(f"/proc/{number}/stat").read_text("utf-8", "replace")
        return text.rpartition(")")[2].split()[19]
    return ""
