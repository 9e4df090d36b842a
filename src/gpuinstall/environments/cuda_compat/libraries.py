"""The libraries of cuda-compat that lie unpacked beside an environment, and who has put them there."""

from __future__ import annotations

import json
import os
import re
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import (
    is_folder,
    make_private_folder,
    read_json,
    remove_path,
    unwritable,
    write_atomically,
)
from gpuinstall.base.in_use import hold_alone
from gpuinstall.base.shell import quoted
from gpuinstall.base.values import dataclass
from gpuinstall.environments.proof_record import file_stamp
from gpuinstall.environments.records import forget, is_vouched, remember, vouch
from gpuinstall.machine.nvidia.libraries import COMPAT_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator

RECORD = "cuda-compat.json"
_WORK = re.compile(rf"{re.escape(COMPAT_FOLDER)}-[0-9a-f]{{8}}")
_UNPACKING = "unpacking"
"""What this user vouches for of a folder that libraries are unpacked in."""


@dataclass(frozen=True)
class CompatLibraries:
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
        """Return what a lock records of them."""
        evidence = {"driver": self.driver, "sha256": self.sha256, "url": self.address}
        return {key: value for key, value in evidence.items() if value}


def keep_libraries(libraries: CompatLibraries, folder: Path) -> CompatLibraries:
    """Put libraries that were tried in the place of those in a folder, and record that this user did.

    Raises:
        InstallationError: They cannot be moved or recorded.
    """
    kept = replace(libraries, path=str(folder), id=os.urandom(16).hex())
    write_atomically(libraries.record, json.dumps(asdict(kept)))
    vouch(folder, kept.id)
    vouch(folder, _stamped(kept.id, libraries.folder))
    try:
        # Programs that run go on with the files that they have mapped.
        remove_path(folder)
        libraries.folder.replace(folder)
    except OSError as error:
        raise unwritable(folder, error) from None
    return kept


def libraries_beside(environments: Path) -> CompatLibraries | None:
    """Return the libraries that serve a folder of environments; None if this user has put none there."""
    return kept_libraries(environments / COMPAT_FOLDER)


def kept_libraries(folder: Path) -> CompatLibraries | None:
    """Return the libraries in a folder; None if there are none that this user has put there."""
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
    stamps = [f"{file.name}:{file_stamp(str(file))}" for file in sorted(folder.iterdir())]
    return f"{number}:{sha256(repr(stamps).encode()).hexdigest()}"


def remove_libraries(libraries: CompatLibraries) -> None:
    """Remove libraries that this user has kept, and forget them."""
    remove_path(libraries.folder)
    forget(libraries.folder)
    forget(libraries.record)


@contextmanager
def unpacking_folder(environments: Path) -> Iterator[Path]:
    """Yield a new folder beside environments, to unpack libraries in; it goes when the run ends.

    Raises:
        InstallationError: It cannot be made.
        UsageError: What lies where the libraries are to be kept is not of this user's runs.
    """
    place = environments / COMPAT_FOLDER
    if os.path.lexists(place) and kept_libraries(place) is None:
        raise UsageError(
            "others-libraries",
            f"{place} was not made by gpuinstall for this user",
            why="the libraries would take its place",
            hint=f"mv {quoted(place)} {quoted(environments / 'cuda-compat.others')}\nRun it again",
        )
    remove_abandoned(environments)
    work = environments / f"{COMPAT_FOLDER}-{os.urandom(4).hex()}"
    # Recorded before it is there: a run may be killed at any moment after.
    remember(work, _UNPACKING)
    make_private_folder(work)
    # Until this run ends, or is killed, no other one takes the folder for abandoned.
    descriptor = hold_alone(str(work))
    try:
        yield work
    finally:
        _remove_unpacked(work)
        if descriptor is not None:
            os.close(descriptor)


def remove_abandoned(environments: Path) -> None:
    """Remove the folders beside environments that runs of this user were unpacking in when they were killed."""
    for work in environments.glob(f"{COMPAT_FOLDER}-*"):
        is_ours = _WORK.fullmatch(work.name) and is_folder(work) and is_vouched(work, _UNPACKING)
        if not is_ours:
            continue
        descriptor = hold_alone(str(work))
        if descriptor is not None:
            _remove_unpacked(work)
            os.close(descriptor)


def _remove_unpacked(work: Path) -> None:
    remove_path(work)
    if not os.path.lexists(work):
        forget(work)
