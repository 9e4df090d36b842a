"""Read the environment, lock files, and request before installing packages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from gpuinstall.base.reporter import Reporter
from gpuinstall.base.request import Request
from gpuinstall.base.text import join_names
from gpuinstall.base.values import replace
from gpuinstall.environments.environment import read_marker
from gpuinstall.environments.records import (
    check_start,
    was_created_here,
)
from gpuinstall.install.journal import find_leftovers, needs_recovery
from gpuinstall.install.state import (
    Action,
    ExistingEnvironment,
    InstallOptions,
    InstallState,
    check_folder,
    check_lock_files,
    inspect_environment,
    is_created_from,
)
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.lock.request.lock_sources import add_locked_builds
from gpuinstall.project import Project, reread_project
from gpuinstall.project.request import read_request
from gpuinstall.project.targets import make_environment_request, read_project_targets
from gpuinstall.wheels.learned.store import load_extended_catalog


@contextmanager
def lock_state(
    project: Project, options: InstallOptions
) -> Iterator[tuple[InstallState, Project]]:
    """Read the environment, and lock it if the installation must change it.

    After a wait for another command, the environment is read again. A small GPU kernel
    verifies the driver.

    Args:
        project: The project.
        options: The options of the installation.

    Yields:
        The state, and the project, which may be read again.
    """
    state = read_state(project, options)
    place = state.existing.paths
    must_recover = needs_recovery(place)
    is_unchanged = state.action is Action.NOTHING and not must_recover
    is_unchanged = is_unchanged and not find_leftovers(place)
    if state.existing.has_python:
        allows = project.sources.policy.runs(place.venv)
        # No kernel runs in an unchanged environment.
        reporter = Reporter() if is_unchanged else project.reporter
        check_start(place.venv, reporter, allow_unmanaged=allows)
    if is_unchanged:
        report_changed_packages(state.existing, project.reporter)
        yield state, project
        return
    from gpuinstall.environments.rights import check_rights, is_read_only
    from gpuinstall.install.environment_lock import environment_lock

    lock: AbstractContextManager[tuple[bool, bool]] = nullcontext((False, False))
    is_changed = state.action is Action.BUILD or must_recover
    if is_changed or not is_read_only(place):
        check_rights(place, is_replaced=options.replace)
        lock = environment_lock(place, project.reporter, is_replaced=options.replace)
    with lock as meanwhile:
        may_have_changed = any(meanwhile)
        # Each change writes a new marker.
        if may_have_changed or read_marker(place.venv) != state.existing.marker:
            project = reread_project(project)
            state = read_state(project.silence(), options)
        report_changed_packages(state.existing, project.reporter)
        if state.action is not Action.NOTHING and not state.existing.is_verified:
            state = run_state_preflight(state, project)
        yield state, project


def report_changed_packages(existing: ExistingEnvironment, reporter: Reporter) -> None:
    """Report the packages that another tool changed."""
    changed = existing.changed_packages
    if changed and existing.paths.is_managed:
        text = f"{join_names([*changed.values()])}; restoring the locked versions"
        reporter.step("Changed", text)


def run_state_preflight(state: InstallState, project: Project) -> InstallState:
    """Run a small GPU kernel to verify the driver before the download.

    Args:
        state: The state.
        project: The project.

    Returns:
        The state with any driver problems that the kernel showed.
    """
    from gpuinstall.machine.probe import preflight

    request = state.lock_request
    here = state.here
    if here is None or not here.gpus or request.request.is_for_cpu:
        return state
    proof = preflight(here, project.reporter)
    if proof.outcomes:
        project.reporter.step("Preflight", proof.summary, proof.seconds)
    machine = request.machine.add_problems(proof.problems)
    return check_lock_files(
        replace(state, lock_request=replace(request, machine=machine))
    )


def read_state(
    project: Project, options: InstallOptions, *, check_ownership: bool = True
) -> InstallState:
    """Read the environment, its lock files, and the requested packages.

    Args:
        project: The project.
        options: The options of the installation.
        check_ownership: Whether to refuse an unmanaged environment without ``--replace``.

    Raises:
        UsageError: The environment's path is a file or an unmanaged environment.
        LockError: A lock file cannot be read.
    """
    if options.catalog is not None:
        # A previous attempt already reported the state.
        project = project.silence()
    if options.python:
        from gpuinstall.install.unmanaged import read_unmanaged  # slow to import

        existing, request = read_unmanaged(options.python, project)
    else:
        existing, request = _read_managed(project, options, check_ownership)
    machine = project.machine
    catalog = options.catalog
    if catalog is None:
        # A locked build may be from any index.
        known = load_extended_catalog() if options.locked else project.catalog
        locks = project.contents.locks.valid
        catalog = add_locked_builds(known, locks, project.open_session)
    state = InstallState(
        existing,
        lock_request=LockRequest(machine, request, catalog),
        here=None if request.is_for_gpus and not machine.gpus else machine,
        options=options,
        gate=project.lock_gate,
        names_folder=bool(project.requested_folders),
        targets=tuple(map(str, read_project_targets(project))),
    )
    return check_lock_files(state)


def _read_managed(
    project: Project, options: InstallOptions, check_ownership: bool
) -> tuple[ExistingEnvironment, Request]:
    """Read the project's environment, and the request for it."""
    paths = project.paths
    if check_ownership:
        check_folder(paths.venv)
    request = read_request(project)
    if options.locked and project.settings.only:
        # uv's settings may change after the lock was written.
        request = replace(request, constraints=())
    request = make_environment_request(project, request)
    existing = inspect_environment(paths, project.machine)
    base = project.settings.base_python
    is_other = base and existing.has_python and not is_created_from(paths, base)
    if is_other or (options.replace and not was_created_here(paths.venv)):
        existing = replace(existing, has_python=False)
    if not options.upgrade:
        existing = replace(existing, locks=tuple(project.contents.locks.check()))
    else:
        project.contents.locks.report_damaged(request, project.reporter)
    # A killed rebuild may have moved the marker.
    is_unfinished = paths.has_unfinished_change()
    if check_ownership and not (options.replace or is_unfinished):
        existing.check_ownership()
    return existing, request
