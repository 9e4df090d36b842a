"""Ask Windows for the parents of this process."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from ctypes import c_long, c_size_t, c_ulong, c_void_p, c_wchar

_SNAPSHOT_OF_PROCESSES = 2
_PATH_LENGTH = 260


class _Process(ctypes.Structure):
    """PROCESSENTRY32W of Windows."""

    _fields_ = (
        ("size", c_ulong),
        ("usage", c_ulong),
        ("number", c_ulong),
        ("heap", c_size_t),
        ("module", c_ulong),
        ("threads", c_ulong),
        ("parent", c_ulong),
        ("priority", c_long),
        ("flags", c_ulong),
        ("name", c_wchar * _PATH_LENGTH),
    )


def list_parent_programs() -> list[str]:
    """Return the names of this process's parents, nearest first."""
    processes = dict(_list_processes())
    names = []
    number = os.getppid()
    while number in processes:
        number, name = processes.pop(number)
        names.append(name.lower())
    return names


def _list_processes() -> Iterator[tuple[int, tuple[int, str]]]:
    """Yield the number, the parent, and the program of each process."""
    kernel = getattr(ctypes, "windll").kernel32  # noqa: B009  unknown to mypy on Linux
    kernel.CreateToolhelp32Snapshot.restype = c_void_p
    snapshot = c_void_p(kernel.CreateToolhelp32Snapshot(_SNAPSHOT_OF_PROCESSES, 0))
    process = _Process(size=ctypes.sizeof(_Process))
    found = kernel.Process32FirstW(snapshot, ctypes.byref(process))
    while found:
        yield process.number, (process.parent, process.name)
        found = kernel.Process32NextW(snapshot, ctypes.byref(process))
    kernel.CloseHandle(snapshot)
