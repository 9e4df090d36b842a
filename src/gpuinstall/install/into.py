"""torch installed into an environment that others made: what changes is shown first, and all is proven or undone."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any

from gpuinstall.environments.guard import (
    CONSTRAINTS,
    constraint_lines,
    is_own_guard_file,
    pip_configuration,
    write_guard,
)
from gpuinstall.errors import InstallationError, NoBuildError, UsageError
from gpuinstall.files import remove_path
from gpuinstall.install.foreign import ENVIRONMENT_NAMES, ForeignEnvironment, inspect_foreign
from gpuinstall.install.options import Action, InstallOptions
from gpuinstall.install.priced_lock import PricedLock
from gpuinstall.install.proof import preflighted
from gpuinstall.install.space import price_files
from gpuinstall.install.transaction import ForeignPlace, transact
from gpuinstall.install.undo import UndoRecord, find_undo, finish_undo, undo_folder
from gpuinstall.lock.beside import members_beside
from gpuinstall.lock.document import build_incomplete
from gpuinstall.lock.fetch import local_path
from gpuinstall.lock.fit import Fit, selected
from gpuinstall.lock.lock import LockedFile, VersionChange, compare_versions
from gpuinstall.lock.making import resolve_locks
from gpuinstall.lock.request import LockRequest, VersionPins
from gpuinstall.plan.requirement import parse_requirement

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.machine import Machine
    from gpuinstall.project import Project
    from gpuinstall.session import Session


@dataclass(frozen=True)
class IntoResult:
    """What came of an installation into an environment of others."""

    environment: ForeignEnvironment
    """The environment as it was before."""
    fit: Fit
    changes: tuple[VersionChange, ...]
    """The packages that changed; none if all was as requested."""
    verdict: dict[str, Any] | None
    """The document of the verdict; None if nothing was run."""
    bytes: int
    """What was to be fetched."""
    seconds: float
    previous: Path | None = None
    """The files that were replaced, which wait for ``--rollback``."""
    guard: Path | None = None
    """The constraints by which plain pip there keeps the builds."""

    def to_dict(self) -> dict[str, Any]:
        """Return the document of ``install --into --json``."""
        return {
            "plan": self.fit.plan.to_dict(),
            "environment": self.fit.environment(
                self.environment.prefix, "changed" if self.changes else "none"
            ),
            "changes": [change._asdict() for change in self.changes],
            "verdict": self.verdict,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
        }


def install_into(
    project: Project, python: Path, options: InstallOptions, *, guard: bool = False
) -> IntoResult:
    """Bring what is requested into the environment of an interpreter, made by others, and prove it.

    Leave it as it was on any failure.

    Args:
        project: What to install, and from where.
        python: The interpreter.
        options: How; ``keep`` and ``wait`` count.
        guard: Keep plain pip there to the new builds too. Once it is there, it goes with each further change.

    Raises:
        UsageError: it is the system's Python.
        KernelFailedError: a kernel failed.
        GpuInstallError: whatever choosing, resolving and installing raise.
    """
    start, request = monotonic(), project.request
    here = project.here(request)
    place = ForeignPlace(inspect_foreign(python), project, options)
    with place.held():
        if finish_undo(place.environment):
            project.reporter.step("Put back", "the changes of a run that was killed")
        # Another run may have changed it, before it was ours to hold.
        environment = inspect_foreign(python)
        place = replace(place, environment=environment)
        machine = preflighted(project.machine, here, request, project.reporter)
        fit, priced, wheels = _planned(environment, machine, project)
        action = Action.VERIFY
        if priced.changes:
            action = Action.BUILD
            priced = replace(
                priced, bill=price_files(wheels, {}, environment.root, project.session)
            )
            project.reporter.step("Download", str(priced.bill))
            priced.bill.check()
        installation = transact(place, action, fit, priced=priced, here=here)
        is_guarded = is_own_guard_file(environment.prefix / CONSTRAINTS)
        if guard or (is_guarded and priced.changes):
            is_guarded = _write_guard(environment, fit, project)
        record = find_undo(environment)
        if record and not options.keep:
            remove_path(record.folder)
    return IntoResult(
        environment=environment,
        fit=fit,
        changes=priced.changes,
        verdict=installation.verdict,
        bytes=priced.bill.fetch,
        seconds=monotonic() - start,
        previous=record.saved if record and options.keep else None,
        guard=environment.prefix / CONSTRAINTS if is_guarded else None,
    )


def dry_run_into(project: Project, python: Path) -> IntoResult:
    """Return what would change."""
    start, environment = monotonic(), inspect_foreign(python)
    fit, priced, _ = _planned(environment, project.machine, project)
    return IntoResult(
        environment, fit, priced.changes, verdict=None, bytes=0, seconds=monotonic() - start
    )


def _planned(
    environment: ForeignEnvironment, machine: Machine, project: Project
) -> tuple[Fit, PricedLock, tuple[LockedFile, ...]]:
    """Choose and resolve, near to what is there; say what changes, and what else that concerns.

    Return the lock, what changes, and the wheels that come.
    """
    catalog, session = project.catalog, project.session
    request = replace(project.request, python=environment.version, managed_pythons=False)
    kept = {
        name: version
        for name, version in environment.versions.items()
        if name not in catalog.family
    }
    pins = VersionPins(preferred=kept)
    resolution = _resolve_near(
        environment, LockRequest(machine, request, catalog, pins=pins), session
    )
    choice = resolution.choice
    session.reporter.step(
        "Build",
        f"torch {choice.build.name} · Python {choice.python}, {ENVIRONMENT_NAMES[environment.kind]}",
    )
    fit = Fit(build_incomplete(resolution, request, session), resolution.plan)
    held = compare_versions(environment.versions, fit.lock.versions)
    changes = tuple(change for change in held if change.kind != "removed")
    for change in changes:
        session.reporter.step("Change", str(change))
    changed = {change.package: change.new or "" for change in changes}
    for remark in (
        *(warning.message for warning in fit.plan.warnings),
        *environment.broken_by(changed),
    ):
        session.reporter.warn(remark)
    files = {file.package: file for file in resolution.files if local_path(file.url)}
    files |= {file.package: file for file in selected(fit.lock, choice.python, machine)}
    for name in changed:
        if name not in files or not files[name].name.endswith(".whl"):
            message = f"{name} has no wheel, and a build cannot be undone"
            hint = f"Leave {name} out, and install it with the environment's own tools afterwards"
            raise InstallationError("needs-building", message, hint=hint)
    return fit, PricedLock(resolution, changes), tuple(files[name] for name in changed)


def _resolve_near(
    environment: ForeignEnvironment, request: LockRequest, session: Session
) -> Resolution:
    """Resolve with the torch that is there, in its build or in another; with another torch only if none of it runs.

    A version or a backend that was requested is not overruled.
    """
    asked = [
        parse_requirement(text)
        for text in (*request.request.requirements, *request.request.constraints)
    ]
    installed = environment.versions.get("torch")
    if installed is None or any(
        one.name == "torch" and (one.specifier or one.url) for one in asked
    ):
        return resolve_locks([request], session)[0]
    public = installed.partition("+")[0]
    builds = [f"torch=={public}"]
    if public != installed and request.request.backend is None:
        builds.insert(0, f"torch=={installed}")
    for build in builds:
        constraints = (*request.request.constraints, build)
        near = replace(request, request=replace(request.request, constraints=constraints))
        with suppress(NoBuildError, UsageError):
            return resolve_locks([near], session)[0]
    return resolve_locks([request], session)[0]


def _write_guard(environment: ForeignEnvironment, fit: Fit, project: Project) -> bool:
    """Keep plain pip in the environment to the builds of the lock; return whether it is.

    Its own configuration, if it has one, is not ours to change.
    """
    files = [environment.prefix / name for name in (CONSTRAINTS, pip_configuration())]
    others = [file for file in files if os.path.lexists(file) and not is_own_guard_file(file)]
    if others or environment.root != environment.prefix:
        reason = (
            f"{others[0]} is not gpuinstall's"
            if others
            else "its pip may be another environment's too"
        )
        project.reporter.warn(f"plain pip may replace torch in {environment.prefix}: {reason}")
        return False
    beside = members_beside(fit, project.catalog, project.session)
    # pip installs a version that is there again if it is given by an address.
    present = {
        each.name: each.version
        for each in beside
        if each.version and each.version == environment.versions.get(each.name)
    }
    versions = fit.lock.versions_of(project.catalog.family) | present
    absent = [each for each in beside if each.name not in present]
    lines = constraint_lines(versions, absent, fit.choice.build.backend.tag)
    record = (
        find_undo(environment)
        or UndoRecord(environment.root, undo_folder(environment), "saving", (), ()).begin()
    )
    record.extend([file.name for file in files])
    source = f"torch=={fit.lock.versions['torch']}"
    constraints = project.pip_constraints(environment.prefix)
    write_guard(environment.prefix, environment.prefix, source, lines, constraints)
    return True
