"""Install packages into managed and unmanaged environments."""

from __future__ import annotations

import os
from contextlib import contextmanager
from os.path import exists
from time import monotonic
from typing import TYPE_CHECKING, Any

from gpuinstall.base.advice import Advice
from gpuinstall.base.environment_paths import (
    EnvironmentPaths,
    environment_folder,
    packages_folders,
)
from gpuinstall.base.errors import MachineError, NoBuildError
from gpuinstall.base.files import has_text, real_path
from gpuinstall.base.requirement import normalize_name
from gpuinstall.base.text import join_names
from gpuinstall.base.values import Value, asdict, field, replace
from gpuinstall.environments.environment import (
    Marker,
    compute_script_digests,
    fingerprint,
    format_project,
    package_versions,
    read_marker,
    stamp_records,
)
from gpuinstall.environments.guard import (
    CONSTRAINTS,
    find_guard_obstacle,
    find_guard_paths,
    update_uv_guard,
)
from gpuinstall.environments.packages import (
    InstalledPackage,
    find_unmet_requirements,
    read_packages,
)
from gpuinstall.environments.records import (
    check_finished,
    record_environment,
    was_created_here,
)
from gpuinstall.install.inspection import (
    lock_state,
    read_state,
    report_changed_packages,
    run_state_preflight,
)
from gpuinstall.install.journal import (
    describe_journal,
    is_journal,
    sync_file_system,
)
from gpuinstall.install.price import (
    PlannedInstallation,
    UnpackedPackages,
    plan_installation,
)
from gpuinstall.install.proof import (
    KernelFailedError,
    VerificationResult,
    check_links,
    exclude_failing_builds,
    run_kernels,
    update_verification,
)
from gpuinstall.install.state import (
    Action,
    InstallOptions,
    InstallState,
    check_previous,
    package_change,
    store_stamp,
)
from gpuinstall.project import Project

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from concurrent.futures import Future
    from pathlib import Path

    from gpuinstall.base.finding import Rejection
    from gpuinstall.base.reporter import Reporter
    from gpuinstall.install.file_change import Change
    from gpuinstall.lock.file.fit import CompatibleLock
    from gpuinstall.lock.file.lock import Lock, VersionChange

FALLBACK = "GPUINSTALL_FALLBACK"
"""The environment variable that disables other builds if set to ``0``."""


