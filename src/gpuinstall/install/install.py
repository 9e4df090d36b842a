"""Make an environment of ours hold what is requested, from the first look at what is there to the commit."""

from __future__ import annotations

import os
import uuid
from contextlib import contextmanager, suppress
from os.path import exists
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from gpuinstall.base.environment_paths import (
    EnvironmentPaths,
    below,
    packages_folders,
)
from gpuinstall.base.errors import InstallationError, MachineError, NoBuildError
from gpuinstall.base.requirement import normalized
from gpuinstall.base.text import some
from gpuinstall.base.values import Value, field, replace
from gpuinstall.environments.environment import (
    Marker,
    fingerprint,
    read_marker,
    script_digests,
    versions_of,
)
from gpuinstall.environments.guard import GUARD_FILES
from gpuinstall.environments.packages import (
    InstalledPackage,
    read_packages,
    unmet_requirements,
)
from gpuinstall.environments.records import check_finished, check_records, remember
from gpuinstall.environments.rights import check_rights, reason_unmanaged
from gpuinstall.environments.stamp import file_stamp
from gpuinstall.install.environment_lock import environment_lock, needs_recovery
from gpuinstall.install.file_change import (
    Change,
    check_paths,
    plan_change,
    recorded_names,
    staged_files,
)
from gpuinstall.install.journal import journal_entry
from gpuinstall.install.moved import relocate_environment
from gpuinstall.install.priced_lock import PricedLock, price_lock, resolve_lock
from gpuinstall.install.proof import (
    KernelFailedError,
    Proof,
    catalog_without,
    check_links,
    prove,
    renew_proof,
)
from gpuinstall.install.state import (
    Action,
    ExistingEnvironment,
    InstallOptions,
    InstallState,
    check_folder,
    check_movable,
    check_previous,
    inspect_environment,
    is_created_from,
    stamp_file,
)
from gpuinstall.install.transaction import (
    changing,
    publish_lock,
    replace_environment,
)
from gpuinstall.lock.file.fit import OTHER_REQUEST, Fit, read_locks
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.lock.request.lock_sources import with_locked_builds
from gpuinstall.project.request import read_request
from gpuinstall.project.targets import environment_request, project_targets
from gpuinstall.wheels.learned.store import known_catalog

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator
    from pathlib import Path

    from gpuinstall.base.finding import Rejection
    from gpuinstall.base.machine import Machine
    from gpuinstall.base.reporter import Reporter
    from gpuinstall.environments.stamp import Stamp
    from gpuinstall.install.unpack import Unpacked
    from gpuinstall.lock.file.lock import Lock, VersionChange
    from gpuinstall.project import Project
    from gpuinstall.verify.verdict import Verdict

BEGINNINGS = 3
"""How often an installation begins, if another tool changes the environment meanwhile."""

FALLBACK = "GPUINSTALL_FALLBACK"
"""The variable that forbids, as ``0``, to try another build if a kernel fails."""


class ChangeResult(Value, kw_only=True):
    """What came of a change of an environment, whoever made it."""

    paths: EnvironmentPaths
    fit: Fit
    """The lock that the environment is made of, and its plan."""
    changes: tuple[VersionChange, ...] = ()
    """The packages that came, went and moved."""
    bytes: int = 0
    """What was to be fetched."""
    rollback: Path | None = None
    """The journal by which ``env rollback`` takes the last change back; None if there is none."""
    seconds: float = 0.0
    verdict: dict[str, Any] = field(default_factory=dict)
    """The document of the verdict; empty if nothing was run."""

    def document(self, status: str) -> dict[str, Any]:
        """Return what the documents of all changes have."""
        choice = self.fit.choice
        return {
            "plan": self.fit.plan.to_dict(),
            "environment": {
                "path": str(self.paths.venv),
                "python": choice.python,
                "torch": self.fit.lock.versions["torch"],
                "backend": choice.build.backend.tag,
                "status": status,
            },
            "rollback": journal_entry(self.rollback),
            "verdict": self.verdict or None,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
        }


