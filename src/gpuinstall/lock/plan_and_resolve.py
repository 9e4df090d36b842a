"""Plans and resolutions that agree: where another package demands a torch of its own, choose again with that one."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.catalog.build import DEFAULT_INDEX
from gpuinstall.errors import InstallationError, InternalError, NoBuildError
from gpuinstall.lock.alignment import Agreement, aligned, side_by_side
from gpuinstall.lock.draft import Draft, Family, ResolveRequest, draft
from gpuinstall.lock.project import Project
from gpuinstall.lock.request import is_torch, pinned, settle
from gpuinstall.lock.resolution import ConflictError, Resolver
from gpuinstall.lock.target import GLIBC, Target, minor
from gpuinstall.lock.today import today

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuinstall.catalog.pages import Wheel
    from gpuinstall.lock.request import LockRequest, PlannedLock
    from gpuinstall.machine import Machine
    from gpuinstall.plan.values import Choice
    from gpuinstall.session import Session
    from gpuinstall.web import UnreachableError

TRIES = 3


@dataclass(frozen=True)
class VersionPins:
    """What is to stay as it is: versions that must, as constraints, and versions that should."""

    constraints: tuple[str, ...] = ()
    preferred: Mapping[str, str] = field(default_factory=dict)


def plan_and_resolve(
    aims: Sequence[LockRequest], session: Session, *, newest: bool = False, hold: VersionPins | None = None
) -> list[Agreement]:
    """Choose from what the sources list today and resolve; with ``newest`` each aim has its own torch.

    Raise MachineError or NoBuildError where nothing fits, InstallationError where a source or uv fails.
    """
    aims, silent = today(aims, session)
    if silent is None:
        return _agree(aims, session, hold or VersionPins(), newest=newest)
    return _agree_from_cache(aims, session, hold or VersionPins(), silent, newest=newest)


def _agree_from_cache(
    aims: Sequence[LockRequest], session: Session, hold: VersionPins, silent: UnreachableError, *, newest: bool
) -> list[Agreement]:
    """Let uv resolve with what it holds; what the rules alone refuse is refused as ever."""
    try:
        settle(aims, newest=newest)
    except InstallationError:
        raise silent from None
    try:
        agreed = _agree(aims, session.from_cache(), hold, newest=newest)
    except (InstallationError, NoBuildError):
        raise silent from None
    session.reporter.warn(f"{silent.host} cannot be reached, {silent.why}; uv's cache serves instead")
    return agreed


def _agree(aims: Sequence[LockRequest], session: Session, hold: VersionPins, *, newest: bool) -> list[Agreement]:
    for remaining in reversed(range(TRIES)):
        settled = settle(aims, newest=newest)
        drafts = side_by_side([partial(_drafted, one, hold, session) for one in settled])
        done = [Agreement(one, made) for one, made in zip(settled, drafts, strict=True) if isinstance(made, Draft)]
        if len(done) == len(aims):
            family = aims[0].catalog.family
            return aligned(done, family, lambda one, bounds: _drafted(one, _tighter(hold, bounds), session))
        one, conflict = next(
            (one, made) for one, made in zip(settled, drafts, strict=True) if not isinstance(made, Draft)
        )
        torch = _demand(one, session) if remaining else None
        if torch is None:
            raise conflict
        aims = [_asking(aim, torch) for aim in aims]
    raise InternalError("disagreement", "the choice and the resolution did not agree")


def target_for(choice: Choice, machine: Machine) -> Target:
    """What a lock of a choice is for; its glibc is old enough for every machine that runs the build."""
    glibc = min((GLIBC, machine.glibc or GLIBC), key=minor)
    return Target(choice.build.backend.tag, machine.os, machine.arch, glibc)


def _asking(aim: LockRequest, torch: str) -> LockRequest:
    return replace(aim, request=replace(aim.request, requirements=pinned(aim.request.requirements, torch)))


def _demand(settled: PlannedLock, session: Session) -> str | None:
    """Ask which torch the other packages agree on, of the default index alone; None where that does not help."""
    others = tuple(text for text in settled.aim.request.requirements if not is_torch(text))
    choice, target = settled.choice, target_for(settled.choice, settled.aim.machine)
    with tempfile.TemporaryDirectory(prefix="gpuinstall-") as folder:
        resolver = Resolver(Path(folder), session.python, session.environment, (), lambda _package: ())
        demand = resolver.demands(Project(others, choice.python, {}), target)
    if demand is None or demand[0].partition("+")[0] == str(choice.build.torch):
        return None
    session.reporter.step("Build", f"{' and '.join(demand[1]) or 'a package'} demands torch {demand[0]}")
    return demand[0]


def _tighter(hold: VersionPins, bounds: tuple[str, ...]) -> VersionPins:
    return replace(hold, constraints=(*hold.constraints, *bounds))


def _drafted(settled: PlannedLock, hold: VersionPins, session: Session) -> Draft | ConflictError:
    """Resolve what was chosen; where a package has wheels for newer systems alone, for this very machine's glibc."""
    choice, machine = settled.choice, settled.aim.machine
    target = target_for(choice, machine)
    wish = ResolveRequest(choice.requirements, target, choice.python, hold.constraints, hold.preferred)
    made = _resolved(wish, settled, session)
    newer = target.up_to(machine.glibc)
    if newer == target or (isinstance(made, Draft) and not made.builds_from_source):
        return made
    again = _resolved(replace(wish, target=newer), settled, session)
    return again if isinstance(again, Draft) else made


def _resolved(wish: ResolveRequest, settled: PlannedLock, session: Session) -> Draft | ConflictError:
    try:
        return draft(wish, _family(settled, session), session)
    except ConflictError as conflict:
        return conflict


def _family(settled: PlannedLock, session: Session) -> Family:
    def wheels(package: str) -> tuple[Wheel, ...]:
        if settled.choice.index is None:
            return ()
        found = session.listed(settled.choice.build.backend.tag, package)
        return tuple(wheel for wheel in found if wheel.source != DEFAULT_INDEX)

    return Family(settled.aim.catalog.family, wheels, _published)


def _published() -> Mapping[str, str]:
    from gpuinstall.catalog.loader import read_data

    return {row["file"]: row["sha256"] for row in read_data("hashes.toml")["wheels"]}