class InstallResult(Value, kw_only=True):
    """The changes and the verification result of an installation."""

    paths: EnvironmentPaths
    python: Path
    """The interpreter of the environment."""
    fit: CompatibleLock
    """The installed lock file and its plan."""
    action: Action
    changes: tuple[VersionChange, ...] = ()
    """The added, removed, and changed packages."""
    bytes: int = 0
    """The size of the downloads."""
    rollback: Path | None = None
    """The journal from which ``env rollback`` undoes the last change."""
    seconds: float = 0.0
    verdict: dict[str, Any] = field(default_factory=dict)
    """The Verdict document of the verification. Empty if no kernel ran."""
    is_verification_kept: bool = False
    """Whether torch is unchanged and its verification is still valid."""
    is_lock_new: bool = False
    """Whether the lock file was written."""
    misfits: tuple[Rejection[Lock], ...] = ()
    """The lock files of the folder that were rejected, with reasons."""
    guard: Path | None = None
    """The constraints file for pip in an unmanaged environment."""
    uv_guard: Path | None = None
    """The uv settings with these constraints in an application's folder."""

    @property
    def venv(self) -> Path:
        """The folder of the environment."""
        return self.paths.venv

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON document of ``install --json``."""
        choice, lock = self.fit.choice, self.fit.lock
        changes = [*map(asdict, self.changes)]
        status = self.action.value
        if not self.paths.is_managed:
            status = "changed" if changes else "none"
        document = {
            "plan": self.fit.plan.to_dict(),
            "environment": {
                "path": str(self.paths.venv),
                "python": choice.python,
                "torch": lock.versions["torch"],
                "backend": choice.build.backend.tag,
                "status": status,
            },
            "rollback": describe_journal(self.rollback),
            "verdict": self.verdict or None,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
        }
        if not self.paths.is_managed:
            return {**document, "changes": changes}
        document["lock"] = {
            "path": str(self.paths.folder / lock.name),
            "sha256": lock.sha256,
            "status": "written" if self.is_lock_new else "unchanged",
            "packages": len(lock.pylock.packages),
            "changes": changes,
        }
        return document


def install(project: Project, options: InstallOptions) -> InstallResult:
    """Install a request or a lock file, and verify the environment.

    If any step fails, the environment is unchanged. If a GPU kernel fails, the next build that
    differs in the failed property is installed.

    Args:
        project: The project.
        options: The options, which select a managed or an unmanaged environment.

    Raises:
        KernelFailedError: A kernel failed.
        GpuInstallError: The selection, resolution, or installation failed.
    """
    start = monotonic()
    failed: KernelFailedError | None = None
    current = project
    while True:
        try:
            with lock_state(current, options) as (state, current):
                planned = plan_installation(*_select(state, current), current)
                _announce(planned, current.reporter)
                unpacked = _fetch(planned, current)
                unpacked = _verify_before_change(unpacked, current.reporter)
                was_outdated = _is_lock_outdated(unpacked)
                with _apply_change(unpacked, current) as place:
                    proof = _verify(unpacked, place, current.reporter)
                result = _create_result(unpacked, proof, current)
            # A lock file that was saved during the change is kept.
            is_lock_new = was_outdated and not _is_lock_outdated(unpacked)
            return replace(result, is_lock_new=is_lock_new, seconds=monotonic() - start)
        except KernelFailedError as error:  # noqa: PERF203  a build takes minutes
            failed = error
            options = _select_next_build(failed, state, current.reporter)
        except (MachineError, NoBuildError):
            if failed:
                raise failed from None
            raise


def dry_run(project: Project, options: InstallOptions) -> PlannedInstallation:
    """Return the changes that an installation would make, without making them.

    Args:
        project: The project.
        options: The options of the installation.

    Raises:
        GpuInstallError: The installation would fail before the download.
    """
    from gpuinstall.install.selection import select_lock

    venv = project.paths.venv
    check_finished(environment_folder(options.python) if options.python else venv)
    state = read_state(project, options)
    report_changed_packages(state.existing, project.reporter)
    planned = plan_installation(*select_lock(state, project), project)
    _report_kept(planned, project.reporter)
    return planned


def _select(
    state: InstallState, project: Project
) -> tuple[InstallState, CompatibleLock]:
    """Select a lock file, again if a GPU kernel shows a driver problem."""
    if state.fit and state.is_installed:
        return state, state.fit
    from gpuinstall.install.selection import select_lock

    selected, fit = select_lock(state, project)
    existing = state.existing
    if not existing.is_verified:
        return selected, fit
    # A torch that the change keeps is already verified.
    if "torch" in package_change(existing, fit, state.options).comes:
        checked = run_state_preflight(state, project)
        if checked.lock_request.machine != state.lock_request.machine:
            return select_lock(checked, project)
    return selected, fit


def _announce(planned: PlannedInstallation, reporter: Reporter) -> None:
    """Report the package changes and their sizes before the download.

    Raises:
        InstallationError: A file system has too little space.
    """
    for label, text in planned.lines():
        reporter.step(label, text)
    planned.sizes.check(reporter)
    _report_kept(planned, reporter)
    place = planned.existing.paths
    reason = None if place.is_managed else find_guard_obstacle(place)
    if reason:
        reporter.warn(f"plain pip may replace torch in {place.venv}: {reason}")


def _report_kept(planned: PlannedInstallation, reporter: Reporter) -> None:
    """Report unlocked packages that are kept, and unmet requirements."""
    existing = planned.existing
    kept: Collection[InstalledPackage] = existing.packages
    if existing.paths.is_managed:
        names = existing.added - planned.fit.lock.names - planned.change.goes
        # A rebuild reports these packages with the changes.
        is_changed = planned.action is Action.BUILD and not planned.change.is_rebuild
        if not (names and is_changed):
            return
        versions = [
            f"{name} {existing.versions[name]}".strip() for name in sorted(names)
        ]
        reporter.step("Kept", f"{join_names(versions)} (not in the lock file)")
        kept = existing.find_packages(names)
    changes = {change.package: change.new for change in planned.changes}
    unchanged = [package for package in kept if package.name not in changes]
    coming = {name: version for name, version in changes.items() if version}
    markers = existing.create_markers(planned.state.lock_request.machine)
    unmet = find_unmet_requirements(unchanged, coming, markers)
    for package, requirement, version in unmet:
        if normalize_name(requirement.name) not in changes:
            continue
        name = f"{package.name} {package.version}"
        if version is None:
            text = f"{name} requires {requirement.name}, which would be removed"
        else:
            required = f"{requirement.name}{requirement.specifier}"
            text = f"{name} requires {required}, but would get {version}"
        reporter.warn(text)


def _fetch(planned: PlannedInstallation, project: Project) -> UnpackedPackages:
    """Check that the environment is writable, and unpack the new packages.

    Paths of replaced files are checked before the download. The files of new wheels are
    known only after the download.

    Raises:
        UsageError: The environment or one of its files cannot be replaced.
        InstallationError: A package cannot be installed.
    """
    if planned.action is not Action.BUILD:
        return UnpackedPackages(planned)
    from gpuinstall.install.file_change import check_paths, find_recorded_files
    from gpuinstall.install.unpack import unpack_packages  # slow to import

    place = planned.existing.paths
    if planned.change.is_rebuild:
        from gpuinstall.environments.discarding import check_mounts

        place.check_working_folder(project.settings.command_folder, "replaced")
        check_mounts(place.venv)
        check_previous(place, discards=planned.state.options.discard_previous)
    else:
        replaced = planned.existing.find_packages(planned.change.comes)
        written = find_recorded_files(replaced, place.root)
        present = find_recorded_files(planned.old_packages, place.root)
        check_paths(place, written, present, present)
    return unpack_packages(planned, project)


def _verify_before_change(
    unpacked: UnpackedPackages, reporter: Reporter
) -> UnpackedPackages:
    """Verify a new torch with GPU kernels before the environment changes.

    Raises:
        KernelFailedError: A kernel failed.
    """
    planned = unpacked.planned
    change = planned.change
    if change.is_rebuild or "torch" not in change.comes or not unpacked.python:
        return unpacked
    from gpuinstall.verify.files import find_program_packages  # slow to import

    place = planned.existing.paths
    programs = find_program_packages(place.find_packages_folders()).values()
    # Python would still find a removed package. In this case, the kernels run after the change.
    if any(program.name in change.goes for program in programs):
        return unpacked
    verdict = run_kernels(
        planned.fit, place, planned.state, reporter, python=unpacked.python
    )
    return replace(unpacked, verdict=verdict)


def _is_lock_outdated(unpacked: UnpackedPackages) -> bool:
    """Return whether the folder's lock file is missing or must be changed."""
    place, lock = unpacked.planned.existing.paths, unpacked.planned.fit.lock
    file = real_path(place.folder / lock.name)
    return place.is_managed and not has_text(file, lock.text)


