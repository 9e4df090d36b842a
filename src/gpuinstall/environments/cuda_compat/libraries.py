"""The libraries of cuda-compat that lie unpacked beside an environment, and who has put them there."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import suppress
from dataclasses import asdict, replace
from hashlib import sha256
from pathlib import Path

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import (
    read_json,
    remove_path,
    unwritable,
    write_atomically,
)
from gpuinstall.base.shell import quoted
from gpuinstall.base.values import dataclass
from gpuinstall.environments.records import forget, is_vouched, vouch
from gpuinstall.environments.stamp import file_stamp
from gpuinstall.machine.nvidia.libraries import COMPAT_FOLDER

RECORD = "cuda-compat.json"


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


def keep_libraries(libraries: CompatLibraries, environments: Path) -> None:
    """Put libraries that were tried beside environments, in the place of those there, and record that this user did.

    Raises:
        InstallationError: They cannot be moved or recorded.
    """
    folder = environments / COMPAT_FOLDER
    if libraries.folder == folder:
        return
    kept = replace(libraries, path=str(folder), id=os.urandom(16).hex())
    write_atomically(libraries.record, json.dumps(asdict(kept)))
    vouch(folder, kept.id)
    try:
        # Programs that run go on with the files that they have mapped.
        remove_path(folder)
        shutil.move(libraries.folder, folder)
    except OSError as error:
        raise unwritable(folder, error) from None
    # Only now do they count: a run that is killed before leaves a folder that nothing loads.
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
    stamps = [f"{file.name}:{file_stamp(str(file))}" for file in sorted(folder.iterdir())]
    return f"{number}:{sha256(repr(stamps).encode()).hexdigest()}"


def remove_libraries(libraries: CompatLibraries) -> None:
    """Remove libraries that this user has kept, and forget them."""
    remove_path(libraries.folder)
    forget(libraries.folder)
    forget(libraries.record)
