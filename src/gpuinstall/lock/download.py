"""Every file of some locks, brought into one folder for machines without a network."""

from __future__ import annotations

import shutil
from functools import partial
from typing import TYPE_CHECKING

from gpuinstall.errors import InstallationError, LockError
from gpuinstall.files import written
from gpuinstall.lock.hashes import transfers
from gpuinstall.lock.wheels import local_path, sha256_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from gpuinstall.lock.document import LockedFile
    from gpuinstall.lock.lock import Lock
    from gpuinstall.reporter import Meter
    from gpuinstall.session import Session


def download(locks: Sequence[Lock], folder: Path, session: Session) -> list[str]:
    """Bring every file into ``folder`` by its name, its hash checked, and return the names.

    Where two files have one name, the second lies below its hash; what is there already stays. Raise LockError where
    there is no lock or a file has no sha256 in it, InstallationError where a file is another.
    """
    if not locks:
        raise LockError("lock-missing", "there is no lock to fetch the files of", hint="gpuinstall lock")
    files = _places(file for lock in locks for file in lock.files)
    if unhashed := [name for name, file in files.items() if file.sha256 is None]:
        raise LockError("lock-unhashed", f"a lock has no sha256 of {unhashed[0]}", hint="gpuinstall lock --upgrade")
    with session.reporter.transfer("Download", None) as meter, transfers(meter) as (pool, count):
        list(pool.map(partial(_bring, session=session, meter=count), map(folder.joinpath, files), files.values()))
    return sorted(files)


def _places(files: Iterable[LockedFile]) -> dict[str, LockedFile]:
    """Give each file a place of its own."""
    places: dict[str, LockedFile] = {}
    for file in files:
        first = places.setdefault(file.name, file)
        if first.sha256 != file.sha256:
            places[f"{file.sha256}/{file.name}"] = file
    return places


def _bring(place: Path, file: LockedFile, *, session: Session, meter: Meter) -> None:
    wanted = file.sha256 or ""
    if place.is_file() and sha256_of(place) == wanted:
        return
    local = local_path(file.url)
    near = local or session.cache.path(wanted, file.name)
    if (local or near.is_file()) and sha256_of(near) == wanted:
        with written(place) as copy, near.open("rb") as original:
            shutil.copyfileobj(original, copy)
    elif local:
        raise InstallationError("hash-mismatch", f"{local} is not the file that was locked")
    else:
        session.client.download(file.url, place, wanted, meter)
