"""Make an environment of ours hold what is requested, from the first look at what is there to the swap."""

from __future__ import annotations

import os
import uuid
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any

from gpuinstall.base.environment_paths import EnvironmentPaths, interpreter
from gpuinstall.base.errors import InstallationError, MachineError, NoBuildError
from gpuinstall.base.removal import size_of
from gpuinstall.base.values import dataclass
from gpuinstall.environments.environment import (
    NOT_COPIED,
    Marker,
    fingerprint,
    installed_packages,
    read_marker,
)
from gpuinstall.environments.records import check_records, remember
from gpuinstall.environments.rights import check_rights, reason_not_ours
from gpuinstall.environments.stamp import file_stamp
from gpuinstall.install.priced_lock import PricedLock, price_lock, resolve_lock
from gpuinstall.install.proof import (
    Installation,
    KernelFailedError,
    catalog_without,
    preflighted,
    verify,
)
from gpuinstall.install.state import (
    Action,
    InstallOptions,
    InstallState,
    check_replaceable,
    inspect_environment,
    stamp_file,
)
from gpuinstall.install.swap import (
    environment_lock,
    is_idle,
    publish_lock,
    swap_in,
)
from gpuinstall.lock.fit import OTHER_REQUEST, read_locks
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.lock.request.strangers import with_locked_builds
from gpuinstall.wheels.learned.store import known_catalog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpuinstall.base.finding import Rejection
    from gpuinstall.base.machine import Machine
    from gpuinstall.catalog import Catalog
    from gpuinstall.lock.fit import Fit
    from gpuinstall.lock.lock import Lock, VersionChange
    from gpuinstall.project import Project

FALLBACK = "GPUINSTALL_FALLBACK"
"""The variable that forbids, as ``0``, to try another build if a kernel fails."""


@dataclass(frozen=True)
class InstallResult:
    """What came of an installation."""

    paths: EnvironmentPaths
    machine: Machine
    """The machine that it is for."""
    fit: Fit
    """The lock that the environment is made of, and its plan."""
    is_lock_new: bool
    """Whether the lock in the folder was written."""
    verdict: dict[str, Any]
    """The document of the verdict."""
    action: Action
    misfits: tuple[Rejection[Lock], ...] = ()
    """The other locks of the folder, and why they were not taken."""
    changes: tuple[VersionChange, ...] = ()
    """The packages that came, went and moved."""
    bytes: int = 0
    """What was to be fetched."""
    previous: Path | None = None
    """The environment that was replaced, if it is kept."""
    previous_bytes: int = 0
    """Its size; 0 if it shares its files with the one that is a copy of it."""
    seconds: float = 0.0
    is_proof_kept: bool = False
    """Whether torch was left as it was, and with it the proof."""

    @property
    def venv(self) -> Path:
        """The folder of the environment."""
        return self.paths.venv

    @property
    def python(self) -> Path:
        """The interpreter of the environment."""
        return interpreter(self.paths.venv)

    def to_dict(self) -> dict[str, Any]:
        """Return the document of ``install --json``."""
        lock = self.fit.lock
        return {
            "plan": self.fit.plan.to_dict(),
            "lock": {
                "path": str(self.paths.folder / lock.name),
                "sha256": lock.sha256,
                "status": "written" if self.is_lock_new else "unchanged",
                "packages": len(lock.pylock.packages),
                "changes": [change._asdict() for change in self.changes],
            },
            "environment": self.fit.environment(self.paths.venv, self.action.value),
            "previous": self.previous
            and {"path": str(self.previous), "bytes": self.previous_bytes},
            "verdict": self.verdict,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
        }


