"""The previous environment, which can be gone back to; it and the one in force, removed."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuinstall.environments.environment import installed_packages, read_marker
from gpuinstall.environments.jupyter import remove_kernel, settle_kernel
from gpuinstall.environments.ownership import added_packages, compiled_paths
from gpuinstall.environments.records import forget, was_at
from gpuinstall.errors import InstallationError, UsageError
from gpuinstall.files import is_folder, remove_file
from gpuinstall.in_use import hold_alone
from gpuinstall.install.disposal import dispose
from gpuinstall.install.environment_lock import environment_lock, is_idle
from gpuinstall.install.inspection import check_replaceable
from gpuinstall.install.scripts import script_environments
from gpuinstall.install.swap import size_of, swap_in
from gpuinstall.shell import quoted
from gpuinstall.text import some

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from gpuinstall.environments.paths import EnvironmentPaths
    from gpuinstall.reporter import Reporter


_ROOM = 1_000_000
"""The bytes that removing an environment needs, for the folders and the lock of its run."""


@dataclass(frozen=True)
class Previous:
    """An environment that was replaced or removed, and its size in bytes."""

    path: Path
    bytes: int


def find_previous(paths: EnvironmentPaths) -> Previous | None:
    """Find what was replaced last and is kept."""
    return Previous(paths.previous, size_of(paths.previous)) if paths.has_previous else None


def roll_back(paths: EnvironmentPaths, wait: float, reporter: Reporter) -> None:
    """Exchange the environment, and its lock, for the previous one, whoever made that.

    Raise UsageError if there is none, or if this user has replaced neither it nor what is in its place.
    """
    with environment_lock(paths, wait, reporter):
        if not paths.has_previous:
            raise _no_previous(paths)
        if not was_at(paths.venv, paths.previous):
            message = f"the previous environment of {paths.venv} was not replaced by you on this machine"
            why = "it may have come with the folder, and would run unproven"
            hint = "gpuinstall sync   # makes one from the lock"
            raise UsageError("not-made-here", message, why=why, hint=hint)
        _check_ours(paths.venv)
        swap_in(paths, paths.previous, reporter)
    settle_kernel(paths.venv, installed_packages(paths.venv), wanted=False)


def remove(
    paths: EnvironmentPaths,
    wait: float,
    reporter: Reporter,
    *,
    previous_only: bool,
    with_packages: bool = False,
) -> list[Previous]:
    """Remove an environment of ours and the previous one, or that alone; locks stay.

    The user's own files are left in the environment's folder; those in the previous one are moved
    to a dated folder.

    Args:
        paths: the environment.
        wait: the seconds to wait for another run.
        reporter: is told what of the user's was found, and where it is now.
        previous_only: removes only the previous environment.
        with_packages: also removes packages that the user added.

    Raises:
        UsageError: there is none, or it is not ours.
    """
    check_replaceable(paths)
    removed = find_removable(paths, previous_only=previous_only, with_packages=with_packages)
    if is_idle(paths) and shutil.disk_usage(paths.folder).free < _ROOM:
        _make_room(removed)
    with _unused(paths), environment_lock(paths, wait, reporter):
        removed = find_removable(paths, previous_only=previous_only, with_packages=with_packages)
        for each in removed:
            is_previous = each.path == paths.previous
            dispose(each.path, paths, reporter, leave_user_files=not is_previous)
    if not previous_only:
        forget(paths.venv)
        remove_kernel(paths.venv)
    return removed


def _make_room(removed: Sequence[Previous]) -> None:
    """Remove the bytecode of environments that are about to go: a full disk takes not even a new folder."""
    for each in removed:
        for path in compiled_paths(each.path):
            remove_file(each.path / path)


@contextmanager
def _unused(paths: EnvironmentPaths) -> Iterator[None]:
    """Hold an environment in the cache alone; raise InstallationError if a program runs in it."""
    if paths.folder.parent.resolve() != script_environments().resolve():
        yield
        return
    descriptor = hold_alone(str(paths.folder))
    if descriptor is None:
        hint = "the same again   # once it has ended"
        raise InstallationError("busy", f"a program runs in {paths.venv}", hint=hint)
    try:
        yield
    finally:
        os.close(descriptor)


def find_removable(paths: EnvironmentPaths, *, previous_only: bool, with_packages: bool) -> list[Previous]:
    """Find what would be removed.

    Raises:
        UsageError: there is nothing, it is not ours, or it has packages that the user added and
            that are not to be removed.
    """
    if previous_only:
        if not paths.has_previous:
            raise _no_previous(paths)
        return [Previous(paths.previous, size_of(paths.previous))]
    if not os.path.lexists(paths.venv):
        hint = "gpuinstall env list"
        raise UsageError("environment-missing", f"there is no environment at {paths.venv}", hint=hint)
    if read_marker(paths.venv) is None:
        hint = "gpuinstall env list   # the environments that it made"
        raise _not_ours(paths.venv, hint)
    if not with_packages and (packages := added_packages(paths.venv)):
        message = f"{paths.venv} has packages that are not in its lock: {some(packages)}"
        hint = "the same with --yes   # removes them too"
        raise UsageError("users-packages", message, hint=hint, data={"packages": list(packages)})
    folders = (paths.venv, paths.previous)
    return [Previous(folder, size_of(folder)) for folder in folders if is_folder(folder)]


def _check_ours(venv: Path) -> None:
    """Raise UsageError if something else of the user's lies there: the next change would delete it."""
    if os.path.lexists(venv) and read_marker(venv) is None and not was_at(venv, venv):
        hint = f"mv {quoted(venv)} {quoted(f'{venv}.other')}   # then the same again"
        raise _not_ours(venv, hint)


def _not_ours(venv: Path, hint: str) -> UsageError:
    message = f"{venv} was not made by gpuinstall, which leaves it where it is"
    return UsageError("not-ours", message, hint=hint)


def _no_previous(paths: EnvironmentPaths) -> UsageError:
    return UsageError("no-previous", f"no previous environment of {paths.venv}")