class InstallResult(ChangeResult, kw_only=True):
    """What came of an installation."""

    is_lock_new: bool
    """Whether the lock in the folder was written."""
    action: Action
    misfits: tuple[Rejection[Lock], ...] = ()
    """The other locks of the folder, and why they were not taken."""
    is_proof_kept: bool = False
    """Whether torch was left as it was, and with it the proof."""

    @property
    def venv(self) -> Path:
        """The folder of the environment."""
        return self.paths.venv

    @property
    def python(self) -> Path:
        """The interpreter of the environment."""
        return self.paths.python

    def to_dict(self) -> dict[str, Any]:
        """Return the document of ``install --json``."""
        lock = self.fit.lock
        return {
            **self.document(self.action.value),
            "lock": {
                "path": str(self.paths.folder / lock.name),
                "sha256": lock.sha256,
                "status": "written" if self.is_lock_new else "unchanged",
                "packages": len(lock.pylock.packages),
                "changes": [change._asdict() for change in self.changes],
            },
        }


_Result = TypeVar("_Result", bound=ChangeResult)


def install(project: Project, options: InstallOptions) -> InstallResult:
    """Make the environment of ``project`` hold what is requested, proven; leave it as it was on any failure.

    Args:
        project: What to install, and where.
        options: How.
    """
    return until_settled(project, lambda: _install(project, options))


def until_settled(project: Project, attempt: Callable[[], _Result]) -> _Result:
    """Return what an installation comes to, with the seconds of all attempts.

    It begins anew, at most twice, if another tool has changed the environment while this run was fetching: only now that
    nobody holds it, for a run could not hold it twice.

    Args:
        project: The run.
        attempt: Makes one.

    Raises:
        InstallationError: the other tool does not come to an end.
    """
    start = monotonic()
    for _ in range(BEGINNINGS):
        with suppress(ChangedMeanwhileError):
            return replace(attempt(), seconds=monotonic() - start)
        project.read_anew()
    raise InstallationError(
        "busy",
        "another tool changes the environment again and again",
        hint="Wait for it to end; then run this command again",
    )


def _install(project: Project, options: InstallOptions) -> InstallResult:
    place = project.paths
    try:
        with held_state(project, options) as held:
            state, priced = _price_on_sound_driver(held, project)
            priced.announce(project.reporter)
            # A request that changes nothing is known as such only when it is resolved.
            action = state.action_for(priced.fit)
            lock_file = str(place.folder / priced.fit.lock.name)
            stamp = file_stamp(lock_file)
            if action is Action.BUILD:
                _report_added(state, priced, project.reporter)
            fit, proof = change_environment(action, priced, state, project)
            # The folder may lack it also if nothing had to be done.
            publish_lock(place)
            is_lock_new = (
                action is not Action.NOTHING and file_stamp(lock_file) != stamp
            )
    except KernelFailedError as failed:
        return _install_next(failed, state, project)
    is_built = action is Action.BUILD
    return InstallResult(
        paths=place,
        fit=fit,
        is_lock_new=is_lock_new,
        verdict=proof.verdict or state.existing.verdict,
        action=action,
        misfits=state.misfits,
        changes=priced.changes if is_built else (),
        bytes=project.session.client.received if is_built else 0,
        rollback=place.last_change if is_built and exists(place.last_change) else None,
        is_proof_kept=proof.is_kept,
    )


class ChangedMeanwhileError(Exception):
    """Another tool has changed the environment while this run was fetching."""


def _report_added(state: InstallState, priced: PricedLock, reporter: Reporter) -> None:
    """Name what others put into the environment: it stays; and what they moved: it comes back.

    Args:
        state: What lies there.
        priced: What comes and goes.
        reporter: Is told.
    """
    existing = state.existing
    names = existing.added - priced.fit.lock.names - priced.change.goes
    # In an environment that is made again they are among the changes.
    if not names or priced.change.is_rebuild:
        return
    versions = [f"{name} {existing.versions[name]}".strip() for name in sorted(names)]
    text = f"{some(versions)}: not in the lock, and left as it is"
    reporter.step("Beside", text)
    report_broken(existing.packages_named(names), priced, reporter)


