"""What an installation does, decided from what is there: steps as values, for ``install`` to take and to show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from gpuinstall.errors import LockError, NoBuildError
from gpuinstall.lock.fit import Fit, Misfit, best, judge
from gpuinstall.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpuinstall.catalog import Catalog
    from gpuinstall.errors import GpuInstallError
    from gpuinstall.install.inspection import ExistingEnvironment
    from gpuinstall.install.options import InstallOptions
    from gpuinstall.plan import Refusal
    from gpuinstall.plan.values import Choice


@dataclass(frozen=True)
class Refuse:
    """No lock serves, and none can be made; why."""

    error: GpuInstallError


@dataclass(frozen=True)
class OwnLock:
    """The lock that the environment is made of; ``newer`` is a newer torch that the machine would run too."""

    found: Fit
    newer: Choice | None = None


@dataclass(frozen=True)
class UseLock:
    """A lock that lies in the folder, as it is."""

    found: Fit


@dataclass(frozen=True)
class Resolve:
    """A new lock; ``plan`` is the choice as far as the catalogue alone can make it."""

    plan: Plan | Refusal


@dataclass(frozen=True)
class BuildEnvironment:
    """Build an environment of Python ``X.Y`` beside the one that is there."""

    python: str


@dataclass(frozen=True)
class Verify:
    """Run kernels in the environment at ``venv``."""

    venv: Path


@dataclass(frozen=True)
class Swap:
    """Put what was built, and its lock, in the environment's place."""


@dataclass(frozen=True)
class PublishLock:
    """Bring the lock in the folder to what the environment holds."""


LockSource: TypeAlias = Refuse | OwnLock | UseLock | Resolve
InstallStep: TypeAlias = BuildEnvironment | Verify | Swap | PublishLock


@dataclass(frozen=True)
class Decision:
    """Where the lock comes from, the steps that are taken with it, and the locks in the folder that do not fit."""

    existing: ExistingEnvironment
    lock: LockSource
    steps: tuple[InstallStep, ...] = ()
    misfits: tuple[Misfit, ...] = ()

    @property
    def changes_nothing(self) -> bool:
        """Say whether the environment is left as it is."""
        return isinstance(self.lock, OwnLock) and self.steps == (PublishLock(),)


def judge_locks(existing: ExistingEnvironment, options: InstallOptions, catalog: Catalog) -> tuple[Fit | Misfit, ...]:
    """Judge the locks of the folder, and the environment's own copy where the folder has none of that name."""
    if options.upgrade or options.moving:
        return ()
    exact = options.asked is not None
    judged = judge(existing.locks, options.machine, options.request, catalog, exact=exact)
    meant = [each for each in judged if options.target in {each.lock.target, None}]
    own = existing.intact_lock
    if own is None or options.locked or own.name in {each.lock.name for each in meant}:
        return tuple(meant)
    kept = judge([own], options.machine, options.request, catalog, exact=exact)
    return (*meant, *(each for each in kept if isinstance(each, Fit)))


def decide(
    existing: ExistingEnvironment,
    locks: Sequence[Fit | Misfit],
    plan: Plan | Refusal,
    options: InstallOptions,
) -> Decision:
    """Decide what makes the environment hold what was asked for; ``plan`` is what the catalogue alone would choose."""
    found, misfits = best(locks), tuple(each for each in locks if isinstance(each, Misfit))
    if found is None:
        if refused := _refused(misfits, plan, options):
            return Decision(existing, Refuse(refused), (), misfits)
        steps = _replacing(plan.choice, options) if plan.choice else ()
        return Decision(existing, Resolve(plan), steps, misfits)
    if not existing.is_made_of(found.lock):
        return Decision(existing, UseLock(found), _replacing(found.choice, options), misfits)
    if _is_proven(existing, options):
        return Decision(existing, OwnLock(found), (PublishLock(),), misfits)
    proof = Verify(options.paths.venv), PublishLock()
    return Decision(existing, OwnLock(found, _newer(plan, found)), proof, misfits)


def _replacing(choice: Choice, options: InstallOptions) -> tuple[InstallStep, ...]:
    return BuildEnvironment(choice.python), Verify(options.paths.staging), Swap()


def _is_proven(existing: ExistingEnvironment, options: InstallOptions) -> bool:
    if options.verify:
        return False
    return options.here is None or existing.is_proven_on(options.here)


def _newer(plan: Plan | Refusal, found: Fit) -> Choice | None:
    """What these GPUs and this driver would run too, of a torch that is newer than the lock's."""
    choice = plan.choice
    return choice if choice and plan.status != "cpu" and choice.build.torch > found.choice.build.torch else None


def _refused(misfits: Sequence[Misfit], plan: Plan | Refusal, options: InstallOptions) -> GpuInstallError | None:
    """What stands against a new lock: a machine that has to be repaired first, or that none is to be made."""
    error = None if isinstance(plan, Plan) else plan.error(options.machine)
    if isinstance(error, NoBuildError):
        error = None  # the sources may list another build today
    if options.locked:
        return (error if misfits else None) or _no_lock_fits(misfits, options)
    return error


def _no_lock_fits(misfits: Sequence[Misfit], options: InstallOptions) -> LockError:
    if not misfits:
        name = f"pylock.{options.target}.toml" if options.target else "lock"
        return LockError("lock-missing", f"there is no {name} in {options.paths.folder}", hint="gpuinstall lock")
    seen = "\n".join(f"{misfit.lock.name}: {misfit.reason.message}" for misfit in misfits)
    return LockError(
        "lock-does-not-fit",
        "no lock here runs on this machine",
        evidence=seen,
        hint="gpuinstall lock makes one that does",
        data={"chosen": None, "rejected": [misfit.to_dict() for misfit in misfits]},
    )
