"""Remove environments, their rollback data, and the cache."""

from __future__ import annotations

import shutil
from contextlib import suppress
from os.path import exists
from pathlib import Path

from gpuinstall.base.advice import make_command
from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import GpuInstallError, UsageError
from gpuinstall.base.files import own_cache_folder
from gpuinstall.base.removal import (
    is_folder,
    iter_files,
    remove_file,
    remove_path,
    tree_size,
)
from gpuinstall.base.reporter import Reporter
from gpuinstall.environments.discarding import discard_folder
from gpuinstall.environments.environment import is_vacant, read_marker
from gpuinstall.environments.ownership import find_user_paths, is_environment
from gpuinstall.environments.records import (
    find_recorded_environments,
    find_undoable_environments,
    forget_environment,
    locate_environment,
    make_missing_error,
)
from gpuinstall.environments.rights import check_owner
from gpuinstall.install.environment_lock import environment_lock
from gpuinstall.install.journal import is_journal

_SPACE = 1_000_000
"""The free disk space in bytes that removing an environment requires."""


def remove(
    paths: EnvironmentPaths,
    reporter: Reporter,
    *,
    command_folder: Path | None = None,
) -> dict[Path, int]:
    """Remove a managed environment and its rollback data. Keep lock files.

    Args:
        paths: The environment.
        reporter: Reports waits and removed user files.
        command_folder: The folder from which the command runs; None: the working folder.

    Returns:
        The size of each removed folder in bytes.

    Raises:
        UsageError: The environment is missing, not managed, or cannot be removed from this folder.
        InstallationError: Another user owns the environment.
    """
    paths.check_working_folder(command_folder, "removed")
    check_owner(paths)
    removable = find_removable(paths)
    if shutil.disk_usage(paths.work.parent).free < _SPACE and not exists(paths.work):
        # On a full disk, remove compiled modules first to free some space.
        for folder in removable:
            for file in iter_files(folder):
                if file.parent.name == "__pycache__" and file.suffix == ".pyc":
                    remove_file(file)
    with environment_lock(paths, reporter, is_replaced=True):
        removed = {
            folder: discard_folder(
                folder, paths.work, reporter, find_removed_files(folder)
            )
            for folder in find_removable(paths)
        }
    forget_environment(paths.venv)
    return removed


def find_removed_files(folder: Path) -> list[str]:
    """Return the user's files in an environment. A journal has none."""
    return [] if is_journal(folder) else find_user_paths(folder)


def find_prunable() -> dict[Path, int]:
    """Return the size of each folder that ``env prune`` would remove."""
    return {
        folder: tree_size(folder)
        for paths in _find_changed_environments()
        for folder in _find_rollback_data(paths)
    }


def prune(reporter: Reporter) -> dict[Path, int]:
    """Remove rollback data and the stamps of missing environments.

    Returns:
        The size of each removed folder in bytes.
    """
    removed: dict[Path, int] = {}
    for paths in _find_changed_environments():
        try:
            # Recovering a killed rebuild moves the previous environment.
            with environment_lock(paths, reporter, 0):
                for folder in _find_rollback_data(paths):
                    removed[folder] = discard_folder(
                        folder, paths.work, reporter, find_removed_files(folder)
                    )
        except (GpuInstallError, OSError) as error:  # noqa: PERF203  a removal takes seconds
            reporter.warn(f"rollback data of {paths.venv} was not removed: {error}")
    markers = map(read_marker, find_recorded_environments())
    alive = {marker.id for marker in markers if marker}
    for stamp in own_cache_folder().glob("stamps/*.json"):
        if stamp.name.rpartition("-")[0] not in alive:
            remove_file(stamp)
    return removed


def _find_changed_environments() -> list[EnvironmentPaths]:
    """Return the environments of this user that have rollback data."""
    own = map(locate_environment, find_recorded_environments())
    return [*filter(_find_rollback_data, (*own, *find_undoable_environments()))]


def _find_rollback_data(paths: EnvironmentPaths) -> list[Path]:
    """Return the folders that are kept for rolling back an environment."""
    # The user may have folders with these names.
    folders = [*filter(is_journal, [paths.last_change])]
    if paths.is_managed:
        folders += filter(is_environment, [paths.previous])
    return list(filter(is_folder, folders))


def remove_cache() -> list[Path]:
    """Remove gpuinstall's cached files, and return files of other programs."""
    cache = own_cache_folder()
    for name in (
        "hashes",
        "hosts",
        "learned",
        "pages",
        "stamps",
        "temporary",
        "unreachable",
    ):
        remove_path(cache / name)
    for scratch in cache.glob("gpuinstall-*"):
        remove_path(scratch)
    with suppress(OSError):
        cache.rmdir()
    return sorted(cache.glob("*"))


def find_removable(paths: EnvironmentPaths) -> dict[Path, int]:
    """Return the size of each folder that ``env remove`` would remove.

    Raises:
        UsageError: The environment is missing or not managed.
    """
    venv = paths.venv
    is_present = not is_vacant(venv)
    # A killed removal leaves a part of the environment or the rollback data.
    if not (is_present or is_journal(paths.last_change) or is_folder(paths.work)):
        raise make_missing_error(venv, creates=False)
    # A killed rebuild may have moved the marker.
    is_unfinished = paths.has_unfinished_change()
    if is_present and read_marker(venv) is None and not is_unfinished:
        raise UsageError(
            "not-ours",
            f"{venv} was not created by gpuinstall; not removing it",
            hint=make_command("env", "list", note="lists managed environments"),
        )
    folders = [venv] if is_present else []
    folders += _find_rollback_data(paths)
    return {folder: tree_size(folder) for folder in folders if is_folder(folder)}