def report_broken(
    packages: Iterable[InstalledPackage], priced: PricedLock, reporter: Reporter
) -> None:
    """Name the packages that require another version than one that comes, or what goes.

    Args:
        packages: Those of the environment that may.
        priced: What comes and goes.
        reporter: Is told, package by package.
    """
    changes = {change.package: change.new for change in priced.changes}
    staying = [package for package in packages if package.name not in changes]
    coming = {name: version for name, version in changes.items() if version}
    for package, requirement, version in unmet_requirements(staying, coming):
        if normalized(requirement.name) not in changes:
            continue
        name = f"{package.name} {package.version}"
        if version is None:
            text = f"{name} requires {requirement.name}, which goes"
        else:
            required = f"{requirement.name}{requirement.specifier}"
            text = f"{name} requires {required}, but would get {version}"
        reporter.warn(text)


def dry_run(project: Project, options: InstallOptions) -> PricedLock:
    """Look, choose, resolve and price as an installation does; return that.

    Args:
        project: What to install, and where.
        options: How.

    Raises:
        GpuInstallError: what an installation would raise before it fetches anything.
    """
    check_finished(project.paths.venv)
    return _price(read_state(project, options), project)


@contextmanager
def held_state(project: Project, options: InstallOptions) -> Iterator[InstallState]:
    """Yield the state; if something is to change, hold the environment, read the state again, and prove the driver.

    Args:
        project: What to install, and where.
        options: How.
    """
    place = project.paths
    state = read_state(project, options)
    if state.action is Action.NOTHING and not needs_recovery(place):
        yield state
        return
    check_rights(project.paths)
    check_records()
    with environment_lock(place, project.reporter) as meanwhile:
        may_have_changed = any(meanwhile)
        relocate_environment(place, state.here, project.reporter)
        # Every run that changes or relocates an environment gives it another marker.
        if may_have_changed:
            project.read_anew()
        if may_have_changed or read_marker(place.venv) != state.existing.marker:
            state = read_state(project, options, again=True)
        if not state.existing.made_here:
            reason = reason_unmanaged(place.venv)
            project.reporter.warn(f"{place.venv} {reason}; rebuilding it")
        if state.action is not Action.NOTHING and not state.existing.is_proven:
            state = with_preflight(state, project)
        yield state


def with_preflight(state: InstallState, project: Project) -> InstallState:
    """Prove the driver; what is wrong with it counts in every choice from now on.

    Args:
        state: What there is to install.
        project: The run.

    Returns:
        The same state, with the problems that the driver has shown; as it was if no kernel is to run here.
    """
    from gpuinstall.machine.probe import preflight

    request = state.lock_request
    here = state.here
    if here is None or not here.gpus or request.request.is_for_cpu:
        return state
    proof = preflight(here, project.reporter)
    if proof.outcomes:
        project.reporter.step("Preflight", proof.summary, proof.seconds)
    machine = request.machine.with_problems(proof.problems)
    return replace(state, lock_request=replace(request, machine=machine))


def read_state(
    project: Project,
    options: InstallOptions,
    *,
    again: bool = False,
    check_ownership: bool = True,
) -> InstallState:
    """Return the present state: the environment and the request.

    Args:
        project: The run.
        options: How to install.
        again: Whether this run has read it before, and announced what it read.
        check_ownership: Whether what is not ours may not lie there, unless it is to be replaced.

    Raises:
        UsageError: something of the user's is in the way.
        LockError: a lock cannot be read.
    """
    if check_ownership:
        check_folder(project.paths.venv)
    # Of the build that failed before this attempt all was said then.
    quiet = again or options.catalog is not None
    request = read_request(project, quiet=quiet)
    request = environment_request(project, request, quiet=quiet)
    folder = project.paths.folder
    here = project.here(request)
    existing = inspect_environment(project.paths, here)
    base = project.settings.base_python
    if base and existing.has_python and not is_created_from(project.paths, base):
        existing = replace(existing, has_python=False)
    if not options.upgrade:
        existing = replace(existing, locks=tuple(read_locks(folder)))
    if check_ownership and not options.replace:
        existing.check_ownership()
    changed = {**existing.changed_versions, **existing.damaged}
    if existing.lacks_pip:
        changed["pip"] = "pip is missing"
    if changed and not again:
        text = f"{some([*changed.values()])}; restoring the locked versions"
        project.reporter.step("Changed", text)
    catalog = options.catalog
    if catalog is None:
        # What is locked may have been learned from any index.
        known = known_catalog() if options.locked else project.catalog
        catalog = with_locked_builds(known, folder, lambda: project.session)
    return InstallState(
        existing,
        lock_request=LockRequest(project.machine, request, catalog),
        here=here,
        options=options,
        gate=project.lock_gate,
        names_folder=bool(project.named_folders),
        targets=() if options.locked else tuple(map(str, project_targets(project))),
    )