@contextmanager
def _apply_change(
    unpacked: UnpackedPackages, project: Project
) -> Iterator[EnvironmentPaths]:
    """Install the new files for a block, and roll back if the block fails.

    Yields:
        The environment to verify.
    """
    planned, reporter = unpacked.planned, project.reporter
    existing = planned.existing
    place = existing.paths
    texts = {file.path.name: file.text for file in project.contents.locks.files}
    lock = planned.fit.lock
    locks = {lock.name: (texts.get(lock.name, ""), lock.text)}
    if not place.is_managed:
        locks = {}
    if planned.action is not Action.BUILD:
        yield place
        if _is_lock_outdated(unpacked):
            from gpuinstall.install.transaction import publish_locks

            publish_locks(place, locks, reporter)
        return
    from gpuinstall.install.transaction import apply_change, replace_environment

    if planned.change.is_rebuild:
        from concurrent.futures import ThreadPoolExecutor

        # The disk writes some gigabytes while the kernels run.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(sync_file_system, place.staging)
            yield EnvironmentPaths(place.staging)
        check_previous(place, discards=planned.state.options.discard_previous)
        replace_environment(place, place.staging, locks, reporter)
    else:
        with apply_change(_plan_file_change(unpacked, locks), reporter):
            yield place


def _plan_file_change(
    unpacked: UnpackedPackages, locks: Mapping[str, tuple[str, ...]]
) -> Change:
    """Determine which files of the environment the installation changes."""
    from gpuinstall.install.file_change import find_staged_files, plan_change

    planned = unpacked.planned
    existing = planned.existing
    place = existing.paths
    folder = place.staging
    guards = [name for name in find_guard_paths(folder) if exists(folder / name)]
    # A rewritten startup file would invalidate the verification of torch.
    changed_guards = [
        name
        for name in guards
        if not has_text(place.venv / name, (folder / name).read_text("utf-8"))
    ]
    own = {
        place.path_below_root(name): folder / name
        for name in (planned.fit.lock.name, *changed_guards)
        if exists(folder / name)
    }
    replaced = {existing.lock.name} if existing.lock else set()
    # Another tool may have changed a package during the download.
    present = read_packages(place.find_packages_folders())
    changed = planned.change.comes | planned.change.goes
    return plan_change(
        place,
        added={**find_staged_files(unpacked.packages, folder, place), **own},
        after=package_versions(unpacked.packages),
        old_packages=[package for package in present if package.name in changed],
        own=replaced.union(own),
        locks=locks,
    )


