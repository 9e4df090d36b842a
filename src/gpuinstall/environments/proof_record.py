"""What was proven of an environment on one machine, and whether that still holds: one record, read in milliseconds.

Every command that starts or changes an environment asks this record. It comes before all that takes long to import, as
``receipt`` does: ``typing``, ``contextlib`` and ``pathlib`` too.
"""

from __future__ import annotations

import os
import zlib

TYPE_CHECKING = False  # typing takes longer to import than this module
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from typing import Any

RECORD_SCHEMA = "gpuinstall.proof/2"
KEPT_RECORDS = 64
"""How many records stay, those written last: one of torch for CUDA may take 500 kB."""
_STARTUP_MODULES = ("sitecustomize", "usercustomize")
_SETTINGS = "pyvenv.cfg"
_MOST_BYTES = 20_000_000

# Size, modification time in nanoseconds, inode.
Stamp = tuple[int, int, int]


class ProofRecord:
    """What a proof on one machine covered, as it was then.

    Attributes:
        machine: The fingerprint of the machine: its system, driver and GPUs.
        python: The interpreter behind the environment's own, by its path, and its stamp.
        packages: By name, torch and each package that it loads: its version, its RECORD and locked hashes, digested.
        programs: By module, what was tested beside torch: its packages, digested.
        files: The stamp of each file that may be loaded, by its path below the environment: under "torch" those of
            torch and what it loads, under each program its own.
        startup: By path, the check sums of what Python runs at its start, ``*.pth`` and ``sitecustomize``,
            and of the setting that has it look for more in the system's packages.
        verdict: The Verdict document of the proof.
    """

    def __init__(
        self,
        *,
        machine: str,
        python: str,
        packages: Mapping[str, str],
        programs: Mapping[str, str],
        files: Mapping[str, Mapping[str, Stamp]],
        startup: Mapping[str, int],
        verdict: Mapping[str, Any],
    ) -> None:
        self.machine = machine
        self.python = python
        self.packages = dict(packages)
        self.programs = dict(programs)
        self.files = {owner: dict(stamps) for owner, stamps in files.items()}
        self.startup = dict(startup)
        self.verdict = dict(verdict)

    @property
    def is_passed(self) -> bool:
        """Whether every device passed."""
        return self.verdict.get("status") == "passed"

    def proves(self, gpus: Iterable[int]) -> bool:
        """Whether every device passed, and these GPUs (by their indices) were among them."""
        if not self.is_passed:
            return False
        devices = self.verdict.get("devices", ())
        tried = {device["index"] for device in devices}
        return tried.issuperset(gpus)

    def changed_file(self, venv: str) -> str | None:
        """Return the first covered file that is not as it was, None if all are."""
        if self.python != stamped_python(venv):
            return "bin/python"
        try:
            startup = startup_files(venv, folders_of(self.files["torch"]))
        except OSError as error:
            return str(error.filename)
        if self.startup != startup:
            changes = self.startup.items() ^ startup.items()
            return min(path for path, _ in changes)
        for stamps in self.files.values():
            for path, expected in stamps.items():
                if file_stamp(f"{venv}/{path}") != expected:
                    return path
        return None

    def write(self, path: Path) -> None:
        """Write it for this user; a cache that cannot be written is no fault: the next command proves again."""
        import json

        from gpuinstall.base.errors import InstallationError
        from gpuinstall.base.files import write_atomically

        try:
            document = {"schema": RECORD_SCHEMA, **vars(self)}
            write_atomically(path, json.dumps(document))
            # With a umask of 002 the group could write to it, and it would not be believed.
            path.chmod(0o600)
            digest = "[0-9a-f]" * 16
            records = list(path.parent.glob(f"*-{digest}.json"))
            records.sort(key=lambda record: record.stat().st_mtime)
            for old in records[:-KEPT_RECORDS]:
                old.unlink(missing_ok=True)
        except (InstallationError, OSError):
            return


def read_proof_record(path: str) -> ProofRecord | None:
    """Return a record of this user's; None if there is none, or none that we would have written."""
    import json

    flags = os.O_RDONLY
    # Windows has no O_NONBLOCK, which keeps a named pipe from waiting, and nothing else has O_BINARY.
    for name in ("O_NONBLOCK", "O_BINARY"):
        flags |= getattr(os, name, 0)
    try:
        descriptor = os.open(path, flags)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            if os.name == "posix":
                is_writable_by_others = status.st_mode & 0o022
                if is_writable_by_others or status.st_uid != os.geteuid():
                    return None
            document = json.loads(file.read(_MOST_BYTES))
        files = document["files"]
        if document.pop("schema") != RECORD_SCHEMA or "torch" not in files:
            return None
        for stamps in files.values():
            # JSON has no tuples.
            for name, (size, time, inode) in stamps.items():
                stamps[name] = (size, time, inode)
        return ProofRecord(**document)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def file_stamp(path: str) -> Stamp:
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


def startup_files(
    venv: str,
    folders: Iterable[str],
) -> dict[str, int]:
    """Return the check sums of what Python runs at its start, by path, in ``folders`` of packages below ``venv``."""
    sums = {_SETTINGS: _system_packages(venv)}
    for folder in folders:
        for name in sorted(os.listdir(f"{venv}/{folder}")):
            if not is_startup_file(name):
                continue
            path = f"{folder}/{name}"
            if os.path.isdir(f"{venv}/{path}"):
                path += "/__init__.py"
            place = f"{venv}/{path}"
            if os.path.isfile(place):
                with open(place, "rb") as file:
                    sums[path] = zlib.crc32(file.read(_MOST_BYTES))
    return sums


def is_startup_file(name: str) -> bool:
    """Whether Python runs a file or a folder of this name, beside the packages, at its start."""
    module, _, _ = name.partition(".")
    return name.endswith(".pth") or module in _STARTUP_MODULES


def _system_packages(venv: str) -> int:
    """Return 1 if an environment has the system's packages too, with what they run at the start, else 0."""
    try:
        with open(f"{venv}/{_SETTINGS}", "rb") as file:
            lines = file.read(_MOST_BYTES).splitlines()
    except OSError:
        return 0
    for line in lines:
        name, _, value = line.lower().partition(b"=")
        if name.strip() == b"include-system-site-packages":
            return int(value.strip() == b"true")
    return 0


def folders_of(files: Iterable[str]) -> list[str]:
    """Return the folders of packages that files lie in: all that leads up to ``site-packages``."""
    folders = set()
    for path in files:
        parent, sign, _ = path.partition("/site-packages/")
        if sign:
            folders.add(f"{parent}/site-packages")
    return sorted(folders)
