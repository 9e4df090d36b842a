"""Nothing of the user's is replaced unasked: neither a folder that is not ours, nor packages added to one that is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.environments.contents import foreign, installed
from gpuinstall.environments.marker import read_marker
from gpuinstall.errors import LockError, UsageError
from gpuinstall.lock.lock import read_lock

if TYPE_CHECKING:
    from gpuinstall.environments.paths import EnvironmentPaths
    from gpuinstall.lock.lock import Lock


def check_ownership(place: EnvironmentPaths) -> None:
    """Raise UsageError where the environment's place holds something of the user's."""
    if not os.path.lexists(place.venv) or _is_empty(place.venv):
        return
    if read_marker(place.venv) is None:
        raise _not_ours(place)
    own = own_lock(place.venv)
    extra = foreign(installed(place.venv), own.versions if own else {})
    if extra:
        raise _users_packages(place, extra)


def check_place(place: EnvironmentPaths) -> None:
    """Raise UsageError where no environment can be put, not even in place of what is there."""
    if place.venv.exists() and not place.venv.is_dir():
        raise UsageError("not-a-folder", f"{place.venv} is a file", hint="gpuinstall install --venv DIR")
    if Path.cwd().is_relative_to(place.venv):
        raise UsageError(
            "working-folder",
            f"{place.venv} cannot be replaced while it is the working folder, or holds it",
            hint="gpuinstall install --venv .venv",
        )
    if os.path.ismount(place.venv):
        raise UsageError(
            "mount-point",
            f"{place.venv} is a mount point, which cannot be replaced in one stroke",
            hint=f"put the environment into it: gpuinstall install --venv {place.venv / 'env'}",
        )


def own_lock(venv: Path) -> Lock | None:
    """The copy of its lock that an environment of ours holds; None where it is gone or damaged."""
    marker = read_marker(venv)
    try:
        return read_lock(venv / marker.lock) if marker else None
    except LockError:
        return None


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and next(folder.iterdir(), None) is None


def _not_ours(place: EnvironmentPaths) -> UsageError:
    kind = "an environment that gpuinstall did not make" if (place.venv / "pyvenv.cfg").exists() else "not ours"
    return UsageError(
        "not-ours",
        f"{place.venv} is {kind}",
        hint=f"the same with --replace (it stays in {place.previous}), or with --venv DIR",
    )


def _users_packages(place: EnvironmentPaths, extra: tuple[str, ...]) -> UsageError:
    names = " ".join(each.partition(" ")[0] for each in extra)
    return UsageError(
        "users-packages",
        f"{place.venv} holds packages that its lock does not: {', '.join(extra)}",
        why="they were installed by hand and would be lost with the environment that is replaced",
        hint=f"the same with --replace to go on; they remain in {place.previous}\n"
        f"gpuinstall install --replace torch {names}   to have them locked too",
    )