def _price_on_sound_driver(
    state: InstallState, project: Project
) -> tuple[InstallState, PricedLock]:
    """Choose and price; prove the driver first after all if kernels have to run: another torch is to be installed."""
    priced = _price(state, project)
    # What stays has the proven torch among it.
    if "torch" in priced.change.comes and state.existing.is_proven:
        proven = with_preflight(state, project)
        if proven.lock_request.machine != state.lock_request.machine:
            return proven, _price(proven, project)
    return state, priced


def _price(state: InstallState, project: Project) -> PricedLock:
    """Choose where the lock comes from, and reckon what it costs; raise the error of a refusal."""
    fit = state.fit
    if fit and state.action is not Action.BUILD:
        return PricedLock(fit, is_there=True)
    if fit:
        return price_lock(fit, state, project)
    state.check_lockable()
    _report_misfits(state, project.reporter)
    return resolve_lock(state, project)


def _report_misfits(state: InstallState, reporter: Reporter) -> None:
    """Say why a new lock is made although there is one."""
    own = state.existing.intact_lock
    changed = {
        misfit.candidate.sha256
        for misfit in state.misfits
        if misfit.reason.code == OTHER_REQUEST and misfit.candidate.is_ours
    }
    # Of the environment's own that is no news: the change that follows says what comes.
    if own and own.sha256 in changed:
        return
    # The first is enough: the others are for other machines, or as old as it.
    for misfit in state.misfits[:1]:
        text = f"{misfit.candidate.name} does not fit: {misfit.reason.message}"
        if changed:
            text = "the request has changed"
        reporter.step("Lock", f"a new one: {text}")


def change_environment(
    action: Action,
    priced: PricedLock,
    state: InstallState,
    project: Project,
) -> tuple[Fit, Proof]:
    """Bring the packages of a lock into an environment, and prove them; after a failure it is as it was.

    Args:
        action: What there is to do.
        priced: The lock, what comes and goes, and what has to be fetched.
        state: What there was, and what is requested.
        project: The run, which holds the environment.

    Returns:
        The lock, with the hashes that it lacked, and the proof.

    Raises:
        InstallationError: the packages could not be brought.
        KernelFailedError: a kernel failed.
        ChangedMeanwhileError: another tool has changed the environment meanwhile.
    """
    if action is Action.NOTHING:
        return priced.fit, Proof()
    if action is Action.VERIFY:
        existing = state.existing
        proof = _proven(
            priced.fit, existing.paths, state.here, project, earlier=existing.stamp
        )
        return priced.fit, proof
    if priced.change.is_rebuild:
        return _rebuild(priced, state, project)
    return _change(priced, state, project)


def _rebuild(
    priced: PricedLock, state: InstallState, project: Project
) -> tuple[Fit, Proof]:
    """Make a whole environment beside, prove it there, and put it in the place of the old one.

    Args:
        priced: The lock, and what comes and goes.
        state: What the installation starts from.
        project: The run.
    """
    from gpuinstall.install.unpack import unpack_packages  # which takes long to load

    place = state.existing.paths
    reporter = project.reporter
    check_movable(place, project.settings.typed_in)
    if not state.options.discard_previous:
        check_previous(place)
    unpacked = unpack_packages(priced, state.existing, project)
    fit = unpacked.fit
    folder = place.staging
    _check_links(unpacked, folder, reporter)
    proof = _proven(fit, EnvironmentPaths(folder), state.here, project)
    replace_environment(place, folder, reporter)
    return fit, proof


