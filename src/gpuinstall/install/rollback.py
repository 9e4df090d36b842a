"""A whole environment in the place of another, and the way back from the last change, which is a change too."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from gpuinstall.base.environment_paths import below
from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.files import link_tree, unwritable
from gpuinstall.base.interruption import defer_interrupts
from gpuinstall.base.removal import files_below, is_folder, remove_path
from gpuinstall.base.text import some
from gpuinstall.environments.guard import GUARD_FILES, is_own_guard_file
from gpuinstall.environments.packages import read_packages, written_files
from gpuinstall.install.file_change import plan_change
from gpuinstall.install.journal import (
    Journal,
    Owner,
    before,
    read_journal,
    replaced_environment,
    sync_file_system,
    write_journal,
)
from gpuinstall.install.transaction import (
    changing,
    commit,
    finish_rebuild,
    heal,
    moved_since,
)

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.base.environment_paths import EnvironmentPaths
    from gpuinstall.base.reporter import Reporter
    from gpuinstall.install.file_change import Change


def replace_environment(
    place: EnvironmentPaths, newcomer: Path, reporter: Reporter
) -> None:
    """Put a whole environment that is proven in the place of another, which the journal then holds.

    Raises:
        InstallationError: it cannot be put there; the other is where it was.
    """
    try:
        sync_file_system(newcomer)
        inode = newcomer.stat().st_ino
        journal = Journal(Owner.this_run(), is_rebuild=True, inode=inode)
        remove_path(place.new)
        place.new.mkdir(parents=True)
        write_journal(journal, place, place.new)
        with defer_interrupts():
            place.new.rename(place.changing)
            if place.root.exists():
                place.root.rename(replaced_environment(place.changing))
            newcomer.rename(place.root)
            finish_rebuild(place, journal, reporter)
    except OSError as error:
        with suppress(OSError, InstallationError):
            heal(place, reporter, is_own=True)
        raise unwritable(place.root, error) from None


def roll_back(place: EnvironmentPaths, reporter: Reporter) -> None:
    """Take the last change back, and keep what is there for the way forward.

    Raises:
        UsageError: there is none by this user, or a file lies behind a link.
        InstallationError: something cannot be written.
    """
    journal = read_journal(place.last, place)
    if journal is None or not (journal.is_rebuild or is_folder(place.root)):
        raise UsageError(
            "no-previous",
            f"there is no change by gpuinstall to undo in {place.venv}, by this user",
        )
    if journal.is_rebuild:
        replace_environment(place, replaced_environment(place.last), reporter)
        return
    with changing(_reverse(place, journal, reporter), reporter) as reverse:
        commit(place, reverse, reporter)


def _reverse(place: EnvironmentPaths, journal: Journal, reporter: Reporter) -> Change:
    """Return the change that takes one back; a package that another installer has changed since is left alone."""
    moved = moved_since(place, journal, place.last)
    if moved:
        reporter.warn(
            f"{some(moved)} came or changed since in {place.venv}, and stays as it is"
        )
    staging = place.staging
    link_tree(before(place.last), staging)
    folders = [staging / below(one, place.root) for one in place.packages_folders]
    apart = {name for name in journal.own if _is_edited_guard(place.root / name)}
    after = {}
    for package in read_packages(folders):
        if package.name in moved:
            apart |= written_files(package, staging).keys()
        else:
            after[package.name] = package.version
    files = {
        file.relative_to(staging).as_posix(): file for file in files_below(staging)
    }
    present = read_packages(place.packages_folders)
    returning = journal.packages.keys() - moved
    return plan_change(
        place,
        comes={name: files[name] for name in files.keys() - apart},
        after=after,
        leaving=[package for package in present if package.name in returning],
        own=set(journal.own) - apart,
    )


def _is_edited_guard(path: Path) -> bool:
    """Whether a file of the guard is no longer ours."""
    is_guard = path.name in GUARD_FILES and os.path.lexists(path)
    return is_guard and not is_own_guard_file(path)
