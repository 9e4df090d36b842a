"""Store the verdict of a verification with the files that it covers."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpuinstall.base.codec import read_object, write_object
from gpuinstall.base.environment_paths import interpreter
from gpuinstall.base.errors import InstallationError
from gpuinstall.base.files import read_json, write_atomically
from gpuinstall.base.machine import Driver
from gpuinstall.base.owners import is_mine
from gpuinstall.base.values import Value

STAMP_NAME = "gpuinstall-stamp.json"
TORCH = "torch"
_STARTUP_MODULES = ("sitecustomize", "usercustomize")
_LOADING = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONHOME", "PYTHONPATH")
"""The variables that change which files are loaded."""

FileStamp = tuple[int, int, int]
"""The size, modification time in nanoseconds, and inode of a file."""


class Stamp(Value):
    """Verdict of a verification, with the files and variables it covers.

    A stamp does not detect a changed file if its RECORD is unchanged. The ``verify`` command
        detects such a change.
    """

    python: str
    """Path, size, time, and inode of the base interpreter and of its copy."""
    variables: Mapping[str, str]
    """The variables that change which files are loaded."""
    files: Mapping[str, Mapping[str, FileStamp]]
    """Sizes, times, and inodes by file path relative to the environment.

    The key "torch" has the RECORD and libraries of torch and of the packages that it loads,
    ``pyvenv.cfg``, and the files that Python runs at startup. The keys of other verified
    modules have the RECORDs of their package and its other requirements.
    """
    verdict: dict[str, Any]
    """The Verdict document of the verification."""
    key: str = ""
    """The environment and the machine of a stamp in an environment."""
    boot: str = ""
    """The boot ID of a stamp in an environment."""
    driver: Driver | None = None
    """The driver, with the path of a replacement libcuda if one is used."""

    @property
    def is_passed(self) -> bool:
        """Whether every device passed the verification."""
        return self.verdict.get("status") == "passed"

    @property
    def programs(self) -> set[str]:
        """The modules that were verified, except torch."""
        return set(self.files) - {TORCH}

    def covers(self, gpus: Iterable[int]) -> bool:
        """Return whether all devices passed and these GPUs are among them."""
        tried = {device["index"] for device in self.verdict.get("devices", ())}
        return self.is_passed and tried.issuperset(gpus)

    def is_current(self, venv: str) -> bool:
        """Return whether the verified files and variables are unchanged."""
        if (
            self.python != stamp_python(venv)
            or self.variables != read_loading_variables()
        ):
            return False
        covered = self.files[TORCH]
        # A new .pth file runs before torch and is in no stamp.
        if not covered.keys() >= set(
            find_startup_files(venv, find_site_packages(covered))
        ):
            return False
        for stamps in self.files.values():
            for path, expected in stamps.items():
                if read_file_stamp(f"{venv}/{path}") != expected:
                    return False
        return True

    def has_same_torch(self, earlier: Stamp) -> bool:
        """Return whether torch is unchanged since an earlier verification."""
        now = self.python, self.variables, self.files[TORCH]
        return now == (earlier.python, earlier.variables, earlier.files[TORCH])

    def find_new_programs(self, earlier: Stamp) -> tuple[str, ...]:
        """Return the modules that changed since an earlier verification."""
        return tuple(
            module
            for module in sorted(self.programs)
            if self.files[module] != earlier.files.get(module)
        )

    def write(self, path: Path) -> None:
        """Store the verification result, unless the cache is read-only."""
        with suppress(InstallationError):
            write_atomically(
                path,
                json.dumps(write_object(self)),
                is_private=True,
                is_cached=True,
            )


def read_stamp(path: Path) -> Stamp | None:
    """Read a stored verification if it is valid and belongs to this user."""
    with suppress(OSError, ValueError):
        # Another user could forge a stamp.
        if not is_mine(path):
            return None
        stamp = read_object(Stamp, read_json(path, None))
        if TORCH in stamp.files:
            return stamp
    return None


def read_file_stamp(path: str) -> FileStamp:
    """Return the size, time, and inode of a file, or zeros if missing."""
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (status.st_size, status.st_mtime_ns, status.st_ino)


def read_boot_id() -> str:
    """Return the ID of this boot, or "" on a system without one."""
    if os.name == "nt":
        return _read_boot_time()
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("utf-8").strip()
    return ""


def _read_boot_time() -> str:
    """Return the time of the boot of Windows, or "" if it is unknown.

    Later corrections of the clock do not change it.
    """
    import ctypes

    times = (ctypes.c_int64 * 6)()
    time_of_day = 3  # SystemTimeOfDayInformation
    ntdll = getattr(ctypes, "windll").ntdll  # noqa: B009  unknown to mypy on Linux
    size = ctypes.sizeof(times)
    if ntdll.NtQuerySystemInformation(time_of_day, times, size, None):
        return ""
    boot, _, _, _, correction, _ = times
    return str(boot - correction)


def stamp_python(venv: str) -> str:
    """Return the path, size, time, and inode of the base interpreter.

    If the environment contains a copy or launcher of the interpreter, as on Windows, both
    are in the text.
    """
    folder = os.path.realpath(venv)
    python = os.path.realpath(interpreter(Path(venv)))
    stamp = str(read_file_stamp(python))
    if not Path(python).is_relative_to(folder):
        return f"{python} {stamp}"
    # A new environment is verified before it is moved to its path.
    own = f"{os.path.relpath(python, folder)} {stamp}"
    home = read_home(folder)
    if home is None:
        return own
    base = os.path.join(home, os.path.basename(python))
    return f"{own} {base} {read_file_stamp(base)}"


def read_home(venv: str | Path) -> str | None:
    """Return the folder of the base interpreter, if pyvenv.cfg has it."""
    with suppress(OSError, ValueError):
        text = Path(venv, "pyvenv.cfg").read_text("utf-8")
        home = re.search(r"(?m)^home *= *(.+?)\s*$", text)
        return home and home[1]
    return None


def read_loading_variables() -> dict[str, str]:
    """Return environment variables that affect which libraries are loaded."""
    return {name: os.environ[name] for name in _LOADING if os.environ.get(name)}


def find_startup_files(venv: str, folders: Iterable[str]) -> Iterator[str]:
    """Yield the files that Python runs at startup, and ``pyvenv.cfg``.

    Args:
        venv: The environment.
        folders: The packages folders, relative to it.
    """
    yield "pyvenv.cfg"
    for folder in folders:
        try:
            names = sorted(os.listdir(f"{venv}/{folder}"))
        except OSError:
            continue
        for name in filter(_is_startup_file, names):
            path = f"{folder}/{name}"
            yield f"{path}/__init__.py" if os.path.isdir(f"{venv}/{path}") else path


def _is_startup_file(name: str) -> bool:
    """Return whether Python runs an entry of ``site-packages`` at startup."""
    module, _, _ = name.partition(".")
    return name.endswith(".pth") or module in _STARTUP_MODULES


def find_site_packages(files: Iterable[str]) -> list[str]:
    """Return the ``site-packages`` folders that contain files."""
    folders = set()
    for path in files:
        parent, sign, _ = path.partition("/site-packages/")
        if sign:
            folders.add(f"{parent}/site-packages")
    return sorted(folders)
