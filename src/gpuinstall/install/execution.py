"""The steps of an installation, taken; and the same steps as the command lines that would be run."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall import uv
from gpuinstall.environments.environment import Marker, fingerprint
from gpuinstall.environments.paths import interpreter
from gpuinstall.environments.records import remember
from gpuinstall.facts.pythons import find_python
from gpuinstall.files import holds
from gpuinstall.install.decision import BuildEnvironment, OwnLock, Refuse, Resolve, Swap, Verify, decide
from gpuinstall.install.options import InstallResult
from gpuinstall.install.previous import find_previous
from gpuinstall.install.priced_lock import PricedLock, price_lock, price_resolution, resolve_lock
from gpuinstall.install.proof import prove
from gpuinstall.install.stage import build, build_commands
from gpuinstall.install.swap import publish_lock, swap_in
from gpuinstall.lock.resolver import ResolverProject

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from gpuinstall.catalog import Catalog
    from gpuinstall.install.decision import Decision
    from gpuinstall.install.options import InstallOptions
    from gpuinstall.lock.fit import Fit
    from gpuinstall.lock.lock import Lock
    from gpuinstall.plan import Plan
    from gpuinstall.session import Session


def execute(decision: Decision, options: InstallOptions, catalog: Catalog, session: Session) -> InstallResult:
    """Take the steps; raise the error of a refusal, KernelFailedError, and what resolving and installing raise."""
    existing, steps, priced = decision.existing, decision.steps, _priced(decision, options, catalog, session)
    if isinstance(decision.lock, Resolve):
        proving = replace(options, verify=True)
        steps = decide(existing, (priced.found,), decision.lock.plan, proving).steps
    kept = decision.changes_nothing or _lies_in(options.paths.folder, priced.found.lock)
    verdict = existing.marker.verdict if existing.marker else {}
    for step in steps:
        if isinstance(step, BuildEnvironment):
            build(priced, options, session)
        elif isinstance(step, Verify):
            verdict = prove(priced.found, interpreter(step.venv), options.machine, options.here, session).to_dict()
            _mark(step.venv, priced.found, verdict, options)
        elif isinstance(step, Swap):
            swap_in(options.paths, options.paths.staging, keep=options.keep)
            remember(options.paths.venv)
        else:
            publish_lock(options.paths)
    return InstallResult(
        options.paths,
        options.machine,
        priced.found,
        "unchanged" if kept else "written",
        verdict,
        "built" if Swap() in steps else "none" if decision.changes_nothing else "proven",
        decision.misfits,
        priced.bill.fetch if priced.bill else 0,
        priced.bill.caches if priced.bill else (),
        find_previous(options.paths) if Swap() in steps else None,
    )


def show(
    decision: Decision, options: InstallOptions, catalog: Catalog, session: Session
) -> tuple[Plan, list[list[str]]]:
    """The plan that a decision follows, resolved, and the command lines of its steps; raise what resolving raises."""
    source = decision.lock
    if isinstance(source, Refuse):
        raise source.error
    if isinstance(source, Resolve):
        resolution, _ = price_resolution(options, catalog, session)
        choice, target = resolution.planned.choice, resolution.target
        project = ResolverProject(choice.requirements, choice.python, target)
        resolve = uv.compile_lock(session.python, choice.python, target.uv_platform) + project.inputs
        return resolution.planned.plan, [resolve, *_building(choice.python, options)]
    pythons = [step.python for step in decision.steps if isinstance(step, BuildEnvironment)]
    return source.found.plan, [words for python in pythons for words in _building(python, options)]


def _building(python: str, options: InstallOptions) -> list[list[str]]:
    return build_commands(python, find_python(python), options.paths)


def _priced(decision: Decision, options: InstallOptions, catalog: Catalog, session: Session) -> PricedLock:
    """Find or make the lock, and say what it costs before that is paid."""
    source = decision.lock
    if isinstance(source, Refuse):
        raise source.error
    if isinstance(source, OwnLock):
        if source.newer:
            name = source.newer.build.name
            session.reporter.step("Newer", f"torch {name} would run here too: gpuinstall install --upgrade")
        return PricedLock(source.found)
    for misfit in decision.misfits:
        session.reporter.step("Lock", f"{misfit.lock.name} is not taken: {misfit.reason.message}")
    if isinstance(source, Resolve):
        return resolve_lock(options, catalog, session)
    return price_lock(source.found, options, session)


def _lies_in(folder: Path, lock: Lock) -> bool:
    return holds(folder / lock.name, lock.text)


def _mark(venv: Path, found: Fit, verdict: dict[str, Any], options: InstallOptions) -> None:
    """Write into an environment, last of all, what it is."""
    lock, choice = found.lock, found.choice
    Marker(
        id=str(uuid.uuid4()),
        lock=lock.name,
        lock_sha256=lock.sha256,
        python=choice.python,
        torch=lock.versions["torch"],
        backend=choice.build.backend.tag,
        machine=fingerprint(options.here or options.machine),
        verdict=verdict,
    ).write(venv)