def _verify(
    unpacked: UnpackedPackages,
    place: EnvironmentPaths,
    reporter: Reporter,
) -> VerificationResult:
    """Verify an environment. If it is managed, record the result in it.

    The marker and the stamp are invalid until the change is committed.

    Args:
        unpacked: The new packages.
        place: The environment, or the staged environment during a rebuild.
        reporter: Reports the outcomes.
    """
    planned = unpacked.planned
    fit, paths = planned.fit, planned.existing.paths
    machine = planned.state.here or planned.state.lock_request.machine
    previous = read_marker(place.venv)
    final = paths.venv
    is_created = planned.change.is_rebuild or was_created_here(final)
    if previous and planned.action is not Action.BUILD:
        record_environment(final, previous.id, is_created=is_created)
    if planned.action is Action.NOTHING:
        return VerificationResult()
    packages = read_packages(place.find_packages_folders())
    proof = _run_checks(unpacked, place, packages, reporter)
    if not place.is_managed:
        return proof
    from gpuinstall.environments.rights import is_read_only

    if previous and planned.action is Action.VERIFY and is_read_only(place):
        if planned.state.here and proof.stamp:
            store_stamp(proof.stamp, final, previous.id, machine)
        return proof
    lock = fit.lock
    versions = package_versions(packages, {"pip"})
    marker = Marker(
        id=os.urandom(16).hex(),
        lock=lock.name,
        lock_sha256=lock.sha256,
        python=fit.choice.python,
        torch=lock.versions["torch"],
        backend=fit.choice.build.backend.tag,
        machine=fingerprint(machine),
        verdict=proof.verdict,
        packages={
            name: versions[name] for name in sorted(versions.keys() & lock.names)
        },
        is_for_cpu=lock.record.asked == "cpu",
        records=stamp_records(
            (package for package in packages if package.name in lock.names),
            previous.records if previous else {},
        ),
        has_pip="pip" in versions,
        project=format_project(paths),
        scripts=previous.scripts if previous else compute_script_digests(place.venv),
    )
    record_environment(final, marker.id, is_created=is_created)
    is_committed = planned.action is Action.BUILD
    marker.write(place.venv, paths.work, is_cached=is_committed)
    if proof.stamp:
        store_stamp(proof.stamp, place.venv, marker.id, machine)
    return proof


