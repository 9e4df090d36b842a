"""Values for the environment, lock files, and request before installing."""

from __future__ import annotations

import os
from collections import Counter
from enum import Enum
from functools import cached_property
from os.path import exists, isdir
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.base.advice import Advice, Hint, make_change, make_command
from gpuinstall.base.environment_paths import (
    EnvironmentPaths,
    unused_venv_option,
    venv_option,
)
from gpuinstall.base.errors import (
    GpuInstallError,
    LockError,
    MachineError,
    NoBuildError,
    UsageError,
)
from gpuinstall.base.files import own_cache_folder
from gpuinstall.base.finding import Rejection
from gpuinstall.base.machine import Driver, Machine
from gpuinstall.base.removal import (
    is_folder,
    tree_size,
)
from gpuinstall.base.requirement import marker_environment, normalize_name
from gpuinstall.base.text import format_size, join_names
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import version_key
from gpuinstall.catalog.loader import load_catalog
from gpuinstall.environments.environment import (
    Marker,
    describe_changed_packages,
    fingerprint,
    is_vacant,
    package_versions,
    read_marker,
    read_python_version,
    stamp_records,
)
from gpuinstall.environments.packages import InstalledPackage, file_size, read_packages
from gpuinstall.environments.records import make_undo_command
from gpuinstall.environments.stamp import (
    STAMP_NAME,
    Stamp,
    read_boot_id,
    read_file_stamp,
    read_stamp,
)
from gpuinstall.lock.file.fit import (
    CompatibleLock,
    LockVerdict,
    check_lock,
    find_best_lock,
    find_locked_build,
    list_rejected_locks,
    reject_idle_builds,
)
from gpuinstall.lock.file.lock import find_misplaced_projects
from gpuinstall.lock.file.target import Target
from gpuinstall.lock.request.declaration import find_build_files
from gpuinstall.lock.request.history import read_environment_lock, was_installed
from gpuinstall.plan import Rejected
from gpuinstall.sources.gate import list_source_fixes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from gpuinstall.catalog import Catalog
    from gpuinstall.lock.file.entries import LockGate
    from gpuinstall.lock.file.lock import Lock
    from gpuinstall.lock.request.lock_request import LockRequest
    from gpuinstall.lock.uv.resolution import Resolution

PREVIOUS_EXISTS = "previous-exists"
"""The error code for refusing to remove a previous environment."""

ATTEMPTS = 3
"""The number of builds to try if kernels fail. A build can be 3 GB."""


class Action(Enum):
    """What an installation must do. The values are part of JSON documents."""

    NOTHING = "none"
    """The environment satisfies the request and is verified if possible."""
    VERIFY = "proven"
    """The packages satisfy the request, but GPU kernels must verify them."""
    BUILD = "built"
    """Packages must be added, removed, or changed."""


class InstallOptions(Value):
    """The options of an installation."""

    python: Path | None = None
    """The interpreter of an unmanaged environment to change (``--into``)."""
    locked: bool = False
    """Whether to install an existing lock file, as ``sync`` does."""
    target: str | None = None
    """The target of the lock file, such as ``cu126``."""
    any_environment: bool = False
    """Whether each target may have its own environment (``run --any``)."""
    replace: bool = False
    """Whether an unmanaged environment or a folder may be replaced."""
    discard_previous: bool = False
    """Whether a rebuild may remove the previous environment."""
    upgrade: bool = False
    """Whether to upgrade all packages."""
    reinstall: bool = False
    """Whether to reinstall all packages."""
    reinstalled: tuple[str, ...] = ()
    """The packages to reinstall."""
    moving: tuple[str, ...] = ()
    """The packages to upgrade."""
    attempts: int = ATTEMPTS
    """The maximum number of builds to try if kernels fail."""
    catalog: Catalog | None = None
    """The torch builds to select from. None: the project's catalog."""

    def select_reinstalled(self, names: Collection[str]) -> frozenset[str]:
        """Return the locked packages that must be reinstalled."""
        if self.reinstall:
            return frozenset(names)
        return frozenset(map(normalize_name, self.reinstalled)).intersection(names)


