"""An environment that goes, and what of it stays: whatever no installer wrote, or was edited since."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.base.environment_paths import packages_folders
from gpuinstall.base.errors import InstallationError
from gpuinstall.base.files import unwritable
from gpuinstall.base.removal import (
    files_below,
    is_folder,
    is_link,
    mounts_in,
    remove_file,
    remove_path,
    size_of,
)
from gpuinstall.base.shell import quoted
from gpuinstall.base.text import readable, some
from gpuinstall.environments.damage import find_damage
from gpuinstall.environments.environment import added_packages, read_marker
from gpuinstall.environments.ownership import is_environment, user_paths
from gpuinstall.environments.packages import read_packages

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuinstall.base.reporter import Reporter


def remove_environment(
    folder: Path,
    kept: Path,
    trash: Path,
    reporter: Reporter,
) -> int:
    """Remove an environment; the user's own files go into a dated folder, and what is mounted in it stays.

    Both are named, and so are the packages that pip or uv added, which go.

    Args:
        folder: The environment; of a link there the link alone is removed.
        kept: Where dated folders lie: nothing of ours removes them.
        trash: A folder on the same file system whose ``.discarded-…`` the next run removes, should this one be killed.
        reporter: Is told what stays, and where it is now.

    Returns:
        The bytes that were removed.

    Raises:
        InstallationError: something cannot be moved; nothing is removed then.
    """
    if is_link(folder):
        remove_path(folder)
    if not os.path.lexists(folder):
        return 0
    try:
        mounts = [
            mount.removeprefix(f"{folder}{os.sep}")
            for mount in sorted(mounts_in(folder))
        ]
        # Where no record says what was there, pip or uv installed it all.
        packages = added_packages(folder) if read_marker(folder) else ()
        _keep(folder, kept, _movable(folder, mounts), reporter)
        size = size_of(folder)
        if mounts:
            remove_path(folder)
            text = f"{folder}, with what is mounted at {some(mounts)}"
            reporter.notice("Kept", text)
        else:
            discarded = folder.rename(trash / f".discarded-{os.urandom(4).hex()}")
            remove_path(discarded)
    except OSError as error:
        raise unwritable(folder, error) from None
    if packages:
        text = f"{', '.join(packages)}: added by pip or uv to {folder}"
        reporter.notice("Removed", text)
    return size


def copy_edited(venv: Path, kept: Path, reporter: Reporter) -> None:
    """Copy the edited files of an environment's packages into a dated folder: they are about to be replaced.

    Raises:
        InstallationError: they cannot be written there.
    """
    files = {file.relative_to(venv).as_posix() for file in files_below(venv)}
    paths = sorted(edited_paths(venv) & files)
    if not paths:
        return
    try:
        place = dated_folder(kept) / venv.name
        for path in paths:
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(venv / path, place / path)
    except OSError as error:
        raise unwritable(kept, error) from None
    reporter.notice("Kept", f"{some(paths)}, as they were edited: now in {place}")


def edited_paths(venv: Path) -> set[str]:
    """Return the files of an environment's packages that were edited, by their paths in it."""
    edited = set[str]()
    for damage in find_damage(read_packages(packages_folders(venv))):
        if damage.kind == "edited":
            site = damage.package.record.parent.relative_to(venv).as_posix()
            edited.update(f"{site}/{path}" for path in damage.files)
    return edited


def _movable(folder: Path, mounts: Collection[str]) -> list[str]:
    """Return what of the user's can be moved: folders as a whole, but those in which something is mounted."""
    files = {file.relative_to(folder).as_posix() for file in files_below(folder)}
    movable = set[str]()
    for path in user_paths(folder):
        is_on_the_way = any(mount.startswith(f"{path}/") for mount in mounts)
        if is_on_the_way:
            movable.update(file for file in files if file.startswith(f"{path}/"))
        else:
            movable.add(path)
    if is_environment(folder):
        # What lies behind a link or a mount is none of the environment's files.
        movable |= edited_paths(folder) & files
    return sorted(movable.difference(mounts))


def _keep(
    folder: Path,
    kept: Path,
    paths: list[str],
    reporter: Reporter,
) -> None:
    """Move files and folders of the user's out of an environment; name those that were moved, if not all could be."""
    if not paths:
        return
    place = dated_folder(kept) / folder.name
    size = 0
    moved = []
    try:
        for path in paths:
            bytes_of_path = size_of(folder / path)
            _move(folder / path, place / path)
            size += bytes_of_path
            moved.append(path)
        # Only now: a link may lead to what was moved after it.
        for path in moved:
            _settle_links(folder, place, path)
    finally:
        if moved:
            text = f"{some(moved)}, which no installer wrote, or you have edited: {readable(size)}, now in {place}"
            reporter.notice("Kept", text)
        else:
            with suppress(OSError):
                place.parent.rmdir()


def _move(source: Path, destination: Path) -> None:
    """Move a file, a link or a folder."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    # A folder of a lower layer of an image cannot be renamed: it is copied then.
    shutil.move(source, destination)


def _settle_links(folder: Path, place: Path, path: str) -> None:
    """Have the links of what was moved lead where they did; those to something that was moved with them do."""
    moved = place / path
    for file in files_below(moved) if is_folder(moved) else [moved]:
        if not file.is_symlink() or file.readlink().is_absolute():
            continue
        before = folder / file.relative_to(place)
        leads_to = Path(os.path.normpath(before.parent / file.readlink()))
        if leads_to.exists() or not file.exists():
            remove_file(file)
            file.symlink_to(leads_to)


def dated_name() -> str:
    """Return the name of a new folder for what is kept."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(2).hex()}"


def dated_folder(kept: Path, name: str = "") -> Path:
    """Make a folder for what is kept; raise InstallationError if a link or a file is in its place."""
    if os.path.lexists(kept) and not is_folder(kept):
        raise InstallationError(
            "not-writable",
            f"{kept}, for files of yours, is not a folder",
            hint=f"mv {quoted(kept)} {quoted(f'{kept}.old')}",
        )
    folder = kept / (name or dated_name())
    folder.mkdir(parents=True, exist_ok=True)
    return folder
