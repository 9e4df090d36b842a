"""What an installation is told, what it starts from, and what it comes to, as frozen values."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpuinstall.base.environment_paths import EnvironmentPaths, interpreter
from gpuinstall.base.errors import LockError, NoBuildError
from gpuinstall.base.finding import Rejection
from gpuinstall.base.shell import joined
from gpuinstall.base.values import dataclass
from gpuinstall.lock.target import Target
from gpuinstall.plan import Rejected, choose

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.base.machine import Machine
    from gpuinstall.install.inspection import ExistingEnvironment
    from gpuinstall.lock.fit import Fit
    from gpuinstall.lock.lock import Lock, VersionChange
    from gpuinstall.lock.request import LockRequest


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
        if self.here is None or self.existing.is_proven:
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
            evidence="\n".join(
                f"{misfit.candidate.name}: {misfit.reason.message}"
                for misfit in self.misfits
            ),
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
        here = str(Target(plan.choice.build.backend.tag, machine.os, machine.arch))
        words = ["gpuinstall", "lock"]
        for target in dict.fromkeys((*self.targets, here)):
            words += ["--target", target]
        return joined(words)

    def _compat_hints(self) -> list[str]:
        """Return how to have the libraries that a lock was made with, if the driver is too old without them."""
        for misfit in self.misfits:
            is_old = misfit.reason.code.startswith("driver-too-old")
            if is_old and misfit.candidate.record.cuda_compat:
                return ["Run it again with --cuda-compat   # as the lock was made"]
        return []
