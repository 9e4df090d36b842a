"""A whole environment in the place of another, and the way back from the last change, which is a change too."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

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
    sync_folder,
    write_journal,
)
from gpuinstall.install.transaction import (
    changing,
    commit,
    finish_rebuild,
    heal,
    publish_lock,
    retire,
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
        if is_folder(place.root) and any(place.root.iterdir()):
            _exchange(place, newcomer, reporter)
            return
        # The journal of an environment that the user has removed.
        retire(place, reporter)
        if place.root.exists():
            place.root.rmdir()
        newcomer.rename(place.root)
        sync_folder(place.root.parent)
        publish_lock(place)
    except OSError as error:
        with suppress(OSError, InstallationError):
            heal(place, reporter, is_own=True)
        raise unwritable(place.root, error) from None


def _exchange(place: EnvironmentPaths, newcomer: Path, reporter: Reporter) -> None:
    inode = newcomer.stat().st_ino
    journal = Journal(Owner.this_run(), is_rebuild=True, inode=inode)
    remove_path(place.new)
    place.new.mkdir(parents=True)
    write_journal(journal, place, place.new)
    with defer_interrupts():
        place.new.rename(place.changing)
        place.root.rename(replaced_environment(place.changing))
        newcomer.rename(place.root)
        finish_rebuild(place, journal, reporter)


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
    staging = place.work / f"staging-{os.urandom(4).hex()}"
    link_tree(before(place.last), staging)
    present = [
        package
        for package in read_packages(place.packages_folders)
        if package.name in journal.packages
    ]
    versions: dict[str, set[str]] = {}
    for package in present:
        versions.setdefault(package.name, set()).add(package.version)
    moved = []
    for name, (_, after) in journal.packages.items():
        if versions.get(name, set()) != ({after} if after else set()):
            moved.append(name)
    if moved:
        reporter.warn(
            f"{some(moved)} came or changed since in {place.venv}, and stays as it is"
        )
    sites = [
        staging / folder.relative_to(place.root) for folder in place.packages_folders
    ]
    arriving = {}
    apart = set[str]()
    for package in read_packages(sites):
        if package.name in moved:
            apart |= written_files(package, staging).keys()
        else:
            arriving[package] = staging
    edited = {name for name in journal.own if _is_edited_guard(place.root / name)}
    further = {}
    for file in files_below(staging):
        name = file.relative_to(staging).as_posix()
        if name not in apart | edited:
            further[name] = file
    goes = set(journal.own) - further.keys() - edited
    return plan_change(
        place,
        arriving=arriving,
        leaving=[package for package in present if package.name not in moved],
        further=further,
        goes={name for name in goes if os.path.lexists(place.root / name)},
    )


def _is_edited_guard(path: Path) -> bool:
    """Whether a file of the guard is no longer ours."""
    is_guard = path.name in GUARD_FILES and os.path.lexists(path)
    return is_guard and not is_own_guard_file(path)