def _run_checks(
    unpacked: UnpackedPackages,
    place: EnvironmentPaths,
    packages: Iterable[InstalledPackage],
    reporter: Reporter,
) -> VerificationResult:
    """Check the libraries of new packages, and run kernels if necessary.

    Args:
        unpacked: The new packages.
        place: The environment to verify.
        packages: All packages of the environment.
        reporter: Reports the outcomes.

    Raises:
        InstallationError: A library cannot be loaded, or a kernel failed.
    """
    from concurrent.futures import ThreadPoolExecutor

    planned = unpacked.planned
    fit = planned.fit
    new = {package.name for package in unpacked.packages}
    # Only packages with native code have library dependencies.
    is_native = any(one.find_native_files() for one in packages if one.name in new)
    with ThreadPoolExecutor(1) as pool:
        checked: Future[None] | None = None
        if place.is_managed and is_native:
            folder = packages_folders(place.venv)[0]
            # The kernels run in other processes.
            checked = pool.submit(check_links, fit, folder, reporter)
        try:
            proof = update_verification(
                fit,
                place,
                planned.state,
                reporter,
                earlier=planned.existing.stamp,
                ahead=unpacked.verdict,
            )
        except KernelFailedError as error:
            if error.id == "F167" and planned.existing.is_empty:
                # doctor needs an environment.
                error.why = f"{error.why}; the new environment was removed"
                note = "then run it again"
                error.fixes = (Advice("uv", ("cache", "clean", "torch"), note=note),)
            comes = planned.change.comes
            if "torch" in comes or not planned.existing.is_verified:
                raise
            raise KernelFailedError(fit, error.verdict, sorted(comes)) from None
        finally:
            if checked:
                checked.result()
    return proof


def _create_result(
    unpacked: UnpackedPackages, proof: VerificationResult, project: Project
) -> InstallResult:
    """Create the installation result, and update an application's settings."""
    planned = unpacked.planned
    existing = planned.existing
    place = existing.paths
    is_built = planned.action is Action.BUILD
    guard = uv_guard = None
    if not place.is_managed:
        uv_guard = update_uv_guard(place.venv)
        if find_guard_obstacle(place) is None:
            guard = place.venv / CONSTRAINTS
    return InstallResult(
        paths=place,
        python=place.find_interpreter(),
        fit=planned.fit,
        action=planned.action,
        changes=planned.changes if is_built else (),
        bytes=project.open_session().client.received if is_built else 0,
        rollback=place.last_change
        if is_built and is_journal(place.last_change)
        else None,
        verdict=proof.verdict or existing.verdict,
        is_verification_kept=proof.is_kept,
        misfits=planned.state.misfits,
        guard=guard,
        uv_guard=uv_guard,
    )


def _select_next_build(
    failed: KernelFailedError, state: InstallState, reporter: Reporter
) -> InstallOptions:
    """Return options that exclude all builds with the cause of a failure.

    Args:
        failed: The failed kernel with its build.
        state: The state before the installation.
        reporter: Reports the attempt.

    Raises:
        KernelFailedError: No such build exists, or ``GPUINSTALL_FALLBACK`` is 0.
    """
    options = state.options
    if options.attempts <= 1 or os.environ.get(FALLBACK) == "0":
        raise failed
    catalog = exclude_failing_builds(
        state.lock_request.catalog, failed.fit.choice.build, failed.verdict
    )
    if catalog is None:
        raise failed
    reporter.warn(f"{failed.message}; trying the next build")
    return replace(
        options, upgrade=True, attempts=options.attempts - 1, catalog=catalog
    )
