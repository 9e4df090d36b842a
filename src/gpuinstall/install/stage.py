"""An environment built from a lock beside the one it will replace."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from gpuinstall.base import uv
from gpuinstall.base.environment_paths import interpreter, site_packages
from gpuinstall.base.errors import InstallationError
from gpuinstall.base.files import link_tree, write_atomically, write_temporarily
from gpuinstall.base.removal import remove_file, remove_path
from gpuinstall.base.shell import joined
from gpuinstall.base.text import number_of
from gpuinstall.environments.activation import settle_activation
from gpuinstall.environments.environment import damaged_torch, installed_packages
from gpuinstall.environments.guard import (
    GUARD_FILES,
    constraint_lines,
    own_guard_files,
    write_guard,
)
from gpuinstall.environments.ownership import check_written_files
from gpuinstall.environments.packages import read_packages
from gpuinstall.install.priced_lock import PricedLock, builds_of
from gpuinstall.install.proof import Installation, check_links
from gpuinstall.install.state import leaving_packages
from gpuinstall.lock.binding import members_beside
from gpuinstall.lock.fetch import (
    Transfer,
    build_index,
    is_served,
    local_path,
    refresh_words,
    run_uv,
)
from gpuinstall.lock.fit import Fit
from gpuinstall.lock.source_builds import sync_settings, sync_variables
from gpuinstall.machine.pythons import find_python

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuinstall.install.state import ExistingEnvironment
    from gpuinstall.lock.lock import Lock
    from gpuinstall.project import Project
    from gpuinstall.sources.session import Session


def build(priced: PricedLock, project: Project) -> Installation:
    """Build an environment of a lock at ``paths.staging``, with what the existing one has of it already.

    Args:
        priced: The lock, what has to be fetched of it, and what stays as it is.
        project: The run.

    Raises:
        InstallationError: also if what uv has put there is damaged or lacks a library.
    """
    paths, session, fit = project.paths, project.session, priced.fit
    start = monotonic()
    remove_path(paths.staging)
    # Torch, and with it all that torch loads, is as it was.
    copied = priced.existing if priced.unchanged else None
    if copied:
        _copy(copied, priced, project)
    else:
        _create(fit, paths.staging, session)
    new = fit.lock.names - priced.unchanged
    keeps_guard = copied is not None and _has_guard(copied, priced, project)
    with ThreadPoolExecutor(2) as pool:
        # The index is asked while uv installs.
        pool.submit(_load_checks)
        if not keeps_guard:
            beside = pool.submit(members_beside, fit, project.catalog, session)
        if new:
            fit = replace(fit, lock=_install(new, priced, project))
            _check_files(new, priced, project)
    write_atomically(paths.staging / fit.lock.name, fit.lock.text)
    settle_activation(paths.staging, paths.venv)
    if not keeps_guard:
        lines = constraint_lines(
            fit.lock.versions_of(project.catalog.family),
            beside.result(),
            fit.choice.build.backend.tag,
        )
        write_guard(
            paths.staging,
            paths.venv,
            source=fit.lock.name,
            lines=lines,
            constraints=project.pip_constraints(paths.venv),
        )
    # As "uv pip list" counts them: with pip, which no lock holds.
    installed = number_of(len(installed_packages(paths.staging)), "package")
    if copied:
        installed += f", {len(new)} of them new"
    session.reporter.detail("Installed", installed, monotonic() - start)
    return Installation(fit, paths.staging, copied)


def _create(
    fit: Fit,
    venv: Path,
    session: Session,
) -> None:
    """Make an empty environment, with a pip unless the lock holds one: an activated shell calls it."""
    base = _base_python(fit.choice.python, session)
    run_uv(uv.create(base, venv), session)
    if "pip" in fit.lock.names:
        return
    try:
        run_uv(uv.give_pip(interpreter(venv), carried_pip(base)), session)
    except InstallationError as error:
        reason = error.why or error.message
        session.reporter.warn(f"the environment has no pip of its own: {reason}")


def _load_checks() -> None:
    """Load what looks at the files and proves them."""
    for module in (
        "gpuinstall.wheels.linking",
        "gpuinstall.verify.cover",
        "gpuinstall.verify.runner",
    ):
        import_module(module)


def _copy(
    existing: ExistingEnvironment,
    priced: PricedLock,
    project: Project,
) -> None:
    """Copy the existing environment, and take out of the copy what goes or moves."""
    paths = project.paths
    copy_environment(paths.venv, paths.staging)
    leaving = leaving_packages(existing, priced.unchanged)
    if leaving:
        run_uv(uv.take_out(interpreter(paths.staging), *leaving), project.session)
    if existing.lock and existing.lock.name != priced.fit.lock.name:
        remove_file(paths.staging / existing.lock.name)


def _has_guard(
    existing: ExistingEnvironment,
    priced: PricedLock,
    project: Project,
) -> bool:
    """Whether an environment has a guard that is right for a lock of the same torch too, or is the user's."""
    venv = project.paths.venv
    guard = own_guard_files(venv)
    if any(os.path.lexists(venv / name) for name in {*GUARD_FILES} - guard):
        return True
    family = project.catalog.family
    before = existing.lock.versions_of(family) if existing.lock else None
    return bool(guard) and before == priced.fit.lock.versions_of(family)