def install(
    project: Project,
    options: InstallOptions,
    catalog: Catalog | None = None,
) -> InstallResult:
    """Make the environment of ``project`` hold what is requested, proven; leave it as it was on any failure.

    Args:
        project: What to install, and where.
        options: How.
        catalog: What to choose from; None: the project's.
    """
    start = monotonic()
    paths = project.paths
    check_replaceable(paths)
    try:
        with locked_state(project, options, catalog) as locked:
            state, priced = _priced(locked, project)
            priced.announce(project.reporter)
            # A request that changes nothing is known as such only when it is resolved.
            action = state.action_for(priced.fit)
            lock_file = str(paths.folder / priced.fit.lock.name)
            stamp = file_stamp(lock_file)
            installation = _carry_out(action, priced, state.here, project)
            # The folder may lack it also if nothing had to be done.
            publish_lock(paths)
            is_lock_new = (
                action is not Action.NOTHING and file_stamp(lock_file) != stamp
            )
    except KernelFailedError as failed:
        return replace(
            _install_next(failed, state, project), seconds=monotonic() - start
        )
    is_built = action is Action.BUILD
    previous = paths.previous if is_built and paths.has_previous else None
    previous_bytes = 0
    if previous and not installation.copied:
        previous_bytes = size_of(previous)
    return InstallResult(
        paths=paths,
        machine=state.request.machine,
        fit=installation.fit,
        is_lock_new=is_lock_new,
        verdict=installation.verdict or state.existing.verdict,
        action=action,
        misfits=state.misfits,
        changes=priced.changes if is_built else (),
        bytes=priced.bill.fetch,
        previous=previous,
        previous_bytes=previous_bytes,
        seconds=monotonic() - start,
        is_proof_kept=installation.is_proof_kept,
    )


def dry_run(project: Project, options: InstallOptions) -> PricedLock:
    """Look, choose, resolve and price as an installation does; return that."""
    check_replaceable(project.paths)
    return _price(read_state(project, options), project)


@contextmanager
def locked_state(
    project: Project,
    options: InstallOptions,
    catalog: Catalog | None,
) -> Iterator[InstallState]:
    """Yield what there is; if something is to change, hold the environment, look again, and prove the driver."""
    state = read_state(project, options, catalog)
    if state.action is Action.NOTHING and is_idle(project.paths):
        yield state
        return
    _check_rights(state, project)
    with environment_lock(project.paths, project.reporter) as has_waited:
        # Every run that changes an environment gives it another marker.
        if has_waited or read_marker(project.paths.venv) != state.existing.marker:
            state = read_state(project, options, catalog, again=True)
        if not state.existing.made_here:
            venv = project.paths.venv
            project.reporter.warn(f"{venv} {reason_not_ours(venv)}; rebuilding it")
        if state.action is not Action.NOTHING and not state.existing.is_proven:
            state = with_preflight(state, project)
        yield state


def _check_rights(state: InstallState, project: Project) -> None:
    """Check that what is to come can be written and recorded; raise InstallationError."""
    check_rights(project.paths)
    try:
        check_records()
    except InstallationError as error:
        if state.existing.marker:
            raise
        project.reporter.warn(
            f"{error.message}; the next command will not know that you have made this environment"
        )


def with_preflight(state: InstallState, project: Project) -> InstallState:
    """Prove the driver; what is wrong with it counts in every choice from now on."""
    request = state.request
    machine = preflighted(
        request.machine, state.here, request.request, project.reporter
    )
    return replace(state, request=replace(request, machine=machine))


def read_state(
    project: Project,
    options: InstallOptions,
    catalog: Catalog | None = None,
    *,
    again: bool = False,
) -> InstallState:
    """Return what is there and what is requested, as it is now.

    Args:
        project: The run.
        options: How to install.
        catalog: What to choose from; None: the project's.
        again: Whether this run has read it before, and announced what it read.

    Raises:
        UsageError: something of the user's is in the way.
        LockError: a lock cannot be read.
    """
    request = project.environment_request(
        project.read_request(quiet=again or catalog is not None)
    )
    folder = project.paths.folder
    here = project.here(request)
    existing = inspect_environment(project.paths, here)
    if not options.upgrade:
        existing = replace(existing, locks=tuple(read_locks(folder)))
    if not options.replace:
        existing.check_ownership(restoring=options.restoring)
    if existing.changed_build and not again:
        project.reporter.step(
            "Changed",
            f"{existing.changed_build}; restoring the proven environment",
        )
    if catalog is None:
        # What is locked may have been learned from any index.
        known = known_catalog() if options.locked else project.catalog
        catalog = with_locked_builds(known, folder, project.session)
    return InstallState(
        existing,
        request=LockRequest(project.machine, request, catalog),
        here=here,
        options=options,
        targets=() if options.locked else tuple(map(str, project.named_targets)),
    )


