"""Make an environment hold what is asked for, from the first look at what is there to the swap."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any

from gpuinstall import uv
from gpuinstall.environments.environment import Marker, fingerprint, read_marker
from gpuinstall.environments.jupyter import settle_kernel
from gpuinstall.environments.records import remember
from gpuinstall.errors import MachineError, NoBuildError
from gpuinstall.facts.pythons import find_python
from gpuinstall.files import holds_text
from gpuinstall.install.bytecode import keep_bytecode
from gpuinstall.install.environment_lock import environment_lock, is_idle
from gpuinstall.install.inspection import check_platform, check_replaceable, inspect_environment
from gpuinstall.install.options import InstallOptions, InstallResult, Situation
from gpuinstall.install.previous import find_previous
from gpuinstall.install.priced_lock import PricedLock, price_lock, resolve_lock
from gpuinstall.install.proof import (
    KernelFailedError,
    catalog_without,
    preflighted,
    prove_change,
    record_proof,
)
from gpuinstall.install.stage import build, build_commands
from gpuinstall.install.swap import publish_lock, swap_in
from gpuinstall.learned.store import known_catalog
from gpuinstall.lock.fit import Fit, read_locks
from gpuinstall.lock.request import LockRequest
from gpuinstall.lock.resolution import Resolution
from gpuinstall.lock.resolver import ResolverProject
from gpuinstall.lock.strangers import with_locked_builds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpuinstall.catalog import Catalog
    from gpuinstall.machine import Machine
    from gpuinstall.project import Project


def install(project: Project, options: InstallOptions, catalog: Catalog | None = None) -> InstallResult:
    """Make the environment of ``project`` hold what is asked for, proven; leave it as it was on any failure.

    ``catalog`` is what to choose from where that is not the project's.
    """
    start, paths, session = monotonic(), project.paths, project.session
    check_replaceable(paths)
    check_platform(project)
    try:
        with _turn(project, options, catalog) as found:
            situation, priced = _priced(found, project)
            existing, here, is_settled = situation.existing, situation.here, situation.is_settled
            priced.announce(session, yes=options.yes)
            fit = priced.make_lock(situation, project)
            is_new = not existing.is_made_of(fit.lock)
            # A request that changes nothing was not settled before it was resolved.
            is_settled = is_settled or (not is_new and existing.is_proven and not options.verify)
            venv = paths.staging if is_new else paths.venv
            verdict = existing.verdict
            earlier = None
            is_proof_kept = False
            if is_new:
                staged = build(fit, priced, existing, project)
                fit = staged.fit
                if staged.is_clone and not options.verify:
                    earlier = existing.proof
            was_there = is_settled or holds_text(paths.folder / fit.lock.name, fit.lock.text)
            if not is_settled:
                machine = situation.request.machine
                proof = prove_change(fit, venv, machine, here, session, earlier=earlier)
                verdict, is_proof_kept = proof.verdict, proof.is_kept
                identity = _write_marker(venv, fit, verdict, here or machine, final=paths.venv)
                if here is not None:
                    record_proof(proof, identity, here)
                if is_new and not is_proof_kept:
                    keep_bytecode(venv, proof.cover.packages)
            if is_new:
                swap_in(paths, venv, project.reporter, keep=options.keep)
            else:
                publish_lock(paths)
    except KernelFailedError as failed:
        return replace(_install_next(failed, situation, project), seconds=monotonic() - start)
    settle_kernel(paths.venv, fit.lock.versions, wanted=options.jupyter)
    return InstallResult(
        paths,
        situation.request.machine,
        fit,
        "unchanged" if was_there else "written",
        verdict,
        "built" if is_new else "none" if is_settled else "proven",
        situation.misfits,
        priced.changes if is_new else (),
        priced.bill.fetch if priced.bill else 0,
        priced.bill.caches if priced.bill else (),
        find_previous(paths) if is_new else None,
        monotonic() - start,
        is_proof_kept=is_proof_kept,
    )


def dry_run(project: Project, options: InstallOptions) -> DryRun:
    """Look, choose, resolve and price as an installation does, and stop there."""
    check_replaceable(project.paths)
    check_platform(project)
    situation = read_situation(project, options)
    priced = _price(situation, project)
    python, commands = priced.choice.python, list[list[str]]()
    if isinstance(priced.of, Resolution):
        inputs = ResolverProject(priced.choice.requirements, python, priced.of.target).inputs
        commands += [uv.compile_lock(project.session.python, python, priced.of.target.uv_platform) + inputs]
    if priced.bill:
        commands += build_commands(priced, find_python(python), project.paths)
    return DryRun(priced, tuple(map(tuple, commands)))


@dataclass(frozen=True)
class DryRun:
    """What an installation would carry out, and the command lines of it, none where nothing is left to do."""

    priced: PricedLock
    commands: tuple[tuple[str, ...], ...]

    def to_dict(self) -> dict[str, Any]:
        """Write the document of ``install --dry-run --json``."""
        bill, plan = self.priced.bill, self.priced.plan
        return {
            "plan": plan.to_dict(),
            "lock": {"changes": [change._asdict() for change in self.priced.changes]},
            "bytes": bill.fetch if bill else 0,
            "sources": [{"host": host, "bytes": size} for host, size in bill.sources.items()] if bill else [],
            "space": [{"path": str(at), "bytes": size} for at, size in bill.folders.items() if size] if bill else [],
            "commands": [list(words) for words in self.commands],
        }


@contextmanager
def _turn(project: Project, options: InstallOptions, catalog: Catalog | None) -> Iterator[Situation]:
    """Look at what is there; where something is to change, wait for our turn, look again, and prove the driver."""
    situation = read_situation(project, options, catalog)
    if situation.is_settled and is_idle(project.paths):
        yield situation
        return
    with environment_lock(project.paths, options.wait, project.reporter) as has_waited:
        # Every run that changes an environment gives it another marker.
        if has_waited or read_marker(project.paths.venv) != situation.existing.marker:
            situation = read_situation(project, options, catalog, again=True)
        if not situation.existing.made_here:
            project.reporter.warn(f"{project.paths.venv} was not made on this machine; rebuilding it")
        if not (situation.is_settled or situation.is_driver_proven):
            situation = _with_preflight(situation, project)
        yield situation


def _with_preflight(situation: Situation, project: Project) -> Situation:
    """Prove the driver; what is wrong with it counts in every choice from now on."""
    request = situation.request
    machine = preflighted(request.machine, situation.here, request.request, project.reporter)
    return replace(situation, request=replace(request, machine=machine))


def read_situation(
    project: Project, options: InstallOptions, catalog: Catalog | None = None, *, again: bool = False
) -> Situation:
    """Read what is there and what is asked for, as it is now.

    Raise UsageError where something of the user's is in the way, LockError for an unreadable lock.
    """
    asked = project.read_folder_request(quiet=again or catalog is not None)
    request, folder = project.environment_request(asked), project.paths.folder
    here = project.here(request)
    existing = inspect_environment(project.paths, here)
    if not options.replace:
        existing.check_ownership(restoring=options.restoring)
    if existing.changed_build and not again:
        project.reporter.step("Changed", f"{existing.changed_build}; restoring the proven environment")
    existing = replace(existing, locks=() if options.upgrade else tuple(read_locks(folder)))
    if catalog is None:  # what is locked may have been learned from any index
        catalog = known_catalog() if options.locked else project.catalog
        catalog = with_locked_builds(catalog, folder, project.session)
    lock_request = LockRequest(project.machine, request, catalog)
    return Situation(existing, asked, lock_request, here, options)


def _priced(situation: Situation, project: Project) -> tuple[Situation, PricedLock]:
    """Choose and price; prove the driver first after all if kernels have to run: another torch is to be installed."""
    priced = _price(situation, project)
    if situation.is_settled or not situation.is_driver_proven:
        return situation, priced
    marker = situation.existing.marker
    is_same_python = marker is not None and marker.python == priced.choice.python
    if is_same_python and not any(change.package == "torch" for change in priced.changes):
        return situation, priced
    proven = _with_preflight(situation, project)
    if proven.request.machine == situation.request.machine:
        return situation, priced
    return proven, _price(proven, project)


def _price(situation: Situation, project: Project) -> PricedLock:
    """Choose where the lock comes from, and reckon what it costs; raise the error of a refusal."""
    fit, reporter = situation.fit, project.reporter
    if fit and situation.existing.is_made_of(fit.lock):
        if not situation.is_settled and (newer := situation.newer(fit)):
            reporter.step("Newer", f"torch {newer.build.name} runs here too: gpuinstall install --upgrade")
        return PricedLock(fit)
    if fit is None:
        situation.check_lockable()
    situation.say_misfits(reporter)
    return price_lock(fit, situation, project) if fit else resolve_lock(situation, project)


def _install_next(failed: KernelFailedError, situation: Situation, project: Project) -> InstallResult:
    """Install the next build that differs in what failed; raise the failure where there is none, or none is to be."""
    options, catalog = situation.options, situation.request.catalog
    rest = catalog_without(catalog, failed.build, failed.verdict) if options.attempts > 1 else None
    if rest is None:
        raise failed
    project.reporter.warn(f"{failed.message}; trying the next build")
    try:
        return install(project, replace(options, upgrade=True, attempts=options.attempts - 1), rest)
    except (MachineError, NoBuildError):
        raise failed from None


def _write_marker(venv: Path, fit: Fit, verdict: dict[str, Any], machine: Machine, *, final: Path) -> str:
    """Write into an environment, last of all, what it is; return its id. ``final`` is where it will lie."""
    lock, choice, identity = fit.lock, fit.choice, str(uuid.uuid4())
    remember(final, identity)
    Marker(
        id=identity,
        lock=lock.name,
        lock_sha256=lock.sha256,
        python=choice.python,
        torch=lock.versions["torch"],
        backend=choice.build.backend.tag,
        machine=fingerprint(machine),
        verdict=verdict,
    ).write(venv)
    return identity
