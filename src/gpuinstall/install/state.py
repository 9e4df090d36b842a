"""What an installation starts from: what lies where the environment is to go, and what is requested.

The user's own files are not replaced unasked.
"""

from __future__ import annotations

import os
from dataclasses import field, replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.base.environment_paths import (
    EnvironmentPaths,
    interpreter,
    packages_folders,
)
from gpuinstall.base.errors import LockError, NoBuildError, UsageError
from gpuinstall.base.files import own_cache_folder
from gpuinstall.base.finding import Rejection
from gpuinstall.base.shell import joined, quoted
from gpuinstall.base.text import some
from gpuinstall.base.values import dataclass
from gpuinstall.catalog.loader import load_catalog
from gpuinstall.environments.environment import (
    Marker,
    changed_build,
    damaged_torch,
    differing_packages,
    fingerprint,
    installed_packages,
    packages_called,
    read_marker,
)
from gpuinstall.environments.ownership import is_environment, user_paths
from gpuinstall.environments.packages import read_packages, top_packages
from gpuinstall.environments.records import was_made_here
from gpuinstall.environments.stamp import file_stamp, read_stamp
from gpuinstall.lock.request.declaration import PROJECT_FILES
from gpuinstall.lock.request.history import read_own_lock
from gpuinstall.lock.target import Target
from gpuinstall.plan import Rejected, choose

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from gpuinstall.base.machine import Machine
    from gpuinstall.environments.stamp import Stamp
    from gpuinstall.lock.fit import Fit
    from gpuinstall.lock.lock import Lock
    from gpuinstall.lock.request.lock_request import LockRequest

ATTEMPTS = 3
"""How many builds are tried if kernels fail: each may cost 3 GB."""


class Action(Enum):
    """What an installation has to do; the values are those of the documents."""

    NOTHING = "none"
    """The environment is as requested, and proven as far as it can be here."""
    VERIFY = "proven"
    """It holds the right packages, and kernels have to run."""
    BUILD = "built"
    """Packages come, go or move."""


@dataclass(frozen=True)
class InstallOptions:
    """How to install what a project requests."""

    locked: bool = False
    """Whether no new lock is made, and any that fits will do."""
    target: str | None = None
    """Which lock is meant."""
    replace: bool = False
    """Whether packages and folders may be replaced that are not ours."""
    restoring: bool = False
    """Whether packages may be replaced that lie beside a torch that others changed."""
    upgrade: bool = False
    """Whether every version may move."""
    moving: tuple[str, ...] = ()
    """The packages whose versions may move."""
    attempts: int = ATTEMPTS
    """How many builds to try if kernels fail."""


