"""Installation of a request or a lock file into a managed environment."""

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
"""The number of attempts if another tool changes the environment meanwhile."""

FALLBACK = "GPUINSTALL_FALLBACK"
"""The variable that disables (``0``) another build after a failed kernel."""


class ChangeResult(Value, kw_only=True):
    """The result of a change of an environment."""

    paths: EnvironmentPaths
    fit: Fit
    """The installed lock file, and its plan."""
    changes: tuple[VersionChange, ...] = ()
    """The added, removed, and changed packages."""
    bytes: int = 0
    """The size of the downloads."""
    rollback: Path | None = None
    """The journal of the last change, for ``env rollback``."""
    seconds: float = 0.0
    verdict: dict[str, Any] = field(default_factory=dict)
    """The Verdict document, empty if no kernel ran."""

    def document(self, status: str) -> dict[str, Any]:
        """Return the fields that the documents of all changes have."""
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
    """The result of an installation."""

    is_lock_new: bool
    """Whether the lock file was written."""
    action: Action
    misfits: tuple[Rejection[Lock], ...] = ()
    """The rejected lock files of the folder, with reasons."""
    is_proof_kept: bool = False
    """Whether torch is unchanged, and its verification still valid."""

    @property
    def venv(self) -> Path:
        """The environment."""
        return self.paths.venv

    @property
    def python(self) -> Path:
        """Its interpreter."""
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
    """Install the request of a project, and verify the environment.

    If anything fails, the environment is unchanged.

    Args:
        project: The project.
        options: The options of the installation.
    """
    return until_settled(project, lambda: _install(project, options))


def until_settled(project: Project, attempt: Callable[[], _Result]) -> _Result:
    """Repeat an installation, at most twice, if another tool interferes.

    A repetition needs the environment lock again, so the previous attempt has ended.

    Args:
        project: The project.
        attempt: One installation.

    Returns:
        The result, with the seconds of all attempts.

    Raises:
        InstallationError: The environment keeps changing.
    """
    start = monotonic()
    for _ in range(BEGINNINGS):
        with suppress(ChangedMeanwhileError):
            return replace(attempt(), seconds=monotonic() - start)
        project.read_anew()
    raise InstallationError(
        "busy",
        "the environment keeps changing; is another tool installing into it?",
        hint="Wait for it to end; then run this command again",
    )


def _install(project: Project, options: InstallOptions) -> InstallResult:
    place = project.paths
    try:
        with held_state(project, options) as held:
            state, priced = _price_on_sound_driver(held, project)
            priced.announce(project.reporter)
            # Only a resolution shows whether a request changes anything.
            action = state.action_for(priced.fit)
            lock_file = str(place.folder / priced.fit.lock.name)
            stamp = file_stamp(lock_file)
            if action is Action.BUILD:
                _report_added(state, priced, project.reporter)
            fit, proof = change_environment(action, priced, state, project)
            # The folder can lack it even if nothing changed.
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
    """Another tool has changed the environment during the download."""


def _report_added(state: InstallState, priced: PricedLock, reporter: Reporter) -> None:
    """Report packages that are kept, although no lock file contains them.

    Args:
        state: The state of the environment.
        priced: The change.
        reporter: Reports them.
    """
    existing = state.existing
    names = existing.added - priced.fit.lock.names - priced.change.goes
    # A rebuild lists them among the changes.
    if not names or priced.change.is_rebuild:
        return
    versions = [f"{name} {existing.versions[name]}".strip() for name in sorted(names)]
    text = f"{some(versions)}: not in the lock, and left as it is"
    reporter.step("Beside", text)
    report_broken(existing.packages_named(names), priced, reporter)


