"""The libraries of cuda-compat that lie unpacked beside an environment, and who has put them there."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from gpuinstall.environments.records import is_vouched, vouch
from gpuinstall.files import read_json, remove_path, unwritable, write_atomically
from gpuinstall.values import dataclass

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
    kept = CompatLibraries(**{**asdict(libraries), "path": str(folder)})
    write_atomically(libraries.record, json.dumps(asdict(kept)))
    vouch(folder, kept.sha256 or kept.driver)
    try:
        # Programs that run go on with the files that they have mapped.
        remove_path(folder)
        libraries.folder.replace(folder)
    except OSError as error:
        raise unwritable(folder, error) from None
    return kept


def kept_libraries(folder: Path) -> CompatLibraries | None:
    """Return the libraries in a folder; None if there are none that this user has put there."""
    with suppress(OSError, ValueError, TypeError):
        libraries = CompatLibraries(**read_json(folder / RECORD, folder))
        if libraries.folder == folder and is_vouched(folder, libraries.sha256 or libraries.driver):
            return libraries
    return None
