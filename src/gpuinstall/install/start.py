"""The environment that a command starts in, where a folder has several: one for each lock, ``.venv-<target>``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.environments.paths import EnvironmentPaths, interpreter
from gpuinstall.environments.records import say_stranger
from gpuinstall.errors import MachineError, NoBuildError, UsageError
from gpuinstall.install.inspection import ExistingEnvironment, inspect_environment
from gpuinstall.install.install import install, read_situation
from gpuinstall.install.options import InstallOptions, Situation
from gpuinstall.install.proof import Proof, preflighted, prove, record_proof
from gpuinstall.plan import Rejected
from gpuinstall.request import Request
from gpuinstall.shell import joined
from gpuinstall.verify.cover import read_cover

if TYPE_CHECKING:
    from gpuinstall.lock.fit import Fit
    from gpuinstall.machine import Machine
    from gpuinstall.project import Project


def environment_to_start(
    project: Project,
    *,
    proof: bool = True,
    installing: bool = False,
    replacing: bool = False,
    allow_cpu: bool = False,
) -> EnvironmentPaths:
    """Choose among the environments of a folder by the rules of ``sync``, and prove the one that is chosen.

    With ``proof`` kernels run where this machine was not proven with the lock yet: that it was is kept in the user's
    cache. ``installing`` brings an environment that is not there, ``replacing`` also in place of what is not ours, and
    ``allow_cpu`` takes a lock for the CPU where none for GPUs runs.
    Raise MachineError or NoBuildError where no lock runs here, VerificationError where a kernel fails.
    """
    reporter, locked = project.reporter, InstallOptions(locked=True, attempts=1)
    # Whatever lies at .venv itself stays there: it is not the environment that is started.
    situation = read_situation(project, replace(locked, replace=True))
    machine = situation.request.machine
    fit = _fit(situation, allow_cpu=allow_cpu)
    existing = inspect_environment(_paths(fit, project), machine)
    is_unproven = proof and not existing.is_proven
    if is_unproven and _is_made(existing, fit):
        machine = preflighted(machine, situation.here, situation.request.request, reporter)
        fit = _fit(replace(situation, request=replace(situation.request, machine=machine)), allow_cpu=allow_cpu)
        existing = inspect_environment(_paths(fit, project), machine)
    for warning in fit.plan.warnings if fit.plan.status != "cpu" else ():
        reporter.warn(warning.message)
    paths, status = existing.paths, None
    say_stranger(paths.venv, reporter)
    if not _is_made(existing, fit):
        words = ("gpuinstall", "sync", "--target", fit.lock.target, "--venv", str(paths.venv))
        if not installing:
            message = f"there is no environment of {fit.lock.name} at {paths.venv}"
            raise UsageError("environment-missing", message, hint=joined(words))
        request = Request(backend=fit.choice.build.backend.tag, sourcing=project.settings.request.sourcing)
        settings = replace(project.settings, request=request, venv=paths.venv)
        options = replace(locked, target=fit.lock.target, replace=replacing)
        try:
            done = install(replace(project, settings=settings), options)
        except UsageError as error:
            if error.code in {"not-ours", "users-packages"}:
                error.hint = f"{joined((*words, '--replace'))}   # the old one stays in {paths.previous}"
            raise
        status = done.verdict.get("status")
    else:
        existing.check_unchanged()
        if is_unproven:
            status = _prove(existing, fit, machine, project)
    if status and status != "passed":
        reporter.warn("no kernel could run on these GPUs now; the next start tries again")
    reporter.step("Environment", f"{paths.venv.name}: torch {fit.choice.build.name} · Python {fit.choice.python}")
    return paths


def _prove(existing: ExistingEnvironment, fit: Fit, machine: Machine, project: Project) -> str:
    """Run the kernels of an environment, and keep that they passed; return the status."""
    venv = existing.paths.venv
    # Before the kernels run: what changes meanwhile was not proven.
    cover = read_cover(venv, fit.lock.hashes_by_package)
    verdict = prove(fit, interpreter(venv), machine, machine, project.session)
    if verdict.status == "passed" and existing.marker:
        proof = Proof(verdict.to_dict(), cover)
        record_proof(proof, existing.marker.id, machine)
    return verdict.status


def _paths(fit: Fit, project: Project) -> EnvironmentPaths:
    """Where the environment of a lock lies."""
    venv = project.paths.venv
    return EnvironmentPaths.at(venv.with_name(f"{venv.name}-{fit.lock.target}"), is_named=False)


def _is_made(existing: ExistingEnvironment, fit: Fit) -> bool:
    """Say whether the environment of a lock is there, whoever made it."""
    marker = existing.marker
    return marker is not None and marker.lock_sha256 == fit.lock.sha256 and existing.has_python


def _fit(situation: Situation, *, allow_cpu: bool) -> Fit:
    """The lock that runs here, one for the CPU only where that is allowed; raise the refusal."""
    fit, request = situation.fit, situation.request
    if allow_cpu and fit is None:
        for_cpu = replace(request, request=replace(request.request, backend="cpu"))
        fit = replace(situation, request=for_cpu).fit
    if fit and (fit.plan.status != "cpu" or allow_cpu):
        return fit
    if isinstance(request.outcome, Rejected):
        raise request.outcome.error(request.machine)
    locks = "\n".join(f"{misfit.candidate.name}: {misfit.reason.message}" for misfit in situation.misfits) or None
    if not request.machine.gpus:
        hint = "docker run --gpus all …   # gives a container its GPUs\nexport GPUINSTALL_ALLOW_CPU=1   # for the CPU"
        raise MachineError("no-gpu", "there is no GPU in this machine or container", evidence=locks, hint=hint)
    hint = "gpuinstall lock cover --gpu NAME --driver VERSION   # writes locks for a range of GPUs"
    raise NoBuildError("lock-does-not-fit", "no lock here fits this machine", evidence=locks, hint=hint)
