"""Remove environments, the journals of their changes, and the cache."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os.path import exists
from pathlib import Path

from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import GpuInstallError, UsageError
from gpuinstall.base.files import own_cache_folder
from gpuinstall.base.removal import is_folder, remove_file, remove_path, size_of
from gpuinstall.base.reporter import Reporter
from gpuinstall.environments.environment import read_marker
from gpuinstall.environments.kept_files import remove_environment
from gpuinstall.environments.records import changed_by_into, forget, remembered
from gpuinstall.environments.rights import check_owner
from gpuinstall.install.hold import WAIT_S, hold
from gpuinstall.install.journal import replaced_environment

_ROOM = 1_000_000
"""The bytes that removing an environment needs, for the folder and the lock of its run."""


def remove(
    paths: EnvironmentPaths,
    reporter: Reporter,
    wait: float = WAIT_S,
    *,
    typed_in: Path | None = None,
) -> dict[Path, int]:
    """Remove an environment of ours and the journal of its last change; locks stay, and the user's own files in a dated folder.

    Args:
        paths: The environment.
        reporter: Is told which files of the user were found, and where they are now.
        wait: The seconds to wait for another run.
        typed_in: The folder in which the command was typed; None: the working folder.

    Returns:
        The bytes of each folder that was removed.

    Raises:
        UsageError: there is none, it is not ours, or it cannot be removed from here.
        InstallationError: Another user owns it.
    """
    paths.check_left(typed_in, "removed")
    check_owner(paths)
    removable = find_removable(paths)
    if shutil.disk_usage(paths.folder).free < _ROOM and not exists(paths.work):
        # A full disk takes not even a new folder: the bytecode of what is about to go makes room.
        for folder in removable:
            for cache in list(folder.rglob("__pycache__")):
                remove_path(cache)
    with hold(paths, reporter, wait):
        removed = {
            folder: _remove_folder(folder, paths, reporter)
            for folder in find_removable(paths)
        }
    forget(paths.venv)
    return removed


def _remove_folder(
    folder: Path,
    paths: EnvironmentPaths,
    reporter: Reporter,
) -> int:
    """Remove an environment, or the journal of its last change; return its bytes.

    Args:
        folder: The environment, or the journal.
        paths: Where both lie.
        reporter: Is told what of the user's stays.
    """
    is_journal = folder == paths.last_change
    size = remove_environment(
        replaced_environment(folder) if is_journal else folder,
        paths.kept_files,
        trash=paths.work,
        reporter=reporter,
    )
    if is_journal:
        size += size_of(folder)
        remove_path(folder)
    return size


def find_prunable() -> dict[Path, int]:
    """Return the bytes of each folder that ``prune`` removes."""
    return {paths.last_change: size_of(paths.last_change) for paths in _changed()}


def prune(reporter: Reporter) -> dict[Path, int]:
    """Remove what ``env rollback`` would restore, and unused stamps.

    Returns:
        The bytes of each removed folder.
    """
    removed: dict[Path, int] = {}
    for paths in _changed():
        folder = paths.last_change
        with _named_if_it_stays(folder, reporter), hold(paths, reporter, 0):
            removed[folder] = _remove_folder(folder, paths, reporter)
    markers = map(read_marker, remembered())
    alive = {marker.id for marker in markers if marker}
    for stamp in own_cache_folder().glob("stamps/*.json"):
        if stamp.name.rpartition("-")[0] not in alive:
            remove_file(stamp)
    return removed


@contextmanager
def _named_if_it_stays(folder: Path, reporter: Reporter) -> Iterator[None]:
    try:
        yield
    except (GpuInstallError, OSError) as error:
        reporter.warn(f"{folder} stays: {error}")


def _changed() -> list[EnvironmentPaths]:
    """Return the environments that this user can roll back."""
    own = map(EnvironmentPaths, remembered())
    return [
        paths for paths in (*own, *changed_by_into()) if is_folder(paths.last_change)
    ]


def remove_cache() -> list[Path]:
    """Remove gpuinstall's files from its cache; return the other ones."""
    cache = own_cache_folder()
    for name in ("hashes", "learned", "pages", "stamps", "temporary"):
        remove_path(cache / name)
    for scratch in cache.glob("gpuinstall-*"):
        remove_path(scratch)
    with suppress(OSError):
        cache.rmdir()
    return sorted(cache.glob("*"))


def find_removable(paths: EnvironmentPaths) -> dict[Path, int]:
    """Return the bytes of each folder that would be removed.

    Raises:
        UsageError: there is nothing, or it is not ours.
    """
    venv = paths.venv
    if not os.path.lexists(venv):
        raise UsageError(
            "environment-missing",
            f"there is no environment at {venv}",
            hint="gpuinstall env list",
        )
    if read_marker(venv) is None:
        raise UsageError(
            "not-ours",
            f"{venv} was not made by gpuinstall, which leaves it where it is",
            hint="gpuinstall env list   # the environments that it made",
        )
    folders = filter(is_folder, (venv, paths.last_change))
    return {folder: size_of(folder) for folder in folders}