def _change(
    priced: PricedLock, state: InstallState, project: Project
) -> tuple[Fit, Proof]:
    """Change an environment where it lies; torch's kernels run before a file of it comes to its place.

    Args:
        priced: The lock, and what comes and goes.
        state: What the installation starts from.
        project: The run.
    """
    from gpuinstall.install.unpack import unpack_packages  # which takes long to load
    from gpuinstall.verify.cover import program_packages

    here = state.here
    existing = state.existing
    reporter = project.reporter
    place = existing.paths
    leaving = existing.packages_named(priced.change.comes | priced.change.goes)
    present = recorded_names(leaving, place.root)
    check_paths(place, present, present, present)
    unpacked = unpack_packages(priced, existing, project)
    fit = unpacked.fit
    ahead = None
    if "torch" in priced.change.comes and unpacked.python:
        programs = program_packages(place.packages_folders).values()
        # One that goes would be found beside the new torch too: then the change is proven where it lies.
        if not any(program.name in priced.change.goes for program in programs):
            ahead = prove(fit, unpacked.python, here, project)
    if read_packages(place.packages_folders) != existing.packages:
        raise ChangedMeanwhileError
    change = _planned(unpacked, leaving, existing)
    with changing(change, reporter):
        if place.is_ours:
            _check_links(unpacked, place.venv, reporter)
        earlier = existing.stamp
        proof = _proven(fit, place, here, project, earlier=earlier, ahead=ahead)
    return fit, proof


def _check_links(unpacked: Unpacked, venv: Path, reporter: Reporter) -> None:
    # What has no native code is loaded by no loader.
    if any(package.is_native for package in unpacked.packages):
        check_links(unpacked.fit, packages_folders(venv)[0], reporter)


def _planned(
    unpacked: Unpacked,
    leaving: Collection[InstalledPackage],
    existing: ExistingEnvironment,
) -> Change:
    """Return the change of the environment's files.

    Args:
        unpacked: What comes, unpacked beside the environment.
        leaving: The packages that go or move, as they lie there.
        existing: The environment as it is.
    """
    place = existing.paths
    folder = place.staging
    prefix = below(place.venv, place.root)
    own = {}
    for name in (unpacked.fit.lock.name, *GUARD_FILES):
        if exists(folder / name):
            own[prefix + name] = folder / name
    replaced = {existing.lock.name} if existing.lock else set()
    return plan_change(
        place,
        added={**staged_files(unpacked.packages, folder, place), **own},
        after=versions_of(unpacked.packages),
        leaving=leaving,
        own=replaced.union(own),
    )


def _proven(
    fit: Fit,
    place: EnvironmentPaths,
    here: Machine | None,
    project: Project,
    *,
    earlier: Stamp | None = None,
    ahead: Verdict | None = None,
) -> Proof:
    """Prove an environment as ``renew_proof`` does; write into one of ours what it is, and what was proven of it.

    Without a commit neither counts.
    """
    proof = renew_proof(fit, place, here, project, earlier=earlier, ahead=ahead)
    if not place.is_ours:
        return proof
    lock = fit.lock
    versions = versions_of(read_packages(place.packages_folders), {"pip"})
    previous = read_marker(place.venv)
    marker = Marker(
        id=str(uuid.uuid4()),
        lock=lock.name,
        lock_sha256=lock.sha256,
        python=fit.choice.python,
        torch=lock.versions["torch"],
        backend=fit.choice.build.backend.tag,
        machine=fingerprint(project.machine),
        verdict=proof.verdict,
        packages={
            name: versions[name] for name in sorted(versions.keys() & lock.names)
        },
        is_for_cpu=lock.record.asked == "cpu",
        has_pip="pip" in versions,
        scripts=previous.scripts if previous else script_digests(place.venv),
    )
    # An environment whose marker is not remembered passes for a stranger's: that comes first.
    remember(project.paths.venv, marker.id)
    marker.write(place.venv, project.paths.work)
    if here and proof.stamp:
        proof.stamp.write(stamp_file(marker.id, here))
    return proof


def _install_next(
    failed: KernelFailedError,
    state: InstallState,
    project: Project,
) -> InstallResult:
    """Install the next build that differs in what failed.

    Args:
        failed: Which build failed, and in what.
        state: What the installation started from.
        project: The run.

    Raises:
        KernelFailedError: there is none, or none is to be tried.
    """
    options = state.options
    if options.attempts <= 1 or os.environ.get(FALLBACK) == "0":
        raise failed
    catalog = catalog_without(state.lock_request.catalog, failed.build, failed.verdict)
    if catalog is None:
        raise failed
    project.reporter.warn(f"{failed.message}; trying the next build")
    next_options = replace(
        options, upgrade=True, attempts=options.attempts - 1, catalog=catalog
    )
    try:
        return install(project, next_options)
    except (MachineError, NoBuildError):
        raise failed from None
