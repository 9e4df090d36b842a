"""The order of work: plan, preflight, lock, install, verify, swap. Each step is a small one over values."""

from __future__ import annotations

import uuid
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

from gpuinstall.errors import UsageError, VerificationError
from gpuinstall.install.candidates import without
from gpuinstall.install.marker import Marker, fingerprint, read_marker
from gpuinstall.install.order import Installed, Previous
from gpuinstall.install.ownership import check_mount, check_ownership
from gpuinstall.install.place import interpreter
from gpuinstall.install.prepare import prepare
from gpuinstall.install.stage import stage
from gpuinstall.install.standing import intact, standing
from gpuinstall.install.swap import discard, publish_lock, repair, size_of, swap_in
from gpuinstall.install.turn import turn
from gpuinstall.verify import verify_environment

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.catalog import Catalog
    from gpuinstall.install.order import LockChange, Order, Prepared
    from gpuinstall.install.place import Place
    from gpuinstall.install.standing import Standing
    from gpuinstall.lock.means import Means
    from gpuinstall.reporter import Reporter
    from gpuinstall.verify.verdict import Verdict

ATTEMPTS = 3


def install(order: Order, catalog: Catalog, means: Means) -> Installed:
    """Make ``order.place`` hold what was ordered, proven; leave it as it was on any failure."""
    start = monotonic()
    check_mount(order.place)
    found = None if order.place.journal.exists() else _checked(order, catalog)
    if found and found.proven:
        return _left_alone(order, found, start)
    with turn(order.place, order.wait, means.reporter):
        repair(order.place)
        found = _checked(order, catalog)
        if found and found.proven:
            return _left_alone(order, found, start)
        try:
            done = _install(preflighted(order, means), found, catalog, means)
        finally:
            discard(order.place.staging)
    return replace(done, seconds=monotonic() - start)


def _checked(order: Order, catalog: Catalog) -> Standing | None:
    if not order.replace:
        check_ownership(order.place)
    return standing(order, catalog)


def preflighted(order: Order, means: Means) -> Order:
    """Prove the driver before anything is downloaded; what is wrong with it counts in the plan."""
    from gpuinstall.probe.preflight import preflight

    if order.here is None or not order.here.gpus or order.request.backend == "cpu":
        return order
    seen = preflight(order.here, means.reporter)
    if proven := seen.with_outcome("proven"):
        names = "every GPU" if len(proven) == len(order.here.gpus) else f"GPU {', '.join(map(str, proven))}"
        means.reporter.step("Preflight", f"a kernel ran on {names}", seen.seconds)
    return replace(order, machine=order.machine.with_problems(seen.problems))


def _install(order: Order, found: Standing | None, catalog: Catalog, means: Means) -> Installed:
    for attempt in range(1, ATTEMPTS + 1):
        prepared = found.prepared if found else prepare(order, catalog, means)
        venv = order.place.venv if found or _stands(order, prepared) else _staged(order, prepared, means)
        verdict = prove(order, prepared, venv, means)
        if verdict.status != "failed":
            return _proven(order, prepared, verdict, venv)
        discard(order.place.staging)
        rest = without(catalog, prepared.choice.build, verdict) if order.fallback and attempt < ATTEMPTS else None
        if rest is None:
            break
        means.reporter.warn(f"torch {prepared.choice.build.name} failed; the next build that differs is tried")
        found, catalog, order = None, rest, replace(order, upgrade=True)
    raise failure(prepared, verdict)


def _stands(order: Order, prepared: Prepared) -> bool:
    """Say whether a new lock is the one that the environment was made of."""
    lock = intact(order.place)
    return lock is not None and lock.sha256 == prepared.lock.sha256


def _staged(order: Order, prepared: Prepared, means: Means) -> Path:
    start = monotonic()
    stage(order, prepared, means)
    means.reporter.step("Installed", f"{len(prepared.lock.pylock.packages)} packages", monotonic() - start)
    return order.place.staging


def prove(order: Order, prepared: Prepared, venv: Path, means: Means) -> Verdict:
    """Run the kernels of an environment on this machine's GPUs, or say that they are not here."""
    start = monotonic()
    machine = order.here or replace(order.machine, gpus=())
    gpus = tuple(run.index for run in prepared.plan.gpus if run.how != "none") if order.here else None
    asked_cpu = prepared.choice.build.backend == "cpu"
    verdict = verify_environment(
        interpreter(venv), machine, asked_cpu=asked_cpu, gpus=gpus or None, reporter=means.reporter
    )
    means.reporter.step("Verified", summary(verdict), monotonic() - start)
    return verdict


def summary(verdict: Verdict) -> str:
    """Say in one line what became of each device."""
    parts = []
    for device in verdict.devices:
        count = sum(check.status == "passed" for check in device.checks)
        said = f"{count} checks" if device.status == "passed" else device.unproven or device.status
        parts.append(f"{device.name if device.name == 'CPU' else f'GPU {device.index}'}: {said}")
    return " · ".join(parts)


def _proven(order: Order, prepared: Prepared, verdict: Verdict, venv: Path) -> Installed:
    place, lock = order.place, prepared.lock
    beside = place.folder / lock.name
    same = beside.is_file() and beside.read_text(encoding="utf-8") == lock.text
    lock_change: LockChange = "unchanged" if same else "written"
    mark(order, prepared, verdict, venv)
    if venv == place.venv:
        publish_lock(place)
        return Installed(place, prepared, lock_change, verdict.to_dict(), "proven")
    swap_in(place, venv, keep=order.keep)
    previous = Previous(place.previous, size_of(place.previous)) if place.previous.exists() else None
    return Installed(place, prepared, lock_change, verdict.to_dict(), previous=previous)


def roll_back(place: Place, wait: float, reporter: Reporter) -> Marker:
    """Exchange the environment, and its lock, for the previous one; raise UsageError where there is none."""
    with turn(place, wait, reporter):
        repair(place)
        marker = read_marker(place.previous)
        if marker is None:
            raise UsageError("no-previous", f"there is no previous environment of {place.venv}")
        swap_in(place, place.previous)
    return marker


def mark(order: Order, prepared: Prepared, verdict: Verdict, venv: Path) -> None:
    """Write into an environment, last of all, what it is."""
    lock, choice = prepared.lock, prepared.choice
    machine = fingerprint(order.here or order.machine)
    torch = lock.versions["torch"]
    backend = choice.build.backend
    document = verdict.to_dict()
    Marker(str(uuid.uuid4()), lock.name, lock.sha256, choice.python, torch, backend, machine, document).write(venv)


def failure(prepared: Prepared, verdict: Verdict) -> VerificationError:
    """Say which kernel failed where."""
    failed = [(device, check) for device in verdict.devices for check in device.checks if check.status == "failed"]
    device, check = failed[0]
    return VerificationError(
        "kernel-failed",
        f"torch {prepared.choice.build.name} failed on {device.name}: {check.name}",
        why=check.message,
        id=check.cause,
        hint="the environment was not replaced; gpuinstall doctor says more",
        data={"plan": prepared.plan.to_dict(), "verdict": verdict.to_dict()},
    )


def _left_alone(order: Order, found: Standing, start: float) -> Installed:
    publish_lock(order.place)
    return Installed(order.place, found.prepared, "unchanged", found.verdict, "none", seconds=monotonic() - start)
