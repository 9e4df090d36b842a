"""The order of work: plan, preflight, lock, install, verify, swap. Each step is a small one over values."""

from __future__ import annotations

import uuid
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

from gpuinstall.environments.marker import Marker, fingerprint, read_marker
from gpuinstall.environments.records import remember
from gpuinstall.errors import MachineError, NoBuildError, UsageError
from gpuinstall.install.candidates import without
from gpuinstall.install.options import Installed, Previous
from gpuinstall.install.ownership import check_ownership, check_place
from gpuinstall.install.prepare import prepare
from gpuinstall.install.proof import failure, prove
from gpuinstall.install.stage import stage
from gpuinstall.install.standing import intact, standing
from gpuinstall.install.swap import discard, publish_lock, size_of, swap_in
from gpuinstall.install.turn import at_rest, turn
from gpuinstall.plan import choose

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.catalog import Catalog
    from gpuinstall.environments.paths import EnvironmentPaths
    from gpuinstall.install.options import InstallOptions, LockChange, Prepared
    from gpuinstall.install.standing import Standing
    from gpuinstall.reporter import Reporter
    from gpuinstall.session import Session
    from gpuinstall.verify.verdict import Verdict

ATTEMPTS = 3


def install(order: InstallOptions, catalog: Catalog, session: Session) -> Installed:
    """Make ``order.place`` hold what was ordered, proven; leave it as it was on any failure."""
    start = monotonic()
    check_place(order.place)
    found = _checked(order, catalog) if at_rest(order.place) else None
    if found and found.proven:
        return _left_alone(order, found, start)
    with turn(order.place, order.wait, session.reporter):
        found = _checked(order, catalog)
        if found and found.proven:
            return _left_alone(order, found, start)
        done = _install(preflighted(order, session), catalog, session)
    return replace(done, seconds=monotonic() - start)


def _checked(order: InstallOptions, catalog: Catalog) -> Standing | None:
    if not order.replace:
        check_ownership(order.place)
    return standing(order, catalog)


def preflighted(order: InstallOptions, session: Session) -> InstallOptions:
    """Prove the driver before anything is downloaded; what is wrong with it counts in the plan."""
    from gpuinstall.probe.preflight import preflight

    if order.here is None or not order.here.gpus or order.request.backend == "cpu":
        return order
    seen = preflight(order.here, session.reporter)
    return replace(order, machine=order.machine.with_problems(seen.problems))


def _install(order: InstallOptions, catalog: Catalog, session: Session, attempts: int = ATTEMPTS) -> Installed:
    """Build and prove; where a kernel fails, do so again with the builds that differ in what failed."""
    found = standing(order, catalog)
    if found:
        _say_what_is_newer(order, found.prepared, catalog, session)
    prepared = found.prepared if found else prepare(order, catalog, session)
    venv = order.place.venv if found or _stands(order, prepared) else _staged(order, prepared, session)
    verdict = prove(order, prepared, venv, session)
    if verdict.status != "failed":
        return _proven(order, prepared, verdict, venv)
    discard(order.place.staging)
    fault = failure(prepared, verdict)
    rest = without(catalog, prepared.choice.build, verdict) if order.fallback and attempts > 1 else None
    if rest is None:
        raise fault
    session.reporter.warn(f"{fault.message}; the next build that differs is tried")
    try:
        return _install(replace(order, upgrade=True), rest, session, attempts - 1)
    except (MachineError, NoBuildError):
        raise fault from None


def _say_what_is_newer(order: InstallOptions, prepared: Prepared, catalog: Catalog, session: Session) -> None:
    """Say that these GPUs and this driver would run a newer torch than the lock's; nothing is done about it."""
    plan = choose(order.machine, order.request, catalog)
    if plan.status != "cpu" and plan.choice and plan.choice.build.torch > prepared.choice.build.torch:
        better = f"torch {plan.choice.build.name} would run here too: gpuinstall install --upgrade"
        session.reporter.step("Newer", better)


def _stands(order: InstallOptions, prepared: Prepared) -> bool:
    """Say whether a new lock is the one that the environment was made of."""
    lock = intact(order.place)
    return lock is not None and lock.sha256 == prepared.lock.sha256


def _staged(order: InstallOptions, prepared: Prepared, session: Session) -> Path:
    start = monotonic()
    stage(order, prepared, session)
    session.reporter.step("Installed", f"{len(prepared.lock.pylock.packages)} packages", monotonic() - start)
    return order.place.staging


def _proven(order: InstallOptions, prepared: Prepared, verdict: Verdict, venv: Path) -> Installed:
    place, lock = order.place, prepared.lock
    beside = place.folder / lock.name
    same = beside.is_file() and beside.read_text(encoding="utf-8") == lock.text
    lock_change: LockChange = "unchanged" if same else "written"
    _mark(order, prepared, verdict, venv)
    if venv == place.venv:
        publish_lock(place)
        return Installed(place, order.machine, prepared, lock_change, verdict.to_dict(), "proven")
    swap_in(place, venv, keep=order.keep)
    remember(place.venv)
    previous = Previous(place.previous, size_of(place.previous)) if place.previous.exists() else None
    return Installed(place, order.machine, prepared, lock_change, verdict.to_dict(), previous=previous)


def roll_back(place: EnvironmentPaths, wait: float, reporter: Reporter) -> Marker:
    """Exchange the environment, and its lock, for the previous one; raise UsageError where there is none."""
    with turn(place, wait, reporter):
        marker = read_marker(place.previous)
        if marker is None:
            raise UsageError("no-previous", f"there is no previous environment of {place.venv}")
        swap_in(place, place.previous)
    return marker


def _mark(order: InstallOptions, prepared: Prepared, verdict: Verdict, venv: Path) -> None:
    """Write into an environment, last of all, what it is."""
    lock, choice = prepared.lock, prepared.choice
    Marker(
        id=str(uuid.uuid4()),
        lock=lock.name,
        lock_sha256=lock.sha256,
        python=choice.python,
        torch=lock.versions["torch"],
        backend=choice.build.backend.tag,
        machine=fingerprint(order.here or order.machine),
        verdict=verdict.to_dict(),
    ).write(venv)


def _left_alone(order: InstallOptions, found: Standing, start: float) -> Installed:
    publish_lock(order.place)
    seconds = monotonic() - start
    return Installed(order.place, order.machine, found.prepared, "unchanged", found.verdict, "none", seconds=seconds)
