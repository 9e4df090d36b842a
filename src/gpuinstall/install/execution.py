"""The steps of an installation, taken; and the same steps as the command lines that would be run."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuinstall import uv
from gpuinstall.environments.environment import Marker, fingerprint
from gpuinstall.environments.paths import interpreter
from gpuinstall.environments.records import remember
from gpuinstall.facts.pythons import find_python
from gpuinstall.files import holds_text
from gpuinstall.install.decision import BuildEnvironment, OwnLock, Refuse, Resolve, Swap, Verify, decide
from gpuinstall.install.options import InstallResult
from gpuinstall.install.previous import find_previous
from gpuinstall.install.priced_lock import PricedLock, price_lock, resolve_lock
from gpuinstall.install.proof import prove
from gpuinstall.install.stage import build, build_commands
from gpuinstall.install.swap import publish_lock, swap_in
from gpuinstall.lock.fit import OTHER_REQUEST
from gpuinstall.lock.resolution import Resolution
from gpuinstall.lock.resolver import ResolverProject

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from gpuinstall.catalog import Catalog
    from gpuinstall.install.decision import Decision
    from gpuinstall.install.options import InstallOptions
    from gpuinstall.lock.fit import Fit
    from gpuinstall.lock.lock import Lock
    from gpuinstall.session import Session


@dataclass(frozen=True)
class Rehearsal:
    """What an installation would carry out, and the command lines of its steps, none where nothing is left to do."""

    priced: PricedLock
    commands: tuple[tuple[str, ...], ...]

    def to_dict(self) -> dict[str, Any]:
        """Write the document of ``install --dry-run --json``."""
        bill, plan = self.priced.bill, self.priced.plan
        return {
            "plan": plan.to_dict(),
            "lock": {"changes": [change.to_dict() for change in self.priced.changes]},
            "bytes": bill.fetch if bill else 0,
            "sources": [{"host": host, "bytes": size} for host, size in bill.sources.items()] if bill else [],
            "space": [{"path": str(at), "bytes": size} for at, size in bill.folders.items() if size] if bill else [],
            "commands": [list(words) for words in self.commands],
        }


def execute(decision: Decision, options: InstallOptions, catalog: Catalog, session: Session) -> InstallResult:
    """Take the steps; raise the error of a refusal, KernelFailedError, and what resolving and installing raise."""
    existing, steps, priced = decision.existing, decision.steps, price(decision, options, catalog, session)
    for label, text in priced.said():
        session.reporter.step(label, text)
    if priced.bill:
        priced.bill.check()
    found = priced.made(options, session)
    if isinstance(decision.lock, Resolve):
        steps = decide(existing, (found,), decision.lock.plan, replace(options, verify=True)).steps
    kept = decision.changes_nothing or _lies_in(options.paths.folder, found.lock)
    verdict = existing.marker.verdict if existing.marker else {}
    for step in steps:
        if isinstance(step, BuildEnvironment):
            build(found, priced.bill, options, session)
        elif isinstance(step, Verify):
            verdict = prove(found, interpreter(step.venv), options.machine, options.here, session).to_dict()
            _mark(step.venv, found, verdict, options)
        elif isinstance(step, Swap):
            swap_in(options.paths, options.paths.staging, keep=options.keep)
        else:
            publish_lock(options.paths)
    return InstallResult(
        options.paths,
        options.machine,
        found,
        "unchanged" if kept else "written",
        verdict,
        "built" if Swap() in steps else "none" if decision.changes_nothing else "proven",
        decision.misfits,
        priced.changes if Swap() in steps else (),
        priced.bill.fetch if priced.bill else 0,
        priced.bill.caches if priced.bill else (),
        find_previous(options.paths) if Swap() in steps else None,
    )


def rehearse(decision: Decision, options: InstallOptions, catalog: Catalog, session: Session) -> Rehearsal:
    """Price the same lock and name the commands of the same steps; raise the error of a refusal."""
    priced, commands = price(decision, options, catalog, session), list[list[str]]()
    python = priced.choice.python
    if isinstance(priced.of, Resolution):
        target = priced.of.target
        project = ResolverProject(priced.choice.requirements, python, target)
        commands += [uv.compile_lock(session.python, python, target.uv_platform) + project.inputs]
    if any(isinstance(step, BuildEnvironment) for step in decision.steps):
        commands += build_commands(python, find_python(python), options.paths)
    return Rehearsal(priced, tuple(map(tuple, commands)))


def price(decision: Decision, options: InstallOptions, catalog: Catalog, session: Session) -> PricedLock:
    """Find or resolve the lock, and reckon what it costs; raise the error of a refusal."""
    source = decision.lock
    if isinstance(source, Refuse):
        raise source.error
    if isinstance(source, OwnLock):
        if source.newer:
            name = source.newer.build.name
            session.reporter.step("Newer", f"torch {name} would run here too: gpuinstall install --upgrade")
        return PricedLock(source.found)
    _say_misfits(decision, session)
    if isinstance(source, Resolve):
        return resolve_lock(decision.existing, options, catalog, session)
    return price_lock(source.found, decision.existing, options, session)


def _say_misfits(decision: Decision, session: Session) -> None:
    """Say why locks that lie here are not taken, those that were made for another request in one line."""
    others = [misfit for misfit in decision.misfits if misfit.reason.code != OTHER_REQUEST]
    if len(others) < len(decision.misfits) and isinstance(decision.lock, Resolve):
        session.reporter.step("Lock", "a new one, because the request has changed")
    for misfit in others:
        session.reporter.step("Lock", f"{misfit.lock.name} is not taken: {misfit.reason.message}")


def _lies_in(folder: Path, lock: Lock) -> bool:
    return holds_text(folder / lock.name, lock.text)


def _mark(venv: Path, found: Fit, verdict: dict[str, Any], options: InstallOptions) -> None:
    """Write into an environment, last of all, what it is."""
    lock, choice, identity = found.lock, found.choice, str(uuid.uuid4())
    remember(options.paths.venv, identity)
    Marker(
        id=identity,
        lock=lock.name,
        lock_sha256=lock.sha256,
        python=choice.python,
        torch=lock.versions["torch"],
        backend=choice.build.backend.tag,
        machine=fingerprint(options.here or options.machine),
        verdict=verdict,
    ).write(venv)
