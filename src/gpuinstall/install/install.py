"""Make an environment hold what was asked for: look, decide, take the steps; a dry run shows the same steps."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

from gpuinstall.environments.jupyter import settle_kernel
from gpuinstall.errors import MachineError, NoBuildError
from gpuinstall.files import remove_path
from gpuinstall.install.decision import decide, judge_locks
from gpuinstall.install.environment_lock import environment_lock, is_idle
from gpuinstall.install.execution import execute, rehearse
from gpuinstall.install.inspection import check_replaceable, inspect_environment
from gpuinstall.install.proof import KernelFailedError, catalog_without, preflighted
from gpuinstall.lock.fit import read_locks
from gpuinstall.lock.strangers import with_locked_builds
from gpuinstall.plan import choose

if TYPE_CHECKING:
    from gpuinstall.catalog import Catalog
    from gpuinstall.install.decision import Decision
    from gpuinstall.install.execution import Rehearsal
    from gpuinstall.install.inspection import ExistingEnvironment
    from gpuinstall.install.options import InstallOptions, InstallResult
    from gpuinstall.session import Session

ATTEMPTS = 3


def install(options: InstallOptions, catalog: Catalog, session: Session) -> InstallResult:
    """Make ``options.paths`` hold what was asked for, proven; leave it as it was on any failure."""
    start = monotonic()
    check_replaceable(options.paths)
    catalog = with_locked_builds(catalog, options.paths.folder, session)
    decision = _examined(options, catalog) if is_idle(options.paths) else None
    if decision and decision.changes_nothing:
        done = execute(decision, options, catalog, session)
    else:
        with environment_lock(options.paths, options.wait, session.reporter):
            done = _install(_examined(options, catalog), options, catalog, session)
    settle_kernel(options.paths.venv, done.found.lock.versions, wanted=options.jupyter)
    return replace(done, seconds=monotonic() - start)


def dry_run(options: InstallOptions, catalog: Catalog, session: Session) -> Rehearsal:
    """Decide, choose and resolve as an installation does, and stop there."""
    check_replaceable(options.paths)
    catalog = with_locked_builds(catalog, options.paths.folder, session)
    return rehearse(_examined(options, catalog), options, catalog, session)


def _examined(options: InstallOptions, catalog: Catalog) -> Decision:
    """Look at what is there, and decide; raise UsageError where it is the user's, LockError for an unreadable lock."""
    existing = inspect_environment(options.paths)
    if not options.replace:
        existing.check_ownership()
    existing = replace(existing, locks=() if options.upgrade else tuple(read_locks(options.paths.folder)))
    return _decided(existing, options, catalog)


def _decided(existing: ExistingEnvironment, options: InstallOptions, catalog: Catalog) -> Decision:
    plan = choose(options.machine, options.request, catalog)
    return decide(existing, judge_locks(existing, options, catalog), plan, options)


def _install(decision: Decision, options: InstallOptions, catalog: Catalog, session: Session) -> InstallResult:
    if not decision.existing.made_here:
        session.reporter.warn(f"{options.paths.venv} was not made here, whatever it says: it is built again")
    if not decision.changes_nothing:
        options = preflighted(options, session)
        decision = _decided(decision.existing, options, catalog)
    return _attempt(decision, options, catalog, session)


def _attempt(
    decision: Decision, options: InstallOptions, catalog: Catalog, session: Session, attempts: int = ATTEMPTS
) -> InstallResult:
    """Take the steps; where a kernel fails, decide again with the builds that differ in what failed."""
    try:
        return execute(decision, options, catalog, session)
    except KernelFailedError as failed:
        remove_path(options.paths.staging)
        rest = catalog_without(catalog, failed.build, failed.verdict) if options.fallback and attempts > 1 else None
        if rest is None:
            raise
        session.reporter.warn(f"{failed.message}; the next build that differs is tried")
        again = replace(options, upgrade=True)
        try:
            return _attempt(_decided(decision.existing, again, rest), again, rest, session, attempts - 1)
        except (MachineError, NoBuildError):
            raise failed from None
