"""The environment that a command starts in, if a folder has several: one for each lock, ``.venv-<target>``."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.base.environment_paths import EnvironmentPaths, interpreter
from gpuinstall.base.errors import MachineError, NoBuildError, UsageError
from gpuinstall.base.request import Request
from gpuinstall.base.shell import joined
from gpuinstall.environments.records import say_stranger
from gpuinstall.install.inspection import (
    ExistingEnvironment,
    inspect_environment,
    stamp_file,
)
from gpuinstall.install.install import install, read_state, with_preflight
from gpuinstall.install.options import (
    Action,
    InstallOptions,
    InstallResult,
    InstallState,
)
from gpuinstall.install.proof import Installation, verify
from gpuinstall.plan import Rejected

if TYPE_CHECKING:
    from gpuinstall.base.machine import Machine
    from gpuinstall.lock.fit import Fit
    from gpuinstall.project import Project

ALLOW_CPU = "GPUINSTALL_ALLOW_CPU"
"""The variable that lets ``run --any`` take a lock for the CPU if none for GPUs runs."""


def environment_to_start(
    project: Project,
    *,
    proof: bool = True,
    installing: bool = False,
) -> EnvironmentPaths:
    """Return the environment that is chosen among those of a folder by the rules of ``sync``, proven.

    Args:
        project: The run, in the folder of the locks.
        proof: Whether to run kernels if this machine was not proven with the lock yet; that it was is kept in the
            user's cache.
        installing: Whether to bring an environment that is not there.

    Raises:
        MachineError, NoBuildError: no lock runs here.
        UsageError: the environment is not there, or something else lies in its place.
        VerificationError: a kernel failed.
    """
    reporter = project.reporter
    locked = InstallOptions(locked=True, attempts=1)
    # Whatever lies at .venv itself stays there: it is not the environment that is started.
    state = read_state(project, replace(locked, replace=True))
    fit, existing, action = _chosen(state, project, proof=proof)
    if action is Action.VERIFY:
        state = with_preflight(state, project)
        fit, existing, action = _chosen(state, project, proof=proof)
    machine = state.request.machine
    warnings = fit.plan.warnings if fit.plan.status != "cpu" else ()
    for warning in warnings:
        reporter.warn(warning.message)
    venv = existing.paths.venv
    say_stranger(venv, reporter)
    status = "passed"
    match action:
        case Action.NOTHING:
            existing.check_unchanged()
        case Action.VERIFY:
            existing.check_unchanged()
            proven = verify(
                Installation(fit, venv, interpreter(venv)), machine, project
            )
            status = proven.verdict["status"]
            if existing.marker and proven.stamp and proven.stamp.is_passed:
                proven.stamp.write(stamp_file(existing.marker.id, machine))
        case Action.BUILD:
            target = fit.lock.target
            sync = joined(
                ("gpuinstall", "sync", "--target", target, "--venv", str(venv))
            )
            if not installing:
                message = f"there is no environment of {fit.lock.name} at {venv}"
                raise UsageError("environment-missing", message, hint=sync)
            options = replace(locked, target=target)
            result = _install(fit, existing.paths, options, project, sync=sync)
            status = result.verdict["status"]
    if status != "passed":
        reporter.warn(
            "no kernel could run on these GPUs now; the next start tries again"
        )
    if action is not Action.NOTHING:
        build = f"torch {fit.choice.build.name} · Python {fit.choice.python}"
        reporter.step("Environment", f"{venv.name}: {build}")
    return existing.paths


def _install(
    fit: Fit,
    paths: EnvironmentPaths,
    options: InstallOptions,
    project: Project,
    *,
    sync: str,
) -> InstallResult:
    """Install a lock into an environment of its own; ``sync`` is the command that does it."""
    request = Request(
        backend=fit.choice.build.backend.tag,
        sourcing=project.settings.request.sourcing,
    )
    settings = replace(project.settings, request=request, venv=paths.venv)
    try:
        return install(replace(project, settings=settings), options)
    except UsageError as error:
        if error.code in {"not-ours", "users-packages"}:
            error.hint = f"{sync} --replace   # the old one stays in {paths.previous}"
        raise


def _chosen(
    state: InstallState,
    project: Project,
    *,
    proof: bool,
) -> tuple[Fit, ExistingEnvironment, Action]:
    """Return the lock that runs here, what lies where its environment is to be, and what there is to do with that."""
    fit, venv = _fit(state), project.paths.venv
    paths = EnvironmentPaths.at(
        venv.with_name(f"{venv.name}-{fit.lock.target}"), is_named=False
    )
    existing = inspect_environment(paths, state.request.machine)
    marker = existing.marker
    # Whoever made it.
    if (
        marker is None
        or marker.lock_sha256 != fit.lock.sha256
        or not existing.has_python
    ):
        return fit, existing, Action.BUILD
    action = Action.VERIFY if proof and not existing.is_proven else Action.NOTHING
    return fit, existing, action


def _fit(state: InstallState) -> Fit:
    """Return the lock that runs here, one for the CPU only if that is allowed; raise the refusal."""
    fit, request = state.fit, state.request
    allow_cpu = os.environ.get(ALLOW_CPU, "0") not in {"", "0"}
    if allow_cpu and fit is None:
        for_cpu = replace(request, request=replace(request.request, backend="cpu"))
        fit = replace(state, request=for_cpu).fit
    if fit and (fit.plan.status != "cpu" or allow_cpu):
        return fit
    if isinstance(request.outcome, Rejected):
        raise request.outcome.error(request.machine)
    misfits = [
        f"{misfit.candidate.name}: {misfit.reason.message}" for misfit in state.misfits
    ]
    evidence = "\n".join(misfits) or None
    if request.machine.gpus:
        raise _no_lock(request.machine, evidence)
    raise MachineError(
        "no-gpu",
        "there is no GPU in this machine or container",
        evidence=evidence,
        hint="docker run --gpus all …   # gives a container its GPUs\n"
        f"export {ALLOW_CPU}=1   # for the CPU",
    )


def _no_lock(machine: Machine, evidence: str | None) -> NoBuildError:
    """Return the refusal of all locks, which names the machine, with the command that makes a lock for it anywhere."""
    names = tuple(dict.fromkeys(gpu.label for gpu in machine.gpus))
    described = ", ".join(names)
    words = ["gpuinstall", "lock"]
    for name in names:
        words += ["--gpu", name]
    if machine.driver and machine.driver.version:
        described += f", driver {machine.driver.version}"
        words += ["--driver", str(machine.driver.version)]
    return NoBuildError(
        "lock-does-not-fit",
        f"no lock here runs on {described}",
        evidence=evidence,
        hint=f"{joined(words)}   # where the locks are made",
    )