class ExistingEnvironment(Value):
    """The environment before an installation."""

    paths: EnvironmentPaths
    is_empty: bool = True
    """Whether the environment is missing or an empty folder."""
    marker: Marker | None = None
    """The marker file's content. None: the environment is unmanaged."""
    lock: Lock | None = None
    """The environment's copy of the lock file, if the copy is unchanged."""
    versions: Mapping[str, str] = {}
    """The versions of packages that the interpreter finds, by name."""
    packages: tuple[InstalledPackage, ...] = ()
    """The packages in the ``site-packages`` folders."""
    python_version: str = ""
    """The version of the interpreter, ``X.Y.Z`` if known."""
    has_python: bool = False
    """Whether the environment has the requested Python."""
    locks: tuple[Lock, ...] = ()
    """The lock files in the project folder."""
    stamp: Stamp | None = None
    """The last verification on this machine, if it is still valid."""
    faults: Mapping[str, str] = {}
    """Messages about locked packages that another tool reinstalled, by name.

    Packages that are installed twice or lack RECORD are included.
    """
    lacks_pip: bool = False
    """Whether another tool removed pip."""
    misplaced_projects: frozenset[str] = frozenset()
    """Local projects that are missing or were installed differently."""
    changed_projects: frozenset[str] = frozenset()
    """The local projects that are misplaced or have new build files."""

    def find_packages(self, names: Collection[str]) -> list[InstalledPackage]:
        """Return the installed packages with these names."""
        return [package for package in self.packages if package.name in names]

    def create_markers(self, machine: Machine) -> dict[str, str]:
        """Return the marker values of the environment on its machine."""
        return marker_environment(machine.os, machine.arch, self.python_version)

    @property
    def is_verified(self) -> bool:
        """Whether the current files passed verification on every device."""
        return self.stamp is not None and self.stamp.is_passed

    @property
    def verdict(self) -> dict[str, Any]:
        """The Verdict document of the last verification, or an empty dict."""
        if self.stamp:
            return self.stamp.verdict
        return self.marker.verdict if self.marker else {}

    @cached_property
    def intact_lock(self) -> Lock | None:
        """The environment's lock file, if no locked package was changed.

        Packages that are not locked belong to the user.
        """
        return self.lock if self.has_python and not self.changed_packages else None

    @property
    def locked_versions(self) -> Mapping[str, str]:
        """The locked versions by package name. Empty without a lock file."""
        return self.marker.packages if self.marker and self.lock else {}

    def find_changed_build(self) -> str:
        """Return a message if torch or a package of its build was changed."""
        if self.lock is None:
            return ""
        is_tied = load_catalog().is_tied
        texts = self.changed_packages.items()
        return next((text for name, text in texts if is_tied(name)), "")

    def check_unchanged(self) -> None:
        """Check that torch and the packages of the same build are unchanged.

        Raises:
            LockError: A package changed.
        """
        venv, changed = self.paths.venv, self.find_changed_build()
        if self.marker and self.lock is None:
            changed = f"{self.marker.lock} in {venv} is missing or differs from the installed lock file"
        if changed:
            raise LockError(
                "environment-changed",
                changed,
                why="the environment was never verified on this machine in its current state",
                hint=make_command(
                    "sync", *venv_option(venv), note="restores the verified packages"
                ),
            )

    def check_ownership(self) -> None:
        """Check that the environment is managed or does not exist.

        Raises:
            UsageError: The environment is unmanaged.
        """
        if self.is_empty or self.marker:
            return
        from gpuinstall.environments.ownership import find_user_paths, is_environment

        venv = self.paths.venv
        files = find_user_paths(venv)
        why = (
            f"it contains files that no installer wrote: {join_names(files)}"
            if files
            else None
        )
        kind = "a folder that gpuinstall did not create"
        other = make_change(*unused_venv_option(venv.parent), note="another folder")
        hint: tuple[Hint, ...] = (other,)
        if is_environment(venv):
            kind = "an environment that gpuinstall did not create"
            note = f"the old one is kept for {make_undo_command(self.paths)}"
            hint = (other, make_change("--replace", note=note))
            if exists(self.paths.find_interpreter()):
                note = "installs torch into it, and keeps its other packages"
                hint = (make_change("--into", note=note), *hint)
        raise UsageError("not-ours", f"{venv} is {kind}", why=why, hint=hint)

    @property
    def added(self) -> set[str]:
        """The installed packages that are in no lock file."""
        return self.versions.keys() - self.locked_versions.keys()

    @cached_property
    def changed_packages(self) -> dict[str, str]:
        """Messages about changed locked packages, by name."""
        versions = describe_changed_packages(self.versions, self.locked_versions)
        return {**self.faults, **versions}


