"""Whether an environment is still what was proven on one machine: one stamp, which every command asks in milliseconds.

It comes before all that takes long to import: ``typing``, ``contextlib`` and ``pathlib`` too.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False  # typing takes longer to import than this module
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path
    from typing import Any

STAMP_SCHEMA = "gpuinstall.stamp/1"
TORCH = "torch"
_STARTUP_MODULES = ("sitecustomize", "usercustomize")
_LOADING = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONHOME", "PYTHONPATH")
"""The variables that change what is loaded."""
_COMPAT = ".cuda-compat"
_MOST_BYTES = 20_000_000

FileStamp = tuple[int, int, int]
"""Size, modification time in nanoseconds, inode."""


class Stamp:
    """What a proof on one machine covered, as it was then. A file that was changed behind its RECORD is ``verify``'s to find.

    Attributes:
        machine: The fingerprint of the machine: its system, driver and GPUs.
        python: The interpreter behind the environment's own, by its path, and its stamp.
        variables: Those that change what is loaded, by name.
        files: By path below the environment the stamps, under "torch", of the RECORD and the libraries of torch and of
            what it loads, of ``pyvenv.cfg``, and of what Python runs at its start; under each module that was tested
            beside torch, of the RECORDs of its package and of what that requires beside torch's.
        verdict: The Verdict document of the proof.
    """

    def __init__(
        self,
        *,
        machine: str,
        python: str,
        variables: Mapping[str, str],
        files: Mapping[str, Mapping[str, FileStamp]],
        verdict: Mapping[str, Any],
    ) -> None:
        self.machine = machine
        self.python = python
        self.variables = dict(variables)
        self.files = {owner: dict(stamps) for owner, stamps in files.items()}
        self.verdict = dict(verdict)

    @property
    def is_passed(self) -> bool:
        """Whether every device passed."""
        return self.verdict.get("status") == "passed"

    @property
    def programs(self) -> set[str]:
        """The modules that were tested beside torch."""
        return self.files.keys() - {TORCH}

    def proves(self, gpus: Iterable[int]) -> bool:
        """Whether every device passed, and these GPUs (by their indices) were among them."""
        if not self.is_passed:
            return False
        devices = self.verdict.get("devices", ())
        tried = {device["index"] for device in devices}
        return tried.issuperset(gpus)

    def holds(self, venv: str) -> bool:
        """Whether all is still as it was in an environment, and for the processes that are started now."""
        if self.python != stamped_python(venv) or self.variables != loading_variables():
            return False
        covered = self.files[TORCH]
        if not covered.keys() >= set(startup_files(venv, folders_of(covered))):
            return False
        for stamps in self.files.values():
            for path, expected in stamps.items():
                if file_stamp(f"{venv}/{path}") != expected:
                    return False
        return True

    def keeps(self, earlier: Stamp) -> bool:
        """Whether torch, and all that it loads, is what an earlier stamp covers.

        That is of another environment, which gave its files to this one as links, or as copies if a file system has no
        links: their inodes do not count.
        """
        if (self.python, self.variables) != (earlier.python, earlier.variables):
            return False
        return _sizes_and_times(self.files[TORCH]) == _sizes_and_times(earlier.files[TORCH])

    def new_programs(self, earlier: Stamp) -> tuple[str, ...]:
        """Return the modules to be tested that an earlier stamp does not cover as they are now."""
        new = []
        for module in sorted(self.programs):
            before = earlier.files.get(module, {})
            if _sizes_and_times(self.files[module]) != _sizes_and_times(before):
                new.append(module)
        return tuple(new)

    def proven(self, verdict: Mapping[str, Any]) -> Stamp:
        """Return it with the verdict that a proof of it came to."""
        return Stamp(**{**vars(self), "verdict": verdict})

    def write(self, path: Path) -> None:
        """Write it for this user; a cache that cannot be written is no fault: the next command proves again."""
        import json

        from gpuinstall.base.errors import InstallationError
        from gpuinstall.base.files import write_atomically

        try:
            write_atomically(path, json.dumps({"schema": STAMP_SCHEMA, **vars(self)}))
            # With a umask of 002 the group could write to it, and it would not be believed.
            path.chmod(0o600)
        except (InstallationError, OSError):
            return


def read_stamp(path: str) -> Stamp | None:
    """Return a stamp of this user's; None if there is none, or none that we would have written."""
    import json

    flags = os.O_RDONLY
    # Windows has no O_NONBLOCK, which keeps a named pipe from waiting, and nothing else has O_BINARY.
    for name in ("O_NONBLOCK", "O_BINARY"):
        flags |= getattr(os, name, 0)
    try:
        with os.fdopen(os.open(path, flags), "rb") as file:
            status = os.fstat(file.fileno())
            if os.name == "posix":
                is_writable_by_others = status.st_mode & 0o022
                if is_writable_by_others or status.st_uid != os.geteuid():
                    return None
            document = json.loads(file.read(_MOST_BYTES))
        files = document["files"]
        if document.pop("schema") != STAMP_SCHEMA or TORCH not in files:
            return None
        for stamps in files.values():
            # JSON has no tuples.
            for name, (size, time, inode) in stamps.items():
                stamps[name] = (size, time, inode)
        return Stamp(**document)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def file_stamp(path: str) -> FileStamp:
    """Return what tells a file from a changed one; zeros if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (status.st_size, status.st_mtime_ns, status.st_ino)


def stamped_python(venv: str) -> str:
    """Return the path of the interpreter behind an environment's own, with its stamp."""
    program = "Scripts/python.exe" if os.name == "nt" else "bin/python"
    real = os.path.realpath(f"{venv}/{program}")
    return f"{real} {file_stamp(real)}"


def loading_variables() -> dict[str, str]:
    """Return the variables of this process that change what a Python loads.

    The libraries of cuda-compat, which we put first, are not among them: they decide what driver the machine has.
    """
    variables = {}
    for name in _LOADING:
        folders = os.environ.get(name, "").split(os.pathsep)
        own = [folder for folder in folders if not os.path.basename(folder).startswith(_COMPAT)]
        if any(own):
            variables[name] = os.pathsep.join(own)
    return variables


def startup_files(venv: str, folders: Iterable[str]) -> Iterator[str]:
    """Yield what Python runs at its start, by path, in ``folders`` of packages below ``venv``; and what has it do so."""
    yield "pyvenv.cfg"
    for folder in folders:
        try:
            names = sorted(os.listdir(f"{venv}/{folder}"))
        except OSError:
            continue
        for name in filter(is_startup_file, names):
            path = f"{folder}/{name}"
            yield f"{path}/__init__.py" if os.path.isdir(f"{venv}/{path}") else path


def is_startup_file(name: str) -> bool:
    """Whether Python runs a file or a folder of this name, beside the packages, at its start."""
    module, _, _ = name.partition(".")
    return name.endswith(".pth") or module in _STARTUP_MODULES


def folders_of(files: Iterable[str]) -> list[str]:
    """Return the folders of packages that files lie in: all that leads up to ``site-packages``."""
    folders = set()
    for path in files:
        parent, sign, _ = path.partition("/site-packages/")
        if sign:
            folders.add(f"{parent}/site-packages")
    return sorted(folders)


def _sizes_and_times(stamps: Mapping[str, FileStamp]) -> dict[str, tuple[int, int]]:
    return {path: stamp[:2] for path, stamp in stamps.items()}