def _check_files(
    new: Collection[str],
    priced: PricedLock,
    project: Project,
) -> None:
    """Check that every new wheel is whole, wrote only what it may, and that its libraries can be loaded.

    What stayed was looked at when it was new, and what has no native code is loaded by no loader.
    """
    staging, fit = project.paths.staging, priced.fit
    damage = damaged_torch(staging) if "torch" in new else ""
    if damage:
        clean = joined((uv.uv(), "cache", "clean", "torch"))
        raise InstallationError(
            "cache-damaged",
            damage,
            why="uv's cache has the same damaged file: environments share the cache's files",
            hint=f"{clean}   # then run it again",
        )
    site = site_packages(staging, fit.choice.python)
    packages = read_packages([site])
    overlapping = set[str]()
    for fault in check_written_files(packages, new, staging):
        project.reporter.warn(
            f"{fault.message}; the last in the lock wins, as with pip"
        )
        overlapping.update(package.name for package in fault.packages)
    # uv installs all of them at once: those that write the same files come again, one after the other.
    for package in fit.lock.pylock.packages:
        if package.name in overlapping:
            # With --reinstall uv would download it again.
            run_uv(uv.take_out(interpreter(staging), package.name), project.session)
            _install({package.name}, priced, project)
    if any(package.is_native for package in packages if package.name in new):
        check_links(fit, site, project.reporter)


def _install(
    names: Collection[str],
    priced: PricedLock,
    project: Project,
) -> Lock:
    """Have uv install packages of a lock; return the lock with the hashes that it lacked."""
    paths, session, fit = project.paths, project.session, priced.fit
    all_builds, site = builds_of(fit, project.machine, project)
    builds = [build for build in all_builds if build.package in names]
    # What is built apart from the environment is built with its torch all the same.
    constraints = session.scratch / "build-constraints.txt"
    write_temporarily(constraints, f"{_torch_requirement(fit.lock)}\n")
    index = build_index(fit.choice, session)
    settings = session.scratch / "uv.toml"
    served = index if is_served(index) else None
    write_temporarily(settings, sync_settings(builds, site, served))
    private_lock = session.scratch / "pylock.private.toml"
    transfer = Transfer(
        fit.lock,
        fit.choice,
        private_lock,
        paths.folder,
        missing=priced.bill.missing,
        heads=priced.heads,
        wheels=project.sourcing.wheels,
        only=names,
    )
    words = refresh_words(fit.lock)
    command = uv.add(interpreter(paths.staging), private_lock, settings, words)
    variables = {
        "UV_BUILD_CONSTRAINT": str(constraints),
        **sync_variables(builds, site),
    }
    return transfer.run(command, session, variables)


def _torch_requirement(lock: Lock) -> str:
    """Return the torch of a lock, by its address if its file lies here."""
    for file in lock.files:
        if file.package == "torch" and local_path(file.url):
            return f"torch @ {file.url}"
    return f"torch=={lock.versions['torch']}"


def carried_pip(base: Path) -> Path | None:
    """Return the wheel of pip that an interpreter carries for environments; Debian's has none."""
    root = base.resolve().parent
    posix_wheels = root.parent.glob("lib/python3*/ensurepip/_bundled/pip-*.whl")
    windows_wheels = root.glob("Lib/ensurepip/_bundled/pip-*.whl")
    return min((*posix_wheels, *windows_wheels), default=None)


def _base_python(version: str, session: Session) -> Path:
    """Find an interpreter for ``X.Y``, or have uv fetch one."""
    present = find_python(version)
    if present:
        return present
    session.reporter.wait(f"downloading Python {version}")
    run_uv(uv.fetch_python(version), session)
    fetched = find_python(version)
    if fetched is None:
        raise InstallationError(
            "no-python",
            f"uv downloaded Python {version}, but it cannot be found",
        )
    return fetched


COMMAND_FOLDERS = ("bin/", "Scripts/")
SMALL = 65_536
"""The bytes up to which a command is a script, and copied."""


def copy_environment(venv: Path, copy: Path) -> None:
    """Make a copy of an environment, by links: the user's own files are in both.

    Installers and Python replace a file, and never write into one that is there, but for what is small and lies in the
    environment itself or with its commands: that is copied.

    Raises:
        InstallationError: something in it cannot be linked, nor copied.
    """
    try:
        link_tree(venv, copy, _is_written_in_place)
    except OSError as error:
        remove_path(copy)
        raise InstallationError(
            "not-copied",
            f"{venv} cannot be copied: {error}",
            why="it is changed in a copy, so that it stays as it is until the change is proven",
            hint="Move the file out of the environment; then run it again",
        ) from None


def _is_written_in_place(entry: os.DirEntry[str], folder: str) -> bool:
    """Whether uv or a user writes into a file without replacing it."""
    if entry.is_symlink() or (
        entry.name != "pyvenv.cfg" and folder not in COMMAND_FOLDERS
    ):
        return False
    return entry.stat().st_size <= SMALL