def inspect_environment(
    paths: EnvironmentPaths,
    here: Machine | None = None,
) -> ExistingEnvironment:
    """Read an environment and its last verification from files.

    The environment's Python is not started.

    Args:
        paths: The environment.
        here: The machine of the verification; None: ignore the verification.
    """
    venv = paths.venv
    marker = read_marker(venv)
    if marker is None:
        return ExistingEnvironment(paths, is_empty=is_vacant(venv))
    packages = read_packages(paths.find_packages_folders())
    lock = read_environment_lock(venv)
    misplaced = find_misplaced_projects(lock, paths.folder, packages) if lock else set()
    changed = misplaced | _find_outdated_projects(paths, lock) if lock else set()
    return ExistingEnvironment(
        paths,
        is_empty=False,
        marker=marker,
        lock=lock,
        faults=_find_faults(packages, marker, lock.addresses if lock else ()),
        lacks_pip=marker.has_pip and all(one.name != "pip" for one in packages),
        misplaced_projects=frozenset(misplaced),
        changed_projects=frozenset(changed),
        versions=package_versions(packages, marker.packages),
        packages=packages,
        python_version=read_python_version(venv),
        # Without pyvenv.cfg, the interpreter does not find the packages.
        has_python=exists(paths.find_interpreter())
        and file_size(venv / "pyvenv.cfg") > 0,
        stamp=read_valid_stamp(venv, marker, here),
    )


def _find_outdated_projects(paths: EnvironmentPaths, lock: Lock) -> set[str]:
    """Return projects whose build files are newer than their installation."""
    # Each change writes the lock file last.
    _, built_ns, _ = read_file_stamp(str(paths.venv / lock.name))
    newer = set()
    for name, (folder, _) in lock.find_projects(paths.folder).items():
        files = [folder / file for file in find_build_files(folder)]
        if any(read_file_stamp(str(file))[1] > built_ns for file in files):
            newer.add(name)
    return newer


def _find_faults(
    packages: Iterable[InstalledPackage], marker: Marker, addresses: Collection[str]
) -> dict[str, str]:
    """Return messages about locked packages that another tool reinstalled.

    Args:
        packages: The installed packages.
        marker: The marker, which has the RECORDs of the last change.
        addresses: Packages from a folder or a repository, whose builds differ.
    """
    locked = [package for package in packages if package.name in marker.packages]
    copies = Counter(package.name for package in locked)
    records = stamp_records(locked, marker.records)
    faults = {}
    for package in locked:
        name = package.name
        digest = marker.records.get(name, "").rpartition(" ")[2]
        if copies[name] > 1:
            faults[name] = f"{name} is installed twice"
        elif name not in records:
            faults[name] = f"{name} {package.version} has no RECORD"
        elif digest and name not in addresses and not records[name].endswith(digest):
            faults[name] = f"{name} {package.version} was reinstalled by another tool"
    return faults


