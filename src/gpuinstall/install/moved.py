"""Update paths in the scripts and settings of a moved environment."""

from __future__ import annotations

import uuid
from pathlib import Path

from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.machine import Machine
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.values import replace
from gpuinstall.environments.activation import relocate_activation, relocate_scripts
from gpuinstall.environments.environment import (
    compute_script_digests,
    find_modified_scripts,
    read_marker,
)
from gpuinstall.environments.guard import move_guard
from gpuinstall.environments.records import (
    find_recorded_path,
    remember_environment,
    was_created_here,
)
from gpuinstall.install.journal import adopt_journal
from gpuinstall.install.state import read_valid_stamp, stamp_file


def find_previous_path(venv: Path) -> Path | None:
    """Return the path from which an environment was moved, or None."""
    marker = read_marker(venv)
    if marker is None or was_created_here(venv):
        return None
    return find_recorded_path(marker.id)


def relocate_environment(
    paths: EnvironmentPaths, here: Machine | None, reporter: Reporter
) -> None:
    """Update the paths in an environment that its user moved or copied.

    The environment receives a new ID, because a copy has the ID of its original.

    Args:
        paths: The environment, which this command has locked.
        here: This machine, to keep its verification; None if kernels cannot run on it.
        reporter: Reports the previous path.

    Raises:
        InstallationError: A file cannot be written.
    """
    venv = paths.venv
    before = find_previous_path(venv)
    marker = read_marker(venv)
    if marker is None or before is None:
        return
    original = read_marker(before)
    # A killed change may have replaced the marker of the original.
    is_copy = original is not None and (
        original.id == marker.id or EnvironmentPaths(before).has_unfinished_change()
    )
    modified = find_modified_scripts(venv)
    # Write the marker last, so that the next command repeats an interrupted update.
    relocate_activation(venv, venv)
    relocate_scripts(venv, before)
    move_guard(venv, before)
    now = compute_script_digests(venv)
    scripts = {
        name: marker.scripts[name] if name in modified else now[name]
        for name in marker.scripts.keys() & now
    }
    own = replace(marker, id=str(uuid.uuid4()), scripts=scripts)
    if here:
        stamp = read_valid_stamp(venv, marker, here)
        if stamp:
            stamp.write(stamp_file(own.id, here))
    adopt_journal(paths)
    remember_environment(venv, own.id)
    own.write(venv, paths.work)
    reporter.step("Copied" if is_copy else "Moved", f"{before} -> {venv}")