def report_broken(
    packages: Iterable[InstalledPackage], priced: PricedLock, reporter: Reporter
) -> None:
    """Warn about packages whose requirements the change does not meet.

    Args:
        packages: The kept packages.
        priced: The change.
        reporter: Receives the warnings.
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
    """Return the change that an installation would make.

    Args:
        project: The project.
        options: The options of the installation.

    Raises:
        GpuInstallError: An error that an installation raises before the download.
    """
    check_finished(project.paths.venv)
    return _price(read_state(project, options), project)


@contextmanager
def held_state(project: Project, options: InstallOptions) -> Iterator[InstallState]:
    """Read the state, and lock the environment if a change is necessary.

    After a wait, the state is read again. A small kernel verifies the driver.

    Args:
        project: The project.
        options: The options of the installation.
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
        # Each change and relocation writes another marker.
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
    """Run a small kernel before the download.

    Args:
        state: The state.
        project: The project.

    Returns:
        The state with the problems of the driver, unchanged if no kernel is necessary.
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
    """Read the state of the environment, and the request.

    Args:
        project: The project.
        options: The options of the installation.
        again: Whether this command has read and reported it before.
        check_ownership: Whether to refuse an unmanaged environment without ``--replace``.

    Raises:
        UsageError: A file or an unmanaged environment is at the path.
        LockError: A lock file cannot be read.
    """
    if check_ownership:
        check_folder(project.paths.venv)
    # The attempt with the failed build has reported everything.
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
        # A locked build can be from any index.
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
    """Select and price a lock file, after a preflight if torch changes."""
    priced = _price(state, project)
    # Otherwise, the verified torch is kept.
    if "torch" in priced.change.comes and state.existing.is_proven:
        proven = with_preflight(state, project)
        if proven.lock_request.machine != state.lock_request.machine:
            return proven, _price(proven, project)
    return state, priced


def _price(state: InstallState, project: Project) -> PricedLock:
    """Select an existing lock file or resolve a new one, and price it."""
    fit = state.fit
    if fit and state.action is not Action.BUILD:
        return PricedLock(fit, is_there=True)
    if fit:
        return price_lock(fit, state, project)
    state.check_lockable()
    _report_misfits(state, project.reporter)
    return resolve_lock(state, project)


def _report_misfits(state: InstallState, reporter: Reporter) -> None:
    """Report why a new lock file replaces an existing one."""
    own = state.existing.intact_lock
    changed = {
        misfit.candidate.sha256
        for misfit in state.misfits
        if misfit.reason.code == OTHER_REQUEST and misfit.candidate.is_ours
    }
    # The following list of changes explains a changed request.
    if own and own.sha256 in changed:
        return
    # The others are for other machines, or as old as the first.
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
    """Install a lock file, and verify the environment.

    Args:
        action: The necessary action.
        priced: The lock file, and the change.
        state: The state of the environment, and the request.
        project: The project, which has locked the environment.

    Returns:
        The lock file with missing hashes, and the verification.

    Raises:
        InstallationError: A package cannot be installed.
        KernelFailedError: A kernel failed.
        ChangedMeanwhileError: Another tool has changed the environment meanwhile.
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
    """Create and verify a new environment, and replace the previous one.

    Args:
        priced: The lock file, and the change.
        state: The state of the environment.
        project: The project.
    """
    from gpuinstall.install.unpack import unpack_packages  # slow to import

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
    """Change an environment in place, after torch's kernels ran in staging.

    Args:
        priced: The lock file, and the change.
        state: The state of the environment.
        project: The project.
    """
    from gpuinstall.install.unpack import unpack_packages  # slow to import
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
        # Python would still find a removed program. Then the kernels run after the change.
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
    # Only native code is linked.
    if any(package.is_native for package in unpacked.packages):
        check_links(unpacked.fit, packages_folders(venv)[0], reporter)


def _planned(
    unpacked: Unpacked,
    leaving: Collection[InstalledPackage],
    existing: ExistingEnvironment,
) -> Change:
    """Return the change of the environment's files.

    Args:
        unpacked: The staged packages.
        leaving: The packages that are removed or replaced.
        existing: The environment.
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
    """Verify an environment, and write the marker and stamp of a managed one.

    Without a commit, neither is valid.
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
    # Without this record, the marker would count as another user's.
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
    """Install the next build that differs in the failed property.

    Args:
        failed: The failed kernel, and its build.
        state: The state before the installation.
        project: The project.

    Raises:
        KernelFailedError: There is no such build, or ``GPUINSTALL_FALLBACK`` is 0.
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