def is_created_from(paths: EnvironmentPaths, base: Path) -> bool:
    """Return whether an interpreter is the base of an environment."""
    # On Windows, the environment contains a copy of the interpreter.
    return os.name == "nt" or paths.find_interpreter().samefile(base)


def read_valid_stamp(
    venv: Path,
    marker: Marker,
    machine: Machine | None,
) -> Stamp | None:
    """Return an environment's last verification on a machine, if still valid.

    Args:
        venv: The environment.
        marker: The marker of the environment.
        machine: The machine, or None if kernels cannot run on it.
    """
    if machine is None:
        return None
    file = stamp_file(marker.id, machine)
    stamp = read_stamp(file)
    if stamp is None:
        # Another container of this host may have run the kernels.
        stamp = read_stamp(venv / STAMP_NAME)
        if stamp and (stamp.key, stamp.boot) != (file.name, read_boot_id()):
            return None
    if stamp and stamp.driver == machine.driver and stamp.is_current(str(venv)):
        return stamp
    return None


def store_stamp(stamp: Stamp, venv: Path, identity: str, machine: Machine) -> None:
    """Store a verification in the cache and in the environment, if possible.

    Args:
        stamp: The verification.
        venv: The environment.
        identity: The ID of the environment's marker.
        machine: The machine.
    """
    file = stamp_file(identity, machine)
    stamp.write(file)
    replace(stamp, key=file.name, boot=read_boot_id()).write(venv / STAMP_NAME)


def record_failure(venv: Path, machine: Machine, verdict: dict[str, Any]) -> None:
    """Record that an environment failed verification on this machine."""
    marker = read_marker(venv)
    # A copy of an environment has the same ID.
    stamp = read_valid_stamp(venv, marker, machine) if marker else None
    if marker and stamp:
        store_stamp(replace(stamp, verdict=verdict), venv, marker.id, machine)


def stamp_file(identity: str, machine: Machine) -> Path:
    """Return the file that stores an environment's verification on a machine.

    The path does not depend on the driver's version.

    Args:
        identity: The ID of the environment's marker.
        machine: The machine.
    """
    name = f"{identity}-{fingerprint(replace(machine, driver=None))[:16]}.json"
    return own_cache_folder() / "stamps" / name


def check_libcuda(venv: Path, machine: Machine) -> None:
    """Check that the libcuda library of the last verification still loads.

    If the driver now supports the same CUDA version, this library is not needed.

    Raises:
        MachineError: The library does not load.
    """
    marker = read_marker(venv)
    stamp = read_stamp(stamp_file(marker.id, machine)) if marker else None
    verified = stamp.driver if stamp else None
    if verified is None or verified.libcuda is None or verified.cuda is None:
        return
    now = machine.driver or Driver()
    if now.libcuda == verified.libcuda or (now.cuda and now.cuda >= verified.cuda):
        return
    folder = Path(verified.libcuda).parent
    raise MachineError(
        "libcuda-not-loaded",
        f"{verified.libcuda} no longer loads",
        why=f"{venv} was verified with it, for CUDA {verified.cuda}; the driver's own libcuda supports CUDA {now.cuda}",
        hint=(
            Advice("export", (f"LD_LIBRARY_PATH={folder}",)),
            make_command(
                "install",
                *venv_option(venv),
                note="selects a build for the driver's own libcuda",
            ),
        ),
    )


def check_folder(venv: Path) -> None:
    """Check that an environment's path is not a file.

    Raises:
        UsageError: The path is a file.
    """
    if exists(venv) and not isdir(venv):
        raise UsageError(
            "not-a-folder",
            f"{venv} is a file",
            hint=make_change(*unused_venv_option(venv.parent)),
        )