@dataclass(frozen=True)
class ExistingEnvironment:
    """What lies where an environment is to go."""

    paths: EnvironmentPaths
    is_empty: bool = True
    """Whether nothing lies there, or an empty folder."""
    marker: Marker | None = None
    """None if it is not ours."""
    lock: Lock | None = None
    """The copy of its lock that it holds; None if that is gone or damaged."""
    packages: Mapping[str, str] = field(default_factory=dict)
    """The versions of the packages in it, by name."""
    has_python: bool = False
    locks: tuple[Lock, ...] = ()
    """The locks in the folder that holds it."""
    made_here: bool = True
    """Whether this user made it; else it may have come with the folder, and its marker is not believed."""
    stamp: Stamp | None = None
    """What was proven of it on this machine, if that still holds."""

    @property
    def is_proven(self) -> bool:
        """Whether every device of this machine passed, and all that the proof covers is as it was."""
        return self.stamp is not None and self.stamp.is_passed

    @property
    def verdict(self) -> dict[str, Any]:
        """The Verdict document of its last proof; empty if there was none."""
        if self.stamp:
            return self.stamp.verdict
        return self.marker.verdict if self.marker else {}

    @cached_property
    def intact_lock(self) -> Lock | None:
        """The lock of an environment that runs, and holds exactly its packages and torch whole; None for any other."""
        if not self.made_here or not self.has_python or self.changed_build:
            return None
        return self.lock if self.packages == self.recorded else None

    @property
    def recorded(self) -> Mapping[str, str]:
        """The versions of the packages that are ours, by name; none if its copy of the lock is gone."""
        return self.marker.packages if self.marker and self.lock else {}

    @cached_property
    def changed_build(self) -> str:
        """How torch, or what comes with its build, is not what was proven; empty if it is."""
        if self.lock is None:
            return ""
        changed = changed_build(self.packages, self.recorded, load_catalog().is_tied)
        # A stamp covers what torch loads; a module in Python that is gone is in no stamp.
        return changed or damaged_torch(self.paths.venv)

    def check_unchanged(self) -> None:
        """Check, before anything starts in it, that torch is what was proven.

        Raises:
            LockError: torch, or what comes with its build, is not what was proven.
        """
        changed = self.changed_build
        if self.marker and self.lock is None:
            changed = f"{self.marker.lock} in {self.paths.venv} is gone, or is not the lock that it was made from"
        if changed:
            raise LockError(
                "environment-changed",
                changed,
                why="the environment as it is now was never proven on this machine",
                hint=self.restoring,
            )

    @property
    def restoring(self) -> str:
        """The command that brings the proven state back."""
        note = (
            f"restores the proven environment; this one stays in {self.paths.previous}"
        )
        # Without its copy of the lock, every package in it may be the user's.
        replacing = "" if self.lock else " --replace"
        return f"gpuinstall sync{self._option}{replacing}   # {note}"

    @property
    def _option(self) -> str:
        """The option that names it in a command; none if commands mean it anyway."""
        venv = self.paths.venv
        return "" if venv == Path.cwd() / ".venv" else f" --venv {quoted(venv)}"

    @property
    def pinned_locks(self) -> list[Lock]:
        """The lock whose versions stay if something else changes: the environment's, as the folder has it now."""
        if self.lock is None:
            return [*self.locks[:1]]
        return [lock for lock in self.locks if lock.name == self.lock.name] or [
            self.lock
        ]

    def check_ownership(self, *, restoring: bool = False) -> None:
        """Check that nothing of the user's lies there.

        Args:
            restoring: Whether a torch that is not what was proven may be replaced: all that lies there remains in
                the previous environment.

        Raises:
            UsageError: something of the user's lies there.
        """
        if not self.is_empty and self.marker is None:
            raise self._not_ours()
        extra = differing_packages(self.packages, self.recorded)
        if not extra:
            return
        if not self.changed_build:
            raise self._users_packages(extra)
        if not restoring:
            raise UsageError(
                "users-packages",
                self.changed_build,
                why="pip, uv or another program changed it since it was proven",
                hint=self.restoring,
            )

    def _not_ours(self) -> UsageError:
        venv = self.paths.venv
        files = user_paths(venv)
        why = f"it has files that no installer wrote: {some(files)}" if files else None
        kind = "not ours"
        hint = ""
        if is_environment(venv):
            kind = "an environment gpuinstall did not make"
            hint = "Run it again with --into: torch is installed into it, and the rest stays\n"
        hint += (
            "Run it again with --venv DIR: another folder\n"
            f"Run it again with --replace: the old one is kept in {self.paths.previous}"
        )
        return UsageError("not-ours", f"{venv} is {kind}", why=why, hint=hint)

    def _users_packages(self, extra: tuple[str, ...]) -> UsageError:
        """Return the error about packages that the lock lacks, with the command that takes them into the request."""
        venv = self.paths.venv
        added = {text.partition(" ")[0] for text in extra}
        packages = packages_called(added, packages_folders(venv))
        requirements = [f"{one.name}=={one.version}" for one in top_packages(packages)]
        install = f"gpuinstall install --replace{self._option} {joined(requirements)}"
        return UsageError(
            "users-packages",
            f"{venv} has packages that are not in its lock: {some(extra)}",
            why="pip or uv installed them; a new environment would not have them",
            hint=f"Run it again with --replace: without them; they stay in {self.paths.previous}\n"
            f"{install}   # with them, at these versions",
            data={"packages": list(extra)},
        )


def inspect_environment(
    paths: EnvironmentPaths,
    here: Machine | None = None,
) -> ExistingEnvironment:
    """Return what lies there, and what was proven of it on the machine ``here``; nothing is run."""
    venv = paths.venv
    if not os.path.lexists(venv) or (venv.is_dir() and not any(venv.iterdir())):
        return ExistingEnvironment(paths)
    marker = read_marker(venv)
    if marker is None:
        return ExistingEnvironment(paths, is_empty=False)
    return ExistingEnvironment(
        paths,
        is_empty=False,
        marker=marker,
        lock=read_own_lock(venv),
        packages=installed_packages(venv, marker.packages),
        has_python=interpreter(venv).exists(),
        made_here=was_made_here(venv, venv),
        stamp=standing_stamp(venv, marker, here),
    )


