"""What an installation is told, what it starts from, and what it comes to, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from gpuinstall.environments.paths import EnvironmentPaths, interpreter
from gpuinstall.errors import LockError, NoBuildError
from gpuinstall.finding import Rejection
from gpuinstall.install.environment_lock import WAIT_S
from gpuinstall.lock.fit import OTHER_REQUEST, Fit, best, judge, misfit_rows
from gpuinstall.plan import Rejected

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.install.inspection import ExistingEnvironment
    from gpuinstall.install.previous import Previous
    from gpuinstall.lock.folder_request import FolderRequest
    from gpuinstall.lock.lock import Lock, VersionChange
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.machine import Machine
    from gpuinstall.plan.values import Choice
    from gpuinstall.reporter import Reporter


LockChange = Literal["written", "unchanged"]
Change = Literal["built", "proven", "none"]


ATTEMPTS = 3
"""How many builds are tried where kernels fail: each may cost 3 GB."""


@dataclass(frozen=True)
class InstallOptions:
    """How to install what a project asks for.

    ``locked`` says that no new lock is made, and any that fits will do; ``target`` which one is meant. ``replace`` lets
    packages and folders be replaced that are not ours, ``restoring`` packages beside a torch that others changed.
    ``upgrade`` lets every version move, ``moving`` those of single packages. ``verify`` proves again what is proven,
    ``keep`` keeps what is replaced, ``jupyter`` makes a Jupyter kernel of it. ``attempts`` are builds to try where
    kernels fail; ``wait`` is in seconds. ``yes`` downloads also what is large because a source is unreachable.
    """

    locked: bool = False
    target: str | None = None
    replace: bool = False
    restoring: bool = False
    upgrade: bool = False
    moving: tuple[str, ...] = ()
    verify: bool = False
    keep: bool = True
    jupyter: bool = False
    attempts: int = ATTEMPTS
    wait: float = WAIT_S
    yes: bool = True


@dataclass(frozen=True)
class InstallResult:
    """What came of it. ``change`` says whether the environment was built, proven again, or left alone.

    ``fit`` is the lock that it is made of, with its plan; ``misfits`` are the others in the folder, and why they were
    not taken. ``changes`` are the packages that came, went and moved. ``bytes`` were to be fetched into ``caches``.
    """

    paths: EnvironmentPaths
    machine: Machine
    fit: Fit
    lock_change: LockChange
    verdict: dict[str, Any]
    change: Change
    misfits: tuple[Rejection[Lock], ...] = ()
    changes: tuple[VersionChange, ...] = ()
    bytes: int = 0
    caches: tuple[Path, ...] = ()
    previous: Previous | None = None
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
        """Write the document of ``install --json``."""
        lock = self.fit.lock
        return {
            "plan": self.fit.plan.to_dict(),
            "lock": {
                "path": str(self.paths.folder / lock.name),
                "sha256": lock.sha256,
                "status": self.lock_change,
                "packages": len(lock.pylock.packages),
                "changes": [change._asdict() for change in self.changes],
            },
            "environment": self.fit.environment(self.paths.venv, self.change),
            "previous": self.previous and {"path": str(self.previous.path), "bytes": self.previous.bytes},
            "verdict": self.verdict,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True)
class Situation:
    """The ``existing`` environment and the ``request`` for a lock, made of what the folder is ``asked``.

    ``here`` is this machine, None where kernels cannot run on it.
    """

    existing: ExistingEnvironment
    asked: FolderRequest
    request: LockRequest
    here: Machine | None
    options: InstallOptions

    @cached_property
    def judged(self) -> tuple[Fit | Rejection[Lock], ...]:
        """The locks of the folder, and the environment's own copy where the folder has none of that name, judged.

        A lock that was made for another request does not fit, unless no new one is to be made.
        """
        options, request, own = self.options, self.request, self.existing.intact_lock
        if options.upgrade or options.moving:
            return ()
        exact = not options.locked
        locks = [lock for lock in self.existing.locks if options.target in {lock.target, None}]
        judged = judge(locks, request.machine, request.request, request.catalog, exact=exact)
        if own is None or options.locked or own.name in {lock.name for lock in locks}:
            return tuple(judged)
        kept = judge([own], request.machine, request.request, request.catalog, exact=exact)
        return (*judged, *(fit for fit in kept if isinstance(fit, Fit)))

    @property
    def fit(self) -> Fit | None:
        """The lock that is installed as it is; None where a new one has to be made."""
        request = self.request
        return best(self.judged, request.machine, request.request, request.catalog)

    @property
    def misfits(self) -> tuple[Rejection[Lock], ...]:
        """The locks that do not fit."""
        return tuple(misfit for misfit in self.judged if isinstance(misfit, Rejection))

    @property
    def is_settled(self) -> bool:
        """Say whether the environment is as it is asked for, and proven as far as it can be here."""
        if self.fit is None or self.options.verify or not self.existing.is_made_of(self.fit.lock):
            return False
        return self.here is None or self.existing.is_proven

    @property
    def is_driver_proven(self) -> bool:
        """Whether kernels have run here, and run again only if that is asked for."""
        return self.existing.is_proven and not self.options.verify

    def newer(self, fit: Fit) -> Choice | None:
        """What these GPUs and this driver would run too, of a torch that is newer than a lock's."""
        plan = self.request.outcome
        if isinstance(plan, Rejected) or plan.status == "cpu" or plan.choice.build.torch <= fit.choice.build.torch:
            return None
        return plan.choice

    def check_lockable(self) -> None:
        """Raise what stands against a new lock: a machine that has to be repaired first, or that none is to be made.

        That no known build fits does not: the sources may list another today.
        """
        plan, options = self.request.outcome, self.options
        error = plan.error(self.request.machine) if isinstance(plan, Rejected) else None
        if error and not isinstance(error, NoBuildError) and (self.misfits or not options.locked):
            raise error
        if not options.locked:
            return
        if not self.misfits:
            name = f"pylock.{options.target}.toml" if options.target else "lock"
            folder = self.existing.paths.folder
            raise LockError("lock-missing", f"there is no {name} in {folder}", hint="gpuinstall lock")
        raise LockError(
            "lock-does-not-fit",
            "no lock here fits this machine",
            evidence="\n".join(f"{misfit.candidate.name}: {misfit.reason.message}" for misfit in self.misfits),
            hint="gpuinstall lock   # makes one that does",
            data={"chosen": None, "rejected": misfit_rows(self.misfits)},
        )

    def say_misfits(self, reporter: Reporter) -> None:
        """Say why locks that lie here are not taken, those that were made for another request in one line."""
        others = [misfit for misfit in self.misfits if misfit.reason.code != OTHER_REQUEST]
        if len(others) < len(self.misfits) and self.fit is None:
            reporter.step("Lock", "a new one: the request has changed")
        for misfit in others:
            reporter.step("Lock", f"{misfit.candidate.name} does not fit: {misfit.reason.message}")