def check_previous(paths: EnvironmentPaths, *, discards: bool) -> None:
    """Check that a replaced environment can be kept for rollback.

    Args:
        paths: The environment.
        discards: Whether the previous environment may be removed.

    Raises:
        UsageError: A previous environment exists already, or another file is at its path.
    """
    previous = paths.previous
    if not (exists(paths.venv) and os.path.lexists(previous)):
        return
    from gpuinstall.environments.ownership import is_environment
    from gpuinstall.install.file_change import create_path_error

    if not (is_folder(previous) and is_environment(previous)):
        raise create_path_error(
            {
                previous: f"{previous} is not an environment, and the previous environment would be kept there"
            }
        )
    if not discards:
        raise UsageError(
            PREVIOUS_EXISTS,
            f"{previous}, {format_size(tree_size(previous))}, is an older environment and would be removed",
            hint=make_change("--discard-previous"),
        )


class PackageChange(Value):
    """The packages that a change installs and removes."""

    comes: frozenset[str]
    """The locked packages that are missing or differ from the lock file."""
    goes: frozenset[str] = frozenset()
    """The packages that are only in the previous lock file."""
    is_rebuild: bool = False
    """Whether a new environment is built."""


def package_change(
    existing: ExistingEnvironment,
    fit: CompatibleLock,
    options: InstallOptions,
) -> PackageChange:
    """Return the packages to install and remove to match a lock file.

    Args:
        existing: The environment.
        fit: The lock file and its plan.
        options: The packages to reinstall.
    """
    marker, new = existing.marker, fit.lock
    reinstalled = options.select_reinstalled(new.names)
    if not existing.paths.is_managed:
        there = existing.versions.items()
        return PackageChange(
            reinstalled | dict(new.all_versions.items() - there).keys()
        )
    anew = PackageChange(new.names, is_rebuild=True)
    if not marker or not existing.has_python or marker.python != fit.choice.python:
        return anew
    unchanged = set(_unchanged_packages(existing, new)) - reinstalled
    unchanged -= existing.faults.keys()
    own = set(marker.packages)
    if existing.lock and any(map(load_catalog().is_tied, existing.changed_packages)):
        # Packages of two builds can share folders, such as nvidia-cudnn-cu13 and nvidia-cudnn-cu12.
        tied = set(filter(load_catalog().is_tied, {*new.names, *existing.versions}))
        unchanged -= tied
        own |= tied
    comes = new.names - unchanged
    if "torch" in comes:
        # Packages from a URL or a folder may be compiled for the previous torch.
        comes |= new.addresses.keys()
    # pip is installed but is in no lock file.
    goes = (own & existing.versions.keys()) - new.names - {"pip"}
    return PackageChange(comes, frozenset(goes))


def _unchanged_packages(existing: ExistingEnvironment, new: Lock) -> Iterator[str]:
    """Yield the packages whose installed version and build are locked."""
    lock = existing.lock
    if lock is None:
        # An interrupted change whose journal is damaged replaced the lock file.
        return
    if lock.record.build_files_digest == new.record.build_files_digest:
        for name, address in new.addresses.items() & lock.addresses.items():
            # uv would rebuild the same editable project.
            if address.startswith("-e ") and name not in existing.changed_projects:
                yield name
    for name, version in existing.versions.items():
        if version != new.all_versions.get(name):
            continue
        if name in existing.locked_versions:
            # Packages from a folder or a repository have no hash and may have changed.
            if lock.find_hashes(name) & new.find_hashes(name):
                yield name
        elif new.find_hashes(name) and not load_catalog().is_tied(name):
            # Another tool installed the package, so packages of torch's build are reinstalled.
            yield name


