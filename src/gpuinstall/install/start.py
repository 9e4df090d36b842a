"""Select the environment ``.venv`` or ``.venv-<target>`` for ``run --any``."""

from __future__ import annotations

import os
from collections.abc import Mapping
from os.path import lexists
from typing import Any

from gpuinstall.base.advice import Advice, Hint, make_command, make_shell_line
from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import MachineError, UsageError
from gpuinstall.base.files import create_link_error
from gpuinstall.base.removal import is_link
from gpuinstall.base.request import Request
from gpuinstall.base.values import replace
from gpuinstall.environments.environment import read_marker
from gpuinstall.environments.records import check_start, make_undo_command
from gpuinstall.install.environment_lock import environment_lock
from gpuinstall.install.inspection import read_state, run_state_preflight
from gpuinstall.install.install import install
from gpuinstall.install.proof import update_verification
from gpuinstall.install.state import (
    Action,
    ExistingEnvironment,
    InstallOptions,
    InstallState,
    check_lock_files,
    format_misfits,
    inspect_environment,
    locate_target_environment,
    store_stamp,
)
from gpuinstall.lock.file.fit import CompatibleLock
from gpuinstall.plan import Rejected
from gpuinstall.project import Project, reread_project
from gpuinstall.project.run import read_paths

ALLOW_CPU = "GPUINSTALL_ALLOW_CPU"
"""The environment variable that lets ``run --any`` use lock files for CPUs."""


def select_environment(
    project: Project,
    *,
    proof: bool = True,
    installing: bool = False,
) -> EnvironmentPaths:
    """Select, install if necessary, and verify the environment of a lock file.

    The result of the verification is stored in the user's cache.

    Args:
        project: The project.
        proof: Whether to run kernels unless this machine was already verified.
        installing: Whether to install a missing environment.

    Raises:
        MachineError: No GPU can be used.
        LockError: No lock file is compatible.
        UsageError: The environment is missing, or another file is at its path.
        VerificationError: A kernel failed.
    """
    reporter = project.reporter
    locked = InstallOptions(locked=True, any_environment=True, attempts=1)
    # ``run --any`` never replaces ``.venv``.
    state = read_state(project, locked, check_ownership=False)
    paths = _environment_paths(_find_compatible_lock(state), project)
    if paths.has_unfinished_change():
        # After an interrupted change, the marker and the environment's lock file are invalid.
        with environment_lock(paths, reporter):
            project = reread_project(project)
            state = read_state(project.silence(), locked, check_ownership=False)
    fit, existing, action = _choose_lock(state, project, proof=proof)
    if action is Action.VERIFY:
        state = run_state_preflight(state, project)
        fit, existing, action = _choose_lock(state, project, proof=proof)
    machine = state.lock_request.machine
    if fit.plan.status != "cpu":
        # The user allowed a machine without a GPU.
        for warning in fit.plan.warnings:
            reporter.warn(warning.message, *warning.fixes)
    venv = existing.paths.venv
    allows = project.sources.policy.runs(venv)
    check_start(venv, reporter, allow_unmanaged=allows)
    verdict: Mapping[str, Any] = {"status": "passed"}
    if action is Action.BUILD:
        verdict = _install_lock(fit, existing.paths, project, installing)
    else:
        existing.check_unchanged()
    if action is Action.VERIFY:
        here = replace(state, here=machine)
        proven = update_verification(fit, existing.paths, here, reporter)
        verdict = proven.verdict
        if existing.marker and proven.stamp and proven.stamp.is_passed:
            store_stamp(proven.stamp, venv, existing.marker.id, machine)
    if verdict["status"] != "passed":
        reporter.warn(
            "no kernel could run on these GPUs; the next start will try again"
        )
    if action is not Action.NOTHING:
        build = f"torch {fit.choice.build.name} · Python {fit.choice.python}"
        reporter.step("Environment", f"{venv.name}: {build}")
    return existing.paths


def _install_lock(
    fit: CompatibleLock,
    paths: EnvironmentPaths,
    project: Project,
    installing: bool,
) -> Mapping[str, Any]:
    """Install a lock file into its own environment, and return the verdict.

    Args:
        fit: The lock file and its plan.
        paths: The environment.
        project: The project.
        installing: Whether an installation is allowed.

    Raises:
        UsageError: Installation is not allowed, or another file is at the path.
    """
    target = fit.lock.target
    sync = make_command("sync", "--target", target, "--venv", str(paths.venv))
    if not installing:
        message = f"there is no environment for {fit.lock.name} at {paths.venv}"
        raise UsageError("environment-missing", message, hint=sync)
    request = Request(
        backend=fit.choice.build.backend.tag,
        sourcing=project.settings.request.sourcing,
    )
    project = reread_project(project, request=request, venv=paths.venv)
    options = InstallOptions(locked=True, target=target, attempts=1)
    try:
        return install(project, options).verdict
    except UsageError as error:
        if error.code == "not-ours":
            note = f"{make_undo_command(paths)} restores the old one"
            words = (*sync.arguments, "--replace")
            error.fixes = (make_command(*words, note=note),)
        raise


def _choose_lock(
    state: InstallState,
    project: Project,
    *,
    proof: bool,
) -> tuple[CompatibleLock, ExistingEnvironment, Action]:
    """Select the lock file for this machine, its environment, and the action.

    Args:
        state: The lock files in the project folder.
        project: The project.
        proof: Whether kernels must have run on this machine.
    """
    fit = _find_compatible_lock(state)
    paths = _environment_paths(fit, project)
    existing = inspect_environment(paths, state.lock_request.machine)
    marker = existing.marker
    # Another user may have created the environment.
    is_made_of_lock = marker and marker.lock_sha256 == fit.lock.sha256
    action = Action.NOTHING
    if not is_made_of_lock or not existing.has_python:
        action = Action.BUILD
    elif proof and not existing.is_verified:
        action = Action.VERIFY
    return fit, existing, action


def _environment_paths(fit: CompatibleLock, project: Project) -> EnvironmentPaths:
    """Return a lock's environment, or ``.venv`` if it is of this lock."""
    venv = project.paths.venv
    place = locate_target_environment(venv, fit.lock)
    marker = read_marker(venv)
    if marker and marker.lock_sha256 == fit.lock.sha256 and not lexists(place):
        return project.paths
    try:
        return read_paths(place, project.folder)
    except UsageError as error:
        # --venv selects the environments of all targets.
        if is_link(place):
            error.fixes = create_link_error(place).fixes
        raise


def _find_compatible_lock(state: InstallState) -> CompatibleLock:
    """Return the lock file that is compatible with this machine, or fail."""
    fit = state.fit
    request = state.lock_request
    allow_cpu = os.environ.get(ALLOW_CPU, "0") not in {"", "0"}
    if allow_cpu and fit is None:
        for_cpu = replace(
            state, lock_request=request.with_request_changes(backend="cpu")
        )
        fit = check_lock_files(for_cpu).fit
    if fit and (fit.plan.status != "cpu" or allow_cpu):
        return fit
    if allow_cpu or request.machine.gpus or isinstance(request.outcome, Rejected):
        state.check_lockable()
    hints: list[Hint] = [Advice("export", (f"{ALLOW_CPU}=1",), note="for the CPU")]
    if request.machine.environment.container:
        line = make_shell_line("docker run --gpus all …", "gives a container its GPUs")
        hints.insert(0, line)
    raise MachineError(
        "no-gpu",
        "there is no GPU in this machine",
        evidence=format_misfits(state.misfits) or None,
        hint=tuple(hints),
    )