def _priced(state: InstallState, project: Project) -> tuple[InstallState, PricedLock]:
    """Choose and price; prove the driver first after all if kernels have to run: another torch is to be installed."""
    priced = _price(state, project)
    # What stays has the proven torch among it.
    is_kept = state.action is Action.NOTHING or priced.unchanged
    if is_kept or not state.existing.is_proven:
        return state, priced
    proven = with_preflight(state, project)
    if proven.request.machine == state.request.machine:
        return state, priced
    return proven, _price(proven, project)


def _price(state: InstallState, project: Project) -> PricedLock:
    """Choose where the lock comes from, and reckon what it costs; raise the error of a refusal."""
    fit = state.fit
    if fit and state.action is not Action.BUILD:
        return PricedLock(fit)
    if fit is None:
        state.check_lockable()
    _report_misfits(state, project)
    return price_lock(fit, state, project) if fit else resolve_lock(state, project)


def _report_misfits(state: InstallState, project: Project) -> None:
    is_other_request = False
    for misfit in state.misfits:
        if misfit.reason.code == OTHER_REQUEST:
            is_other_request = True
            continue
        text = f"{misfit.candidate.name} does not fit: {misfit.reason.message}"
        project.reporter.detail("Lock", text)
    if is_other_request and state.fit is None:
        project.reporter.step("Lock", "a new one: the request has changed")


def _carry_out(
    action: Action,
    priced: PricedLock,
    here: Machine | None,
    project: Project,
) -> Installation:
    """Bring the packages of a lock into the environment, and prove them.

    After a failure the environment is as it was: another one is built beside it, and takes its place once it is proven.

    Args:
        action: What there is to do.
        priced: The lock, what comes and goes, and what has to be fetched.
        here: This machine; None if no kernel can run on it.
        project: The run, which holds the environment.

    Raises:
        InstallationError: the packages could not be brought.
        KernelFailedError: a kernel failed.
    """
    paths = project.paths
    if action is Action.BUILD:
        from gpuinstall.install.stage import build  # which takes long to load

        installation = build(priced, project)
    else:
        installation = Installation(priced.fit, paths.venv)
    if action is Action.NOTHING:
        return installation
    installation = verify(installation, here, project)
    venv, lock = installation.venv, installation.fit.lock
    copied = installation.copied.marker if installation.copied else None
    marker = Marker(
        id=str(uuid.uuid4()),
        lock=lock.name,
        lock_sha256=lock.sha256,
        python=priced.choice.python,
        torch=lock.versions["torch"],
        backend=priced.choice.build.backend.tag,
        machine=fingerprint(project.machine),
        verdict=installation.verdict,
        copied_from=copied.id if copied else NOT_COPIED,
        packages=installed_packages(venv, lock.names),
        is_for_cpu=lock.record.asked == "cpu",
    )
    # An environment whose marker is not remembered passes for a stranger's: that comes first.
    remember(paths.venv, marker.id)
    marker.write(venv)
    if here and installation.stamp:
        installation.stamp.write(stamp_file(marker.id, here))
    if venv != paths.venv:
        swap_in(paths, venv, project.reporter)
    return installation


def _install_next(
    failed: KernelFailedError,
    state: InstallState,
    project: Project,
) -> InstallResult:
    """Install the next build that differs in what failed.

    Raises:
        KernelFailedError: there is none, or none is to be tried.
    """
    options = state.options
    if options.attempts <= 1 or os.environ.get(FALLBACK) == "0":
        raise failed
    catalog = catalog_without(state.request.catalog, failed.build, failed.verdict)
    if catalog is None:
        raise failed
    project.reporter.warn(f"{failed.message}; trying the next build")
    next_options = replace(options, upgrade=True, attempts=options.attempts - 1)
    try:
        return install(project, next_options, catalog)
    except (MachineError, NoBuildError):
        raise failed from None
