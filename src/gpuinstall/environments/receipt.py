"""What ``run`` has checked, so that the same command looks only at what could have changed since, in milliseconds.

On Linux, whose kernel says in its files which machine this is. It comes before all that takes long to import:
``typing``, ``contextlib`` and ``pathlib`` too.
"""

from __future__ import annotations

import os
import stat
import sys
import time
import zlib

from gpuinstall.environments.stamp import file_stamp

_MOST_BYTES = 3_000_000
COARSE_NS = 1_000_000_000
"""What changed so shortly before it was looked at may change again and show the same time."""
_VARIABLES = (
    "CUDA_",
    "GPUINSTALL_",
    "HIP_",
    "HOME",
    "HSA_",
    "LD_",
    "NVIDIA_",
    "PIP_",
    "ROCR_",
    "UV_",
    "XDG_C",
    "ZE_",
)
_BOOT = "/proc/sys/kernel/random/boot_id"
_FACTS = (
    _BOOT,
    "/etc/ld.so.cache",
    "/proc/bus/pci/devices",
    "/proc/driver/nvidia/version",
    "/sys/module/amdgpu/version",
)
"""Files that are read: each start of a container writes the loader's cache anew, so that its time says nothing."""
_NODES = ("/dev/dri", "/dev/nvidia-caps")
"""Folders whose names count, and not their times, for the same reason."""
_JOBS = (
    "SLURM_JOB_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "FLUX_JOB_ID",
    "SGE_TASK_ID",
    "COBALT_JOBID",
    "_CONDOR_SLOT",
)
_ALONE, _WITH_VALUE = ("--any", "--install"), ("--venv", "--wheels")
"""The options with which ``run --any`` chooses in the same way each time."""
_PLACES = ("/usr/lib/wsl/drivers", "/usr/lib/wsl/lib")


class Receipt:
    """What the check of a command depends on beside the files that are kept with it, as it is now.

    ``state`` has the folder, the options, the script, variables, driver and GPUs; ``since`` is when, in nanoseconds.
    """

    def __init__(self, options: list[str], command: list[str]) -> None:
        """Read what this machine is."""
        self.command = command
        nodes = [name for name in _names("/dev") if name.startswith(("nvidia", "kfd", "dxg"))]
        variables = sorted(item for item in os.environ.items() if item[0].startswith(_VARIABLES))
        # Only a job has nodes that its controller of devices denies; elsewhere each is not opened for nothing, which
        # without persistence starts its card and takes it down again.
        usable = _opens if any(os.environ.get(name) for name in _JOBS) else _is_permitted
        state = (
            [_text(path) for path in _FACTS],
            [usable(f"/dev/{name}") for name in nodes],
            nodes,
            [_names(folder) for folder in _NODES],
            variables,
        )
        script = command[0] if command[0].endswith(".py") else ""
        place = "\t".join((os.getcwd(), *options, script, sys.executable))
        self.file = f"{_cache_folder()}/runs/{zlib.crc32(os.fsencode(place)):08x}"
        self.state = f"{place}\t{zlib.crc32(os.fsencode(repr(state)))}"
        self.since = time.time_ns()

    def keep(
        self,
        venv: str,
        paths: list[str],
        *,
        is_script: bool,
        libraries: str = "",
    ) -> None:
        """Write that ``venv`` may run the command while ``paths`` stay as they are, unless one has just changed.

        ``libraries`` is the folder of those that it loads before the system's.
        """
        from contextlib import suppress
        from pathlib import Path

        from gpuinstall.base.errors import InstallationError
        from gpuinstall.base.files import write_atomically

        learned = f"{os.path.dirname(os.path.dirname(self.file))}/learned/builds"
        source = os.path.dirname(os.path.dirname(__file__))
        known = f"{source}/catalog/data", learned, *_PLACES
        folders = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
        own = (libraries,) if libraries else ()
        stamps = {path: file_stamp(path) for path in (*paths, *known, *folders, *own)}
        if any(abs(self.since - time) < COARSE_NS for _, time, _ in stamps.values()):
            return
        start = "python" * is_script
        if libraries:
            start = f"{start}\t{libraries}"
        rows = [f"{stamp}\t{path}" for path, stamp in stamps.items()]
        file = Path(self.file)
        # A cache that is not to be had, or a path that is no text.
        with suppress(InstallationError, OSError, ValueError):
            write_atomically(file, "\n".join((self.state, venv, start, *rows)))
            file.chmod(0o600)


def receipt_of(words: list[str]) -> Receipt | None:
    """The receipt of what ``run`` is told; None if it has other options, or nothing says which machine this is."""
    options: list[str] = []
    command = words
    while command and command[0] in (*_ALONE, *_WITH_VALUE):
        count = 1 if command[0] in _ALONE else 2
        options += command[:count]
        command = command[count:]
    is_known = not options or "--any" in options
    if (
        sys.platform != "linux"
        or not is_known
        or not command
        or command[0].startswith("-")
        or not _text(_BOOT)
    ):
        return None
    return Receipt(options, command)


def run_again(words: list[str]) -> None:
    """Become a command that was checked before, if all is as it was then; else return."""
    try:
        receipt = receipt_of(words)
        if receipt is None:
            return
        # Neither a pipe, on which to open it would wait, nor a link, which could lead to /dev/zero.
        descriptor = os.open(
            receipt.file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
        )
        with open(descriptor, encoding="utf-8") as file:
            status = os.fstat(descriptor)
            is_ours = status.st_uid == os.geteuid() and not status.st_mode & 0o077
            if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_BYTES:
                return
            state, venv, start, *rows = file.read().split("\n")
        if state != receipt.state or not is_ours:
            return
        stamps = (row.partition("\t") for row in rows)
        if any(str(file_stamp(path)) != stamp for stamp, _, path in stamps):
            return
        python, _, libraries = start.partition("\t")
        command = [python, *receipt.command] if python else receipt.command
        os.execvpe(command[0], command, activated(venv, libraries))  # noqa: S606
    except (OSError, ValueError):
        return


def _cache_folder() -> str:
    cache = os.environ.get("XDG_CACHE_HOME", "").strip() or os.path.expanduser("~/.cache")
    return os.path.join(cache, "gpuinstall")


def activated(venv: str, libraries: str = "") -> dict[str, str]:
    """The variables of a command in the environment ``venv``, as activating it sets them.

    Those in the folder ``libraries`` are loaded before the system's, which activating never does.
    """
    programs = os.path.join(venv, "Scripts" if os.name == "nt" else "bin")
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONHOME"}
    if libraries:
        folders = variables.get("LD_LIBRARY_PATH", "").split(os.pathsep)
        others = [folder for folder in folders if folder and folder != libraries]
        variables["LD_LIBRARY_PATH"] = os.pathsep.join((libraries, *others))
    return variables | {
        "PATH": f"{programs}{os.pathsep}{variables.get('PATH', os.defpath)}",
        "VIRTUAL_ENV": venv,
    }


def _text(path: str) -> str:
    try:
        with open(
            path,
            encoding="utf-8",
            errors="replace",
        ) as file:
            return file.read()
    except OSError:
        return ""


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _is_permitted(node: str) -> bool:
    return os.access(node, os.R_OK | os.W_OK)


def _opens(node: str) -> bool:
    """Open a node: the device controller of a job denies only then."""
    try:
        os.close(os.open(node, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True