class InstallState(Value):
    """The environment, lock files, and request before an installation."""

    existing: ExistingEnvironment
    lock_request: LockRequest
    here: Machine | None
    """This machine, or None if kernels cannot run on it."""
    options: InstallOptions
    gate: LockGate | None = None
    """The rules that decide which sources the folder's lock files may use."""
    names_folder: bool = False
    """Whether the user requests a folder, which is always reinstalled."""
    targets: tuple[str, ...] = ()
    """The targets to lock, as in names of lock files. Empty: all targets."""
    judged: tuple[CompatibleLock | Rejection[Lock], ...] = ()
    """The compatible and the rejected lock files."""
    resolution: Resolution | None = None
    """The resolution of a new lock file."""

    @property
    def is_installed(self) -> bool:
        """Whether the lock file already exists and is installed."""
        return self.resolution is None and self.action is not Action.BUILD

    @property
    def action(self) -> Action:
        """The action to take if no resolution is necessary."""
        return self.find_action(self.fit)

    def find_action(self, fit: CompatibleLock | None) -> Action:
        """Return the action for a lock file. None: a new lock file."""
        intact = self.existing.intact_lock
        if fit is None or intact is None or intact.sha256 != fit.lock.sha256:
            return Action.BUILD
        existing = self.existing
        if self.names_folder or existing.changed_projects or existing.lacks_pip:
            return Action.BUILD
        if self.options.select_reinstalled(fit.lock.names):
            return Action.BUILD
        # Kernels can run only on a machine with the GPUs.
        stamp = self.existing.stamp
        if self.here is None or (stamp and stamp.covers(fit.gpus)):
            return Action.NOTHING
        return Action.VERIFY

    @cached_property
    def fit(self) -> CompatibleLock | None:
        """The compatible lock file to install. None: resolve a new one."""
        return find_best_lock(self.judged, self.lock_request)

    def find_pinned_lock(self) -> Lock | None:
        """Return the lock that pins versions when other packages change."""
        own, locks = self.existing.lock, self.existing.locks
        if own:
            return next((lock for lock in locks if lock.name == own.name), own)
        # A new package is in none of them.
        request = self.lock_request.with_request_changes(requirements=())
        judged = _judge_locks(locks, replace(self, lock_request=request), exact=False)
        fit = find_best_lock(judged, request)
        return fit.lock if fit else next(iter(locks), None)

    @property
    def misfits(self) -> tuple[Rejection[Lock], ...]:
        """The lock files that are incompatible or have another request."""
        return tuple(misfit for misfit in self.judged if isinstance(misfit, Rejection))

    @property
    def source_fixes(self) -> tuple[Hint, ...]:
        """The fixes for rejected package sources in the lock files."""
        codes = {misfit.reason.code for misfit in self.misfits}
        return list_source_fixes(codes, self.gate.wheels if self.gate else None)

    def check_lockable(self) -> None:
        """Check that the options and the machine allow a new lock file.

        A missing build in the catalog is no error, because an index may have it.

        Raises:
            MachineError: The machine must be repaired first.
            LockError: Only existing lock files or targets are allowed, and none is compatible.
        """
        plan, options = self.lock_request.outcome, self.options
        error = None
        if isinstance(plan, Rejected):
            error = plan.error(self.lock_request.machine)
        is_missing = options.locked and not self.misfits
        if error and not (is_missing or isinstance(error, NoBuildError)):
            raise error
        if error and self.targets and not options.locked:
            plan = self._any_backend.outcome
            if isinstance(plan, Rejected):
                raise plan.error(self.lock_request.machine)
        if options.locked or (error and self.targets):
            raise self._create_lock_error()

    def find_refusal(self, machine: Machine) -> GpuInstallError | None:
        """Return the error of an installation with the catalog, if any."""
        request = replace(self.lock_request, machine=machine)
        state = check_lock_files(replace(self, lock_request=request))
        if state.fit:
            return None
        try:
            state.check_lockable()
        except GpuInstallError as error:
            return error
        plan = request.outcome
        return plan.error(machine) if isinstance(plan, Rejected) else None

    def _create_lock_error(self) -> LockError:
        """Return the error for missing or incompatible lock files."""
        if not self.misfits:
            target = self.options.target
            name = f"pylock.{target}.toml" if target else "lock file"
            message = f"there is no {name} in {self.existing.paths.folder}"
            option = ("--target", target) if target else ()
            lock = make_command("lock", *option)
            return LockError("lock-missing", message, hint=lock)
        hints = dict.fromkeys((*self._driver_hints(), self._make_target_command()))
        return LockError(
            "lock-does-not-fit",
            "no lock file in this folder fits this machine",
            evidence=format_misfits(self.misfits),
            hint=tuple(self.source_fixes or hints),
            data={"chosen": None, "rejected": list_rejected_locks(self.misfits)},
        )

    @property
    def _any_backend(self) -> LockRequest:
        """The request without a backend, and without the targets of locks."""
        return self.lock_request.with_request_changes(
            backend=None, allowed_backends=None
        )

    def _make_target_command(self) -> Advice:
        """Return the command that adds this machine to the lock files."""
        plan, machine = self._any_backend.outcome, self._any_backend.machine
        locks = [one.candidate for one in self.misfits]
        own = [one.target for one in locks if one.is_from_gpuinstall]
        if isinstance(plan, Rejected):
            return make_command("lock")
        build = plan.choice.build
        target = str(Target(build.backend.tag, machine.os, machine.arch))
        if target in own:
            return make_command("lock", note="writes one that does")
        words = ["lock"]
        for one in dict.fromkeys((*(self.targets or own), target)):
            words += ["--target", one]
        locked = {one.candidate.record.torch for one in self.misfits}
        newer = [
            torch
            for torch in locked
            if version_key(torch) > version_key(str(build.torch))
        ]
        note = f"changes torch {newer[0]} to {build.torch}" if newer else ""
        return make_command(*words, note=note)

    def _driver_hints(self) -> Iterator[Hint]:
        """Yield hints to update the driver for rejected lock files."""
        from gpuinstall.machine.vendors import create_rules

        machine, catalog = self.lock_request.machine, self.lock_request.catalog
        for misfit in self.misfits:
            lock, code = misfit.candidate, misfit.reason.code
            build = find_locked_build(lock, machine, catalog)
            if build:
                rules = create_rules(machine, catalog, {build.backend.kind})
                for fix in rules.find_driver_fix(build, code, machine.gpus)[:1]:
                    yield f"{fix} (for {lock.name})"


