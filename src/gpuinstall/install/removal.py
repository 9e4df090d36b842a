"""Remove an environment of ours and the previous one; the user's own files stay."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpuinstall.cuda_compat.libraries import libraries_beside, remove_libraries
from gpuinstall.environments.environment import added_packages, read_marker
from gpuinstall.environments.jupyter import remove_kernel
from gpuinstall.environments.ownership import compiled_paths
from gpuinstall.environments.records import forget
from gpuinstall.errors import InstallationError, UsageError
from gpuinstall.files import is_folder, remove_file
from gpuinstall.in_use import hold_alone
from gpuinstall.install.disposal import dispose
from gpuinstall.install.environment_lock import environment_lock, is_idle
from gpuinstall.install.inspection import check_replaceable
from gpuinstall.install.scripts import script_environments
from gpuinstall.install.swap import size_of
from gpuinstall.text import some

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpuinstall.cuda_compat.libraries import CompatLibraries
    from gpuinstall.environments.paths import EnvironmentPaths
    from gpuinstall.reporter import Reporter


_ROOM = 1_000_000
"""The bytes that removing an environment needs, for the folders and the lock of its run."""


def remove(
    paths: EnvironmentPaths,
    wait: float,
    reporter: Reporter,
    *,
    previous_only: bool,
    with_packages: bool = False,
) -> dict[Path, int]:
    """Remove an environment of ours and the previous one, or that alone; locks stay.

    The user's own files are left in the environment's folder; those in the previous one are moved
    to a dated folder.

    Args:
        paths: the environment.
        wait: the seconds to wait for another run.
        reporter: is told what of the user's was found, and where it is now.
        previous_only: removes only the previous environment.
        with_packages: also removes packages that the user added.

    Returns:
        The bytes of each folder that was removed.

    Raises:
        UsageError: there is none, or it is not ours.
    """
    check_replaceable(paths)
    removed = find_removable(paths, previous_only=previous_only, with_packages=with_packages)
    if is_idle(paths) and shutil.disk_usage(paths.folder).free < _ROOM:
        # A full disk takes not even a new folder: the bytecode of what is about to go makes room.
        for folder in removed:
            for path in compiled_paths(folder):
                remove_file(folder / path)
    with _unused(paths), environment_lock(paths, wait, reporter):
        removed = find_removable(paths, previous_only=previous_only, with_packages=with_packages)
        libraries = None if previous_only else _libraries_of_last(paths)
        for folder in removed:
            if libraries and folder == libraries.folder:
                remove_libraries(libraries)
            else:
                dispose(folder, paths, reporter, leave_user_files=folder != paths.previous)
    if not previous_only:
        forget(paths.venv)
        remove_kernel(paths.venv)
    return removed


def find_removable(
    paths: EnvironmentPaths, *, previous_only: bool, with_packages: bool
) -> dict[Path, int]:
    """Return the bytes of each folder that would be removed.

    Raises:
        UsageError: there is nothing, it is not ours, or it has packages that the user added and
            that are not to be removed.
    """
    if previous_only:
        if not paths.has_previous:
            raise UsageError("no-previous", f"no previous environment of {paths.venv}")
        return {paths.previous: size_of(paths.previous)}
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
    packages = added_packages(venv)
    if packages and not with_packages:
        raise UsageError(
            "users-packages",
            f"{venv} has packages that are not in its lock: {some(packages)}",
            hint="the same with --yes   # removes them too",
            data={"packages": list(packages)},
        )
    folders = [folder for folder in (venv, paths.previous) if is_folder(folder)]
    libraries = _libraries_of_last(paths)
    if libraries:
        folders.append(libraries.folder)
    return {folder: size_of(folder) for folder in folders}


def _libraries_of_last(paths: EnvironmentPaths) -> CompatLibraries | None:
    """Return the libraries of cuda-compat beside an environment, if no other environment there is started with them."""
    for other in paths.folder.iterdir():
        if other != paths.venv and read_marker(other):
            return None
    return libraries_beside(paths.folder)


@contextmanager
def _unused(paths: EnvironmentPaths) -> Iterator[None]:
    """Hold an environment in the cache alone; raise InstallationError if a program runs in it."""
    if paths.folder.parent.resolve() != script_environments().resolve():
        yield
        return
    descriptor = hold_alone(str(paths.folder))
    if descriptor is None:
        raise InstallationError(
            "busy",
            f"a program runs in {paths.venv}",
            hint="the same again   # once it has ended",
        )
    try:
        yield
    finally:
        os.close(descriptor)