def standing_stamp(
    venv: Path,
    marker: Marker,
    machine: Machine | None,
) -> Stamp | None:
    """Return the stamp of an environment on a machine; None if there is none, or it holds no longer."""
    if machine is None:
        return None
    stamp = read_stamp(stamp_file(marker.id, machine))
    if stamp and stamp.machine == fingerprint(machine) and stamp.holds(str(venv)):
        return stamp
    return None


def stamp_file(identity: str, machine: Machine) -> Path:
    """Return the file for the stamp of an environment, by the id of its marker, on a machine."""
    return (
        own_cache_folder() / "stamps" / f"{identity}-{fingerprint(machine)[:16]}.json"
    )


def check_replaceable(paths: EnvironmentPaths) -> None:
    """Check that an environment can be put there, if only in place of what is there.

    Raises:
        UsageError: none can.
    """
    venv = paths.venv
    if venv.exists() and not venv.is_dir():
        raise UsageError(
            "not-a-folder",
            f"{venv} is a file",
            hint="gpuinstall install --venv DIR",
        )
    # The shell would go on in the folder that was replaced, and on Windows nothing could be renamed.
    if Path.cwd().is_relative_to(venv):
        raise UsageError(
            "working-folder",
            f"{venv} cannot be replaced while you are inside it",
            hint="gpuinstall install --venv .venv",
        )
    if os.path.ismount(venv):
        raise UsageError(
            "mount-point",
            f"{venv} is a mount point, which cannot be replaced atomically",
            hint=f"gpuinstall install --venv {quoted(venv / 'env')}",
        )


def unchanged_packages(existing: ExistingEnvironment, fit: Fit) -> frozenset[str]:
    """Return the packages that are to stay as they are; none if torch or Python changes, as all depend on them.

    None either if a package that goes or moves shares files with one that stays, or has no RECORD to be uninstalled by:
    all are installed in their order then.
    """
    lock, new = existing.lock, fit.lock
    if lock is None or lock.python != fit.choice.python or not _can_be_copied(existing):
        return frozenset()
    unchanged = set(_settled_projects(existing, lock, new))
    for name, version in existing.recorded.items():
        is_intact = existing.packages.get(name) == version
        # What comes from a folder or a repository has no hash, and may be another by now.
        if is_intact and lock.hashes_of(name) & new.hashes_of(name):
            unchanged.add(name)
    if "torch" not in unchanged:
        return frozenset()
    leaving = leaving_packages(existing, unchanged)
    if leaving and not _can_leave(existing.paths.venv, leaving):
        return frozenset()
    return frozenset(unchanged)


def _can_be_copied(existing: ExistingEnvironment) -> bool:
    """Whether a copy of an environment would run, and change nothing in the environment itself."""
    if not existing.made_here or not existing.has_python or existing.changed_build:
        return False
    venv = existing.paths.venv.resolve()
    # A link to packages elsewhere would lead there from the copy too.
    return all(
        folder.resolve().is_relative_to(venv) for folder in packages_folders(venv)
    )


def leaving_packages(
    existing: ExistingEnvironment, unchanged: Collection[str]
) -> list[str]:
    """Return what has to be taken out of a copy of an environment, in the order of the names."""
    # pip belongs to no lock, and every environment has one.
    return sorted(existing.packages.keys() - {*unchanged, "pip"})


def _can_leave(venv: Path, leaving: Collection[str]) -> bool:
    """Whether packages can be uninstalled: each has a RECORD, and none has recorded a file of one that stays."""
    going = set[str]()
    staying = set[str]()
    for package in read_packages(packages_folders(venv)):
        is_leaving = package.name in leaving
        if is_leaving and not package.record_text:
            return False
        files = going if is_leaving else staying
        files.update(file.path for file in package.files)
    return going.isdisjoint(staying)


def _settled_projects(
    existing: ExistingEnvironment,
    lock: Lock,
    new: Lock,
) -> Iterator[str]:
    """Yield the editable projects of which uv would build the same again.

    Args:
        existing: The environment.
        lock: Its own.
        new: The lock that is about to be installed.
    """
    folder = existing.paths.folder
    # It was written last, and is not written again.
    _, built_ns, _ = file_stamp(str(existing.paths.venv / lock.name))
    for package in new.pylock.packages:
        project = package.directory
        if not project or not project.editable:
            continue
        if lock.addresses.get(package.name) == new.addresses[package.name]:
            files = [folder / project.path / name for name in PROJECT_FILES]
            if all(file_stamp(str(file))[1] <= built_ns for file in files):
                yield package.name


