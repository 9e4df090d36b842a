"""The libraries of cuda-compat that lie unpacked beside an environment, and who has put them there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os.path import isdir
from pathlib import Path
from typing import NamedTuple

from gpuinstall.base.environment_paths import COMPAT_FOLDER
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import read_json, write_atomically, writing
from gpuinstall.base.finding import Reason
from gpuinstall.base.machine import Machine
from gpuinstall.base.removal import remove_path
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.shell import quoted
from gpuinstall.base.values import Value, asdict, replace
from gpuinstall.catalog.drivers import load_drivers
from gpuinstall.environments.environment import fingerprint
from gpuinstall.environments.records import is_vouched, remember, vouch
from gpuinstall.environments.stamp import file_stamp
from gpuinstall.machine.nvidia.compat import compat_rejection
from gpuinstall.machine.nvidia.libraries import ask_libcuda_in, with_compat
from gpuinstall.machine.probe import preflight, read_machine

RECORD = "cuda-compat.json"


class CompatLibraries(Value):
    """The libraries, unpacked in a folder."""

    driver: str
    """The release of the driver that they are of."""
    sha256: str
    """The archive's; empty for a folder."""
    address: str
    """The archive's, if others can reach it."""
    path: str
    """The folder."""
    id: str = ""
    """What no stranger knows: a random number, which this user's state has too."""

    def __str__(self) -> str:
        return f"cuda-compat {self.driver}"

    @property
    def folder(self) -> Path:
        """Where they lie."""
        return Path(self.path)

    @property
    def record(self) -> Path:
        """The file that says so."""
        return self.folder / RECORD

    def to_evidence(self) -> dict[str, str]:
        """Return the record of them in a lock."""
        evidence = {"driver": self.driver, "sha256": self.sha256, "url": self.address}
        return {key: value for key, value in evidence.items() if value}


def keep_libraries(libraries: CompatLibraries, environments: Path) -> None:
    """Put libraries that were tried beside environments, in the place of those there, and record that this user did.

    Raises:
        InstallationError: They cannot be moved or recorded.
    """
    import shutil

    folder = environments / COMPAT_FOLDER
    if libraries.folder == folder:
        return
    kept = replace(libraries, path=str(folder), id=os.urandom(16).hex())
    write_atomically(libraries.record, json.dumps(asdict(kept)))
    vouch(folder, kept.id)
    with writing(folder):
        # Programs that run go on with the files that they have mapped.
        remove_path(folder)
        shutil.move(libraries.folder, folder)
    # Only now, the files being in place, does what merely looks at this machine take them for those of this user.
    vouch(folder, _stamped(kept.id, folder))


def check_place(environments: Path) -> None:
    """Raise UsageError if what lies where libraries are to be kept is not of this user's runs."""
    folder = environments / COMPAT_FOLDER
    if os.path.lexists(folder) and libraries_beside(environments) is None:
        raise UsageError(
            "others-libraries",
            f"{folder} was not made by gpuinstall for this user",
            why="the libraries would take its place",
            hint=f"mv {quoted(folder)} {quoted(folder.with_name('cuda-compat.others'))}\nRun it again",
        )


def libraries_beside(environments: Path) -> CompatLibraries | None:
    """Return the libraries that serve a folder of environments; None if this user has put none there."""
    folder = environments / COMPAT_FOLDER
    with suppress(OSError, ValueError, TypeError):
        libraries = CompatLibraries(**read_json(folder / RECORD, folder))
        if libraries.folder == folder and is_vouched(folder, libraries.id):
            return libraries
    return None


def are_as_unpacked(libraries: CompatLibraries) -> bool:
    """Whether every file is the very one that was unpacked; in an image that was moved none is."""
    return is_vouched(libraries.folder, _stamped(libraries.id, libraries.folder))


def _stamped(number: str, folder: Path) -> str:
    """Return the id of libraries with what tells each file of them from another."""
    from hashlib import sha256  # loads OpenSSL, which a plan does without

    stamps = [
        f"{file.name}:{file_stamp(str(file))}" for file in sorted(folder.iterdir())
    ]
    return f"{number}:{sha256(repr(stamps).encode()).hexdigest()}"


class MachineHere(NamedTuple):
    """This machine, as programs see it that are started here."""

    machine: Machine
    libraries: CompatLibraries | None = None
    """What they load before the system's libraries."""


@contextmanager
def loaded_first(folder: Path | None) -> Iterator[None]:
    """Have children load the libraries of a folder first; with None, the system's own."""
    before = os.environ.get("LD_LIBRARY_PATH")
    _set(with_compat(os.environ, folder).get("LD_LIBRARY_PATH"))
    try:
        yield
    finally:
        _set(before)


def _set(folders: str | None) -> None:
    os.environ.pop("LD_LIBRARY_PATH", None)
    if folders is not None:
        os.environ["LD_LIBRARY_PATH"] = folders


@contextmanager
def machine_beside(
    folder: Path,
    reporter: Reporter,
    *,
    only_looks: bool = False,
) -> Iterator[MachineHere]:
    """Yield this machine, with the libraries that lie in a folder of environments if they count here.

    Children load them first until it ends.

    Args:
        folder: The folder.
        reporter: Is told why they do not count.
        only_looks: Whether nothing of the folder is started: then libraries that came with it, in an image, do not count.
    """
    libraries = libraries_beside(folder)
    if libraries is None or (only_looks and not are_as_unpacked(libraries)):
        place = folder / COMPAT_FOLDER
        if isdir(place):
            reporter.step(
                "cuda-compat", f"off: {place} was not unpacked there for this user"
            )
        yield MachineHere(read_machine(reporter))
        return
    other = None
    with loaded_first(None):
        machine = read_machine(reporter)
        # On a login node nothing would load them.
        if machine.gpus:
            other = machine_with(libraries, machine, reporter)
        if isinstance(other, Reason):
            reporter.step("cuda-compat", f"off: {other.message}")
        if not isinstance(other, Machine):
            yield MachineHere(machine)
            return
    with loaded_first(libraries.folder):
        yield MachineHere(other, libraries)


def machine_with(
    libraries: CompatLibraries,
    machine: Machine,
    reporter: Reporter,
) -> Machine | Reason:
    """Return this machine as programs see it with the libraries, or why they are not used.

    Args:
        libraries: What is to be loaded before the system's libraries.
        machine: This machine with its own driver.
        reporter: Is told what the kernels showed.
    """
    environments = (
        with_compat(os.environ, None),
        with_compat(os.environ, libraries.folder),
    )
    system, above = ask_libcuda_in(environments)
    reason = compat_rejection(machine, system, above, load_drivers())
    if reason:
        return reason
    with loaded_first(libraries.folder):
        other = read_machine(reporter)
        identity = f"{libraries.id}:{fingerprint(other)}"
        # A kernel has run with these libraries on this very machine before: it need not run again.
        if is_vouched(libraries.record, identity):
            return other
        proof = preflight(other, reporter)
    faults = [
        problem for problem in other.problems + proof.problems if problem.blocking
    ]
    if faults:
        text = f"{faults[0].message} with it ({faults[0].evidence})"
        return Reason("cuda-compat-fails", text)
    if proof.outcomes:
        reporter.step(
            "cuda-compat", f"{libraries.driver}: {proof.summary}", proof.seconds
        )
    # A GPU that was busy is tried again by the next command.
    if not proof.with_outcome("unproven"):
        remember(libraries.record, identity)
    return other
