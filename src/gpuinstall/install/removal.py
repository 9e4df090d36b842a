"""An environment is removed: moved out of the way in one stroke, so that no half of it is ever found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.environments.records import forget
from gpuinstall.errors import UsageError
from gpuinstall.install.options import Previous
from gpuinstall.install.ownership import check_ownership, check_place
from gpuinstall.install.swap import discard, size_of
from gpuinstall.install.turn import turn

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.environments.paths import EnvironmentPaths
    from gpuinstall.reporter import Reporter


def remove(place: EnvironmentPaths, wait: float, reporter: Reporter, *, previous_only: bool) -> list[Previous]:
    """Remove an environment and the previous one, or that alone; locks stay. Raise UsageError where there is none."""
    check_place(place)
    with turn(place, wait, reporter):
        if not previous_only:
            _check(place)
        folders = [folder for folder in _folders(place, previous_only=previous_only) if folder.exists()]
        if not folders:
            raise UsageError("no-previous", f"there is no previous environment of {place.venv}")
        removed = [Previous(folder, size_of(folder)) for folder in folders]
        for folder in folders:
            folder.rename(place.staging)
            discard(place.staging)
    if not previous_only:
        forget(place.venv)
    return removed


def _check(place: EnvironmentPaths) -> None:
    if not place.venv.exists():
        hint = "gpuinstall env list   shows those there are"
        raise UsageError("environment-missing", f"there is no environment at {place.venv}", hint=hint)
    try:
        check_ownership(place)
    except UsageError as error:
        error.hint = f"rm -r {place.venv}   removes it with all that is in it"
        raise


def _folders(place: EnvironmentPaths, *, previous_only: bool) -> tuple[Path, ...]:
    return (place.previous,) if previous_only else (place.venv, place.previous)
