"""An environment that was moved, or copied: its programs, settings and proof are made right where it lies now."""

from __future__ import annotations

import uuid
from pathlib import Path

from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.machine import Machine
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.values import replace
from gpuinstall.environments.activation import relocate_activation, relocate_scripts
from gpuinstall.environments.environment import read_marker
from gpuinstall.environments.guard import move_guard
from gpuinstall.environments.records import place_of, remember, was_made_here
from gpuinstall.install.journal import adopt_journal
from gpuinstall.install.state import stamp_file, standing_stamp


def place_before(venv: Path) -> Path | None:
    """Return where this user has made an environment that lies elsewhere now; None if it is none of theirs, or there."""
    marker = read_marker(venv)
    if marker is None or was_made_here(venv):
        return None
    return place_of(marker.id)


def relocate_environment(
    paths: EnvironmentPaths, here: Machine | None, reporter: Reporter
) -> None:
    """Make an environment right that this user has made elsewhere; nothing happens to any other.

    It gets an id of its own: that of a copy would be its original's.

    Args:
        paths: Where it lies now; this run holds it.
        here: This machine, whose proof of it goes on; None if kernels cannot run on it.
        reporter: Is told where it lay.

    Raises:
        InstallationError: something in it cannot be written.
    """
    venv = paths.venv
    before = place_before(venv)
    marker = read_marker(venv)
    if marker is None or before is None:
        return
    original = read_marker(before)
    is_copy = original is not None and original.id == marker.id
    own = replace(marker, id=str(uuid.uuid4()))
    # The marker comes last: a run that is killed before leaves an environment that is made right again.
    relocate_activation(venv, venv)
    relocate_scripts(venv, before)
    move_guard(venv, before)
    if here:
        stamp = standing_stamp(venv, marker, here)
        if stamp:
            stamp.write(stamp_file(own.id, here))
    adopt_journal(paths, before)
    remember(venv, own.id)
    own.write(venv, paths.work)
    reporter.step("Copied" if is_copy else "Moved", f"{before} -> {venv}")
