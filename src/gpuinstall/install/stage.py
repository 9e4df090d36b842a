"""An environment built from a lock beside the one it will replace."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from gpuinstall import uv
from gpuinstall.environments.environment import damaged_torch, installed_packages
from gpuinstall.environments.guard import (
    CONSTRAINTS,
    GUARD_FILES,
    FamilyMember,
    constraint_lines,
    write_guard,
)
from gpuinstall.environments.packages import read_packages
from gpuinstall.environments.paths import EnvironmentPaths, interpreter, site_packages
from gpuinstall.environments.records import was_made_here
from gpuinstall.errors import InstallationError
from gpuinstall.facts.pythons import find_python
from gpuinstall.files import is_folder, remove_path, write_atomically
from gpuinstall.install.bytecode import link_bytecode
from gpuinstall.install.clone import link_packages
from gpuinstall.install.priced_lock import PricedLock, builds_of
from gpuinstall.install.proof import Installation, check_links, check_written_files
from gpuinstall.lock.beside import members_beside
from gpuinstall.lock.compiled import keep_wheel, kept_wheel
from gpuinstall.lock.fetch import local_path
from gpuinstall.lock.fit import Fit
from gpuinstall.lock.source_builds import sync_settings, sync_variables
from gpuinstall.lock.transfer import Transfer, build_index, is_served, refresh_words, run_uv
from gpuinstall.shell import joined, quoted
from gpuinstall.text import some

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gpuinstall.lock.lock import Lock
    from gpuinstall.project import Project
    from gpuinstall.session import Session


def build_commands(
    priced: PricedLock, base: Path | None, paths: EnvironmentPaths
) -> list[list[str]]:
    """The command lines that build an environment; ``base`` is the interpreter, None where uv fetches one first."""
    python, version = interpreter(paths.staging), priced.choice.python
    if isinstance(priced.of, Fit):
        names = priced.of.lock.names
        words = refresh_words(priced.of.lock)
    else:
        names = frozenset(priced.of.held)
        words = []
    commands = [] if base else [uv.fetch_python(version)]
    commands.append(uv.create(base or Path(f"python{version}"), paths.staging))
    if not priced.unchanged:
        commands.append(uv.sync(python, paths.private_lock, paths.build_settings, words))
        commands.append(uv.give_pip(python, carried_pip(base) if base else None))
    elif names - priced.unchanged:
        commands.append(uv.add(python, paths.private_lock, paths.build_settings, words))
    return commands


def build(fit: Fit, priced: PricedLock, project: Project, *, keep_proof: bool) -> Installation:
    """Build an environment of a lock at ``paths.staging``, with what the existing one has of it already.

    Args:
        fit: The lock, and its plan.
        priced: What has to be fetched, and what stays as it is.
        project: The run.
        keep_proof: Whether the proof of the existing environment may count for the new one.

    Raises:
        InstallationError: also if what uv has put there is damaged or lacks a library.
    """
    paths, session, start = project.paths, project.session, monotonic()
    remove_path(paths.staging)
    base = _base_python(fit.choice.python, session)
    linked = _link_unchanged(priced, project)
    # Torch, and with it all that torch loads, is as it was.
    is_clone = "torch" in linked
    run_uv(uv.create(base, paths.staging), session)
    new = fit.lock.names - linked
    if new:
        fit = replace(fit, lock=_install(new, fit, priced, project))
    link_bytecode(paths.staging, new)
    with ThreadPoolExecutor(
        2
    ) as pool:  # pip comes, and the index is asked, while the files are looked at
        keeps_guard = is_clone and _has_guard(priced, fit, project)
        beside = None if keeps_guard else pool.submit(members_beside, fit, project.catalog, session)
        # So that its own is the one that an activated shell calls.
        needs_pip = "pip" not in fit.lock.names | linked
        pip = uv.give_pip(interpreter(paths.staging), carried_pip(base))
        giving = pool.submit(run_uv, pip, session) if needs_pip else None
        _check_files(fit, new, priced, project, is_clone=is_clone)
    try:
        if giving:
            giving.result()
    except InstallationError as error:
        session.reporter.warn(
            f"the environment has no pip of its own: {error.why or error.message}"
        )
    write_atomically(paths.staging / fit.lock.name, fit.lock.text)
    settle_activate(paths.staging, paths.venv)
    if beside is None:
        for name in GUARD_FILES:
            if (paths.venv / name).is_file():
                shutil.copy2(paths.venv / name, paths.staging / name)
    else:
        _write_guard(fit, beside.result(), project)
    # As "uv pip list" counts them: with pip, which no lock holds.
    installed = f"{len(installed_packages(paths.staging))} packages"
    if is_clone:
        installed += f", {len(new)} of them new"
    session.reporter.step("Installed", installed, monotonic() - start)
    earlier = priced.existing.proof if priced.existing and is_clone and keep_proof else None
    return Installation(fit, paths.staging, interpreter(paths.staging), earlier=earlier)


def _link_unchanged(priced: PricedLock, project: Project) -> frozenset[str]:
    """Link what stays as it was from the existing environment; return those packages."""
    paths = project.paths
    if priced.existing is None or not priced.unchanged:
        return frozenset()
    if is_folder(paths.spare) and was_made_here(paths.spare, paths.venv):
        paths.spare.rename(paths.staging)
    linked = link_packages(paths.venv, paths.staging, priced.unchanged, priced.existing.built_ns)
    if changed := priced.unchanged - linked:
        text = f"{some(sorted(changed))}: changed since they were installed, and installed again"
        project.session.reporter.step("Renewed", text)
    return linked


def _has_guard(priced: PricedLock, fit: Fit, project: Project) -> bool:
    """Whether the environment before has a guard that is right for a lock of the same torch too."""
    family, own = project.catalog.family, priced.existing.lock if priced.existing else None
    if own is None or not (project.paths.venv / CONSTRAINTS).is_file():
        return False
    return own.name == fit.lock.name and own.versions_of(family) == fit.lock.versions_of(family)


def _write_guard(fit: Fit, beside: Iterable[FamilyMember], project: Project) -> None:
    """Keep plain pip and uv to the build of the lock, in what it holds of the family and in what may come later."""
    paths, installed = project.paths, fit.lock.versions_of(project.catalog.family)
    lines = constraint_lines(installed, beside, fit.choice.build.backend.tag)
    write_guard(
        paths.staging, paths.venv, fit.lock.name, lines, project.pip_constraints(paths.venv)
    )


def _check_files(
    fit: Fit, new: Collection[str], priced: PricedLock, project: Project, *, is_clone: bool
) -> None:
    """Check that every new wheel wrote only what it may, torch's files are whole, and its libraries can be loaded.

    What was linked was looked at when it was new, and what has no native code is loaded by no loader.
    """
    reporter = project.session.reporter
    site = site_packages(project.paths.staging, fit.choice.python)
    if not is_clone and (damage := damaged_torch(project.paths.staging)):
        why = "uv's cache has the same damaged file: environments share the cache's files"
        hint = f"{joined((uv.uv(), 'cache', 'clean', 'torch'))}   # then the same again"
        raise InstallationError("cache-damaged", damage, why=why, hint=hint)
    # pip is being installed meanwhile, unless a lock holds it.
    packages = [
        package
        for package in read_packages([site])
        if package.name in fit.lock.names or package.name != "pip"
    ]
    if new:
        overlaps = list(check_written_files(packages, new, project.paths.staging))
        for fault in overlaps:
            reporter.warn(f"{fault.message}; the last in the lock wins, as with pip")
        _install_in_order(
            {package.name for fault in overlaps for package in fault.packages}, fit, priced, project
        )
    if not is_clone or any(package.is_native for package in packages if package.name in new):
        check_links(fit, site, project.machine, reporter)


def _install_in_order(
    names: Collection[str], fit: Fit, priced: PricedLock, project: Project
) -> None:
    """Install packages again that write the same files, one after the other: uv installs all of them at once."""
    for package in fit.lock.pylock.packages:
        if package.name in names:
            # With --reinstall uv would download it again.
            run_uv(uv.take_out(interpreter(project.paths.staging), package.name), project.session)
            _install({package.name}, fit, priced, project)


def _install(names: Collection[str], fit: Fit, priced: PricedLock, project: Project) -> Lock:
    """Have uv install packages of a lock; return the lock with the hashes that it lacked."""
    paths, session = project.paths, project.session
    python, words = interpreter(paths.staging), refresh_words(fit.lock)
    builds, site = builds_of(fit, project.machine, project)
    builds = tuple(each for each in builds if each.package in names)
    compiled = {
        each.package: wheel
        for each in builds
        if (wheel := kept_wheel(site.compiled(each), session.reporter))
    }
    builds = tuple(each for each in builds if each.package not in compiled)
    packages = site_packages(paths.staging, fit.choice.python)
    # What is built apart from the environment is built with its torch all the same.
    constraints = session.scratch / "build-constraints.txt"
    places = {file.package: f" @ {file.url}" for file in fit.lock.files if local_path(file.url)}
    write_atomically(
        constraints, f"torch{places.get('torch', '==' + fit.lock.versions['torch'])}\n"
    )
    variables = {
        "UV_BUILD_CONSTRAINT": str(constraints),
        **sync_variables(builds, site, str(packages)),
    }
    transfer = Transfer(
        fit.lock,
        fit.choice,
        paths.private_lock,
        paths.folder,
        missing=priced.bill.missing,
        heads=priced.heads,
        wheels=project.sourcing.wheels,
        only=names,
        compiled=compiled,
    )
    put = uv.sync if len(names) == len(fit.lock.names) else uv.add
    try:
        index = build_index(fit.choice, session)
        write_atomically(
            paths.build_settings, sync_settings(builds, site, index if is_served(index) else None)
        )
        lock = transfer.run(
            put(python, paths.private_lock, paths.build_settings, words), session, variables
        )
    finally:
        paths.private_lock.unlink(missing_ok=True)
        paths.build_settings.unlink(missing_ok=True)
    for each in (each for each in builds if each.source):
        keep_wheel(site.compiled(each), str(each), session.uv_cache, packages)
    return lock


def carried_pip(base: Path) -> Path | None:
    """The wheel of pip that an interpreter carries for environments; Debian's has none."""
    root = base.resolve().parent
    folders = [
        *root.parent.glob("lib/python3*/ensurepip/_bundled"),
        root / "Lib" / "ensurepip" / "_bundled",
    ]
    return next((wheel for folder in folders for wheel in sorted(folder.glob("pip-*.whl"))), None)


def _base_python(version: str, session: Session) -> Path:
    """Find an interpreter for ``X.Y``, or have uv fetch one."""
    if found := find_python(version):
        return found
    session.reporter.wait(f"downloading Python {version}")
    run_uv(uv.fetch_python(version), session)
    fetched = find_python(version)
    if fetched is None:
        raise InstallationError(
            "no-python", f"uv downloaded Python {version}, but it cannot be found"
        )
    return fetched


def settle_activate(built: Path, final: Path) -> None:
    """Make ``activate`` of the environment at ``built`` right for ``final``, where it is about to go.

    uv's relocatable form finds its own place in bash, zsh and ksh; plain sh (dash) cannot. The other shells' files
    and all scripts find it themselves.
    """
    script = built / "bin" / "activate"
    if script.is_file():
        lines = script.read_text(encoding="utf-8").splitlines(keepends=True)
        place = f"VIRTUAL_ENV={quoted(final, 'sh')}\n"
        text = "".join(place if line.startswith("VIRTUAL_ENV=''") else line for line in lines)
        script.write_text(text, encoding="utf-8")