@dataclass(frozen=True)
class InstallState:
    """What an installation starts from: what lies there, and what is requested."""

    existing: ExistingEnvironment
    request: LockRequest
    here: Machine | None
    """This machine; None if kernels cannot run on it."""
    options: InstallOptions
    targets: tuple[str, ...] = ()
    """What the folder names as what its locks are for; a machine takes one of them."""

    @property
    def action(self) -> Action:
        """What there is to do, as far as it is known before a new lock is made."""
        return self.action_for(self.fit)

    def action_for(self, fit: Fit | None) -> Action:
        """Return what there is to do for a lock; None is one that has yet to be made."""
        intact = self.existing.intact_lock
        if fit is None or intact is None or intact.sha256 != fit.lock.sha256:
            return Action.BUILD
        # Without the GPUs that it is for nothing more can be shown here.
        stamp = self.existing.stamp
        if self.here is None or (stamp and stamp.proves(fit.gpus)):
            return Action.NOTHING
        return Action.VERIFY

    @cached_property
    def judged(self) -> tuple[Fit | Rejection[Lock], ...]:
        """The locks of the folder, and the environment's own copy if the folder has none of that name, judged.

        A lock that was made for another request does not fit, unless no new one is to be made.
        """
        from gpuinstall.lock.fit import judge  # which takes long to load

        options, request, own = self.options, self.request, self.existing.intact_lock
        if options.upgrade or options.moving:
            return ()
        locks = [
            lock
            for lock in self.existing.locks
            if options.target in {lock.target, None}
        ]
        if own and not options.locked and own.name not in {lock.name for lock in locks}:
            locks.append(own)
        judged = judge(
            locks,
            request.machine,
            request.request,
            request.catalog,
            exact=not options.locked,
        )
        # Why its own copy does not fit is of no interest.
        return tuple(
            one
            for one in judged
            if not isinstance(one, Rejection) or one.candidate is not own
        )

    @cached_property
    def fit(self) -> Fit | None:
        """The lock that is installed as it is; None if a new one has to be made."""
        from gpuinstall.lock.fit import best

        request = self.request
        return best(self.judged, request.machine, request.request, request.catalog)

    @property
    def misfits(self) -> tuple[Rejection[Lock], ...]:
        """The locks that do not fit."""
        return tuple(misfit for misfit in self.judged if isinstance(misfit, Rejection))

    def check_lockable(self) -> None:
        """Raise what stands against a new lock: a machine that has to be repaired first, or that none is to be made.

        That no known build fits does not: the sources may list another today.
        """
        plan, options = self.request.outcome, self.options
        error = plan.error(self.request.machine) if isinstance(plan, Rejected) else None
        if (
            error
            and not isinstance(error, NoBuildError)
            and (self.misfits or not options.locked)
        ):
            raise error
        if not options.locked and not (error and self.targets):
            return
        from gpuinstall.lock.fit import misfit_rows

        if not self.misfits:
            name = f"pylock.{options.target}.toml" if options.target else "lock"
            folder = self.existing.paths.folder
            raise LockError(
                "lock-missing",
                f"there is no {name} in {folder}",
                hint="gpuinstall lock",
            )
        raise LockError(
            "lock-does-not-fit",
            "no lock here fits this machine",
            evidence=misfit_lines(self.misfits),
            hint="\n".join((*self._compat_hints(), self._command_for_here())),
            data={"chosen": None, "rejected": misfit_rows(self.misfits)},
        )

    def _command_for_here(self) -> str:
        """Return the command that makes a lock for this machine too."""
        if not self.targets:
            return "gpuinstall lock   # makes one that does"
        machine = self.request.machine
        request = replace(self.request.request, backend=None, allowed_backends=None)
        plan = choose(machine, request, self.request.catalog)
        if isinstance(plan, Rejected):
            raise plan.error(machine)
        here = Target(plan.choice.build.backend.tag, machine.os, machine.arch)
        words = ["gpuinstall", "lock"]
        for target in dict.fromkeys((*self.targets, str(here))):
            words += ["--target", target]
        return joined(words)

    def _compat_hints(self) -> list[str]:
        """Return how to have the libraries that a lock was made with, if the driver is too old without them."""
        for misfit in self.misfits:
            is_old = misfit.reason.code.startswith("driver-too-old")
            if is_old and misfit.candidate.record.cuda_compat:
                return ["Run it again with --cuda-compat   # as the lock was made"]
        return []


def misfit_lines(misfits: Iterable[Rejection[Lock]]) -> str:
    """Return a line for each lock that does not fit, with the reason."""
    lines = [f"{one.candidate.name}: {one.reason.message}" for one in misfits]
    return "\n".join(lines)
