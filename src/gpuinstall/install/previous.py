"""The previous environment, which can be gone back to; it and the one in force, removed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuinstall.environments.environment import Marker, installed_packages, read_marker
from gpuinstall.environments.jupyter import remove_kernel, settle_kernel
from gpuinstall.environments.records import forget, was_made_here
from gpuinstall.errors import UsageError
from gpuinstall.files import is_folder
from gpuinstall.install.environment_lock import environment_lock
from gpuinstall.install.inspection import check_replaceable, inspect_environment
from gpuinstall.install.swap import discard, size_of, swap_in

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.environments.paths import EnvironmentPaths
    from gpuinstall.reporter import Reporter


@dataclass(frozen=True)
class Previous:
    """An environment that was replaced or removed, and its size in bytes."""

    path: Path
    bytes: int


def find_previous(paths: EnvironmentPaths) -> Previous | None:
    """Find what was replaced last and is kept."""
    return Previous(paths.previous, size_of(paths.previous)) if paths.has_previous else None


def roll_back(paths: EnvironmentPaths, wait: float, reporter: Reporter) -> Marker:
    """Exchange the environment, and its lock, for the previous one; raise UsageError where there is none."""
    with environment_lock(paths, wait, reporter):
        marker = read_marker(paths.previous) if paths.has_previous else None
        if marker is None:
            raise _no_previous(paths)
        if not was_made_here(paths.previous, paths.venv):
            message = f"the previous environment of {paths.venv} was not made on this machine"
            why = "it may have come with the folder, and would run unproven"
            hint = "gpuinstall sync   # makes one from the lock"
            raise UsageError("not-made-here", message, why=why, hint=hint)
        swap_in(paths, paths.previous)
    settle_kernel(paths.venv, installed_packages(paths.venv), wanted=False)
    return marker


def remove(
    paths: EnvironmentPaths, wait: float, reporter: Reporter, *, previous_only: bool, anything: bool = False
) -> list[Previous]:
    """Remove an environment and the previous one, or that alone; locks stay. Raise UsageError where there is none.

    ``anything`` says that an environment which is not ours, or holds more than we put there, goes too. Each is moved
    out of the way in one stroke, so that no half of it is ever removable.
    """
    check_replaceable(paths)
    with environment_lock(paths, wait, reporter):
        removed = find_removable(paths, previous_only=previous_only, anything=anything)
        for previous in removed:
            discard(previous.path, paths)
    if not previous_only:
        forget(paths.venv)
        remove_kernel(paths.venv)
    return removed


def find_removable(paths: EnvironmentPaths, *, previous_only: bool, anything: bool) -> list[Previous]:
    """Find what would be removed.

    Raise UsageError where there is nothing, or, unless ``anything`` may go, an environment that is not ours alone.
    """
    if previous_only:
        if not paths.has_previous:
            raise _no_previous(paths)
        return [Previous(paths.previous, size_of(paths.previous))]
    if not paths.venv.exists():
        hint = "gpuinstall env list"
        raise UsageError("environment-missing", f"there is no environment at {paths.venv}", hint=hint)
    is_environment = (paths.venv / "pyvenv.cfg").is_file() or (paths.venv / "conda-meta").is_dir()
    try:
        if not (anything and is_environment):
            inspect_environment(paths).check_ownership()
    except UsageError as error:
        error.hint = "the same with --yes   # removes it with everything in it" if is_environment else None
        raise
    return [Previous(folder, size_of(folder)) for folder in (paths.venv, paths.previous) if is_folder(folder)]


def _no_previous(paths: EnvironmentPaths) -> UsageError:
    return UsageError("no-previous", f"no previous environment of {paths.venv}")