def check_lock_files(state: InstallState) -> InstallState:
    """Determine which lock files of the folder are compatible.

    The environment's own copy replaces a missing lock file. A lock file for a different
    request is compatible only with ``locked``.
    """
    options, own = state.options, state.existing.intact_lock
    if options.upgrade or options.moving:
        return replace(state, judged=())
    locks = [
        lock for lock in state.existing.locks if options.target in {lock.target, None}
    ]
    if own and not options.locked and own.name not in {lock.name for lock in locks}:
        locks.append(own)
    judged = _judge_locks(locks, state, exact=not options.locked)
    return replace(state, judged=reject_idle_builds(judged, state.lock_request.machine))


def _judge_locks(
    locks: Iterable[Lock], state: InstallState, *, exact: bool
) -> list[LockVerdict]:
    """Check lock files against the machine and, if exact, the request."""
    return [
        check_lock(lock, state.lock_request, gate=_find_gate(lock, state), exact=exact)
        for lock in locks
    ]


def _find_gate(lock: Lock, state: InstallState) -> LockGate | None:
    """Return the gate for a lock file, or None if it is already installed."""
    venv = state.existing.paths.venv
    places = [venv] if state.existing.intact_lock else []
    if state.options.any_environment:
        places.append(locate_target_environment(venv, lock))
    # This user trusted the sources of an installed lock file when installing it.
    return None if any(was_installed(lock, place) for place in places) else state.gate


def locate_target_environment(venv: Path, lock: Lock) -> Path:
    """Return the path of an environment for only the target of a lock file."""
    return venv.with_name(f"{venv.name}-{lock.target}")


def format_misfits(misfits: Iterable[Rejection[Lock]]) -> str:
    """Format the reason for each rejected lock file as a line."""
    return "\n".join(f"{one.candidate.name}: {one.reason.message}" for one in misfits)
