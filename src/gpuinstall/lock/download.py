"""Every file of some locks, brought into one folder for machines without a network."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

from gpuinstall.errors import InstallationError, LockError
from gpuinstall.lock.hashes import transfers
from gpuinstall.lock.wheels import local_path, sha256_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpuinstall.lock.document import LockedFile
    from gpuinstall.lock.lock import Lock
    from gpuinstall.lock.means import Means
    from gpuinstall.reporter import Meter


def download(locks: Sequence[Lock], folder: Path, means: Means) -> list[str]:
    """Bring every file into ``folder`` by its name, its hash checked, and return the names.

    What is there already stays. Raise LockError where there is no lock, InstallationError where a file is another.
    """
    if not locks:
        raise LockError("lock-missing", "there is no lock to fetch the files of", hint="gpuinstall lock")
    files = {file.name: file for lock in locks for file in lock.files}
    folder.mkdir(parents=True, exist_ok=True)
    with means.reporter.transfer("Download", None) as meter, transfers(meter) as (pool, count):
        list(pool.map(partial(_bring, folder=folder, means=means, meter=count), files.values()))
    return sorted(files)


def _bring(file: LockedFile, *, folder: Path, means: Means, meter: Meter) -> None:
    place, wanted = folder / file.name, file.sha256 or ""
    if place.is_file() and sha256_of(place) == wanted:
        return
    near = local_path(file.url) or means.cache.path(wanted, file.name)
    if near.is_file():
        shutil.copyfile(near, place)
    else:
        means.client.download(file.url, place, wanted, meter)
    if sha256_of(place) != wanted:
        raise InstallationError("hash-mismatch", f"{near} is not the file that was locked")
