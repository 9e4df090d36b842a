"""torch put into an environment that others made: the difference shown, put in, proven, or put back as it was."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any

from gpuinstall import uv
from gpuinstall.environments.guard import (
    CONSTRAINTS,
    constraint_lines,
    is_own_guard_file,
    pip_configuration,
    write_guard,
)
from gpuinstall.environments.packages import read_packages
from gpuinstall.errors import InstallationError, NoBuildError, UsageError
from gpuinstall.files import remove_path, unwritable
from gpuinstall.install.environment_lock import WAIT_S
from gpuinstall.install.foreign import ENVIRONMENT_NAMES, ForeignEnvironment, inspect_foreign
from gpuinstall.install.proof import check_written_files, preflighted, prove
from gpuinstall.install.space import bill, sizes
from gpuinstall.install.undo import UndoRecord, find_undo, finish_undo, plan_undo, undo_folder
from gpuinstall.lock.beside import members_beside
from gpuinstall.lock.document import build_incomplete
from gpuinstall.lock.fetch import local_path
from gpuinstall.lock.fit import Fit, selected
from gpuinstall.lock.lock import LockedFile, VersionChange, compare_versions
from gpuinstall.lock.making import resolve_locks
from gpuinstall.lock.request import LockRequest, VersionPins
from gpuinstall.lock.transfer import Transfer, cache_words, cached_wheel, run_uv
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.shell import quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.machine import Machine
    from gpuinstall.project import Project
    from gpuinstall.session import Session
    from gpuinstall.verify.verdict import Verdict
    from gpuinstall.web import Head


@dataclass(frozen=True)
class IntoResult:
    """What came of it: the packages that changed, none where all was as it is asked for, and the proof."""

    environment: ForeignEnvironment
    fit: Fit
    changes: tuple[VersionChange, ...]
    verdict: dict[str, Any] | None
    bytes: int
    seconds: float
    saved: Path | None = None
    """Where the files that were replaced wait for ``--rollback``."""
    guard: Path | None = None
    """The constraints by which plain pip there keeps the builds."""

    def to_dict(self) -> dict[str, Any]:
        """Write the document of ``install --into --json``."""
        return {
            "plan": self.fit.plan.to_dict(),
            "environment": self.fit.environment(self.environment.prefix, "changed" if self.changes else "none"),
            "changes": [change._asdict() for change in self.changes],
            "verdict": self.verdict,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
        }


def install_into(
    project: Project, python: Path, wait: float = WAIT_S, *, keep: bool = True, guard: bool = False
) -> IntoResult:
    """Put what is asked for into the environment of an interpreter, made by others, and prove it.

    Leave it as it was on any failure.

    Args:
        project: What to install, and from where.
        python: The interpreter.
        wait: The seconds to wait for another run.
        keep: Keep the files that are replaced, for ``roll_back_into``.
        guard: Keep plain pip there to the new builds too. Once it is there, it goes with each further change.

    Raise UsageError for the system's Python, KernelFailedError, and what choosing, resolving and installing raise.
    """
    start, environment, request = monotonic(), inspect_foreign(python), project.request
    here = project.here(request)
    with _held(environment, wait):
        if finish_undo(environment):
            project.reporter.step("Put back", "the changes of a run that was killed")
            environment = inspect_foreign(python)
        machine = preflighted(project.machine, here, request, project.reporter)
        change = _planned(environment, machine, project)
        verdict, fetched = _carry_out(change, machine, here, project.session)
        is_guarded = is_own_guard_file(environment.prefix / CONSTRAINTS)
        if guard or (is_guarded and change.changes):
            is_guarded = _write_guard(change, project)
        record = find_undo(environment)
        if record and not keep:
            remove_path(record.folder)
    return IntoResult(
        environment,
        change.fit,
        change.changes,
        verdict.to_dict(),
        fetched,
        monotonic() - start,
        saved=record.saved if record and keep else None,
        guard=environment.prefix / CONSTRAINTS if is_guarded else None,
    )


def roll_back_into(python: Path, wait: float) -> tuple[ForeignEnvironment, tuple[VersionChange, ...]]:
    """Undo the last change of an environment that others made; return it as it is then, and what has changed.

    Raise UsageError if there is none, or something else has changed its packages since.
    """
    environment = inspect_foreign(python)
    with _held(environment, wait):
        if not finish_undo(environment):
            record = find_undo(environment)
            if record is None:
                message = f"there is no change by gpuinstall to undo in {environment.prefix}"
                folder = undo_folder(environment)
                why = f"this user did not make the change in {folder} here" if folder.exists() else None
                raise UsageError("no-previous", message, why=why)
            if not record.is_last_change:
                message = f"the packages in {environment.prefix} have changed since gpuinstall installed into it"
                why = f"restoring files would mix both versions; the replaced files are in {record.saved}"
                raise UsageError("changed-since", message, why=why, hint=f"rm -r {quoted(record.folder)}")
            record.undo()
    restored = inspect_foreign(python)
    return restored, compare_versions(environment.versions, restored.versions)


def dry_run_into(project: Project, python: Path) -> IntoResult:
    """Say what would change."""
    start, environment = monotonic(), inspect_foreign(python)
    change = _planned(environment, project.machine, project)
    return IntoResult(environment, change.fit, change.changes, None, 0, monotonic() - start)


@dataclass(frozen=True)
class _Change:
    """The packages that change, and the files that they come from."""

    environment: ForeignEnvironment
    fit: Fit
    changes: tuple[VersionChange, ...]
    files: tuple[LockedFile, ...]
    heads: Mapping[LockedFile, Head]


def _planned(environment: ForeignEnvironment, machine: Machine, project: Project) -> _Change:
    """Choose and resolve, near to what is there; say what changes, and what else that concerns."""
    catalog, session = project.catalog, project.session
    request = replace(project.request, python=environment.version, managed_pythons=False)
    kept = {name: version for name, version in environment.versions.items() if name not in catalog.family}
    pins = VersionPins(preferred=kept)
    resolution = _resolve_near(environment, LockRequest(machine, request, catalog, pins=pins), session)
    plan, choice = resolution.plan, resolution.choice
    session.reporter.step(
        "Build", f"torch {choice.build.name} · Python {choice.python}, {ENVIRONMENT_NAMES[environment.kind]}"
    )
    lock = build_incomplete(resolution, request, session)
    held = compare_versions(environment.versions, lock.versions)
    changes = tuple(change for change in held if change.kind != "removed")
    for change in changes:
        session.reporter.step("Change", str(change))
    changed = {change.package: change.new or "" for change in changes}
    for remark in (*(warning.message for warning in plan.warnings), *environment.broken_by(changed)):
        session.reporter.warn(remark)
    local = {file.package: file for file in resolution.files if local_path(file.url)}
    files = local | {file.package: file for file in selected(lock, choice.python, machine)}
    for name in changed:
        if name not in files or not files[name].name.endswith(".whl"):
            message = f"{name} has no wheel, and a build cannot be undone"
            hint = f"Leave {name} out, and install it with the environment's own tools afterwards"
            raise InstallationError("needs-building", message, hint=hint)
    wheels = tuple(files[name] for name in changed)
    return _Change(environment, Fit(lock, plan), changes, wheels, resolution.hashes.missing)


def _resolve_near(environment: ForeignEnvironment, request: LockRequest, session: Session) -> Resolution:
    """Resolve with the torch that is there, in its build or in another; with another torch only if none of it runs.

    A version or a backend that was requested is not overruled.
    """
    asked = [parse_requirement(text) for text in (*request.request.requirements, *request.request.constraints)]
    installed = environment.versions.get("torch")
    if installed is None or any(one.name == "torch" and (one.specifier or one.url) for one in asked):
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


def _carry_out(change: _Change, machine: Machine, here: Machine | None, session: Session) -> tuple[Verdict, int]:
    """Put the packages in and prove them; put everything back where that fails, or is interrupted."""
    python = change.environment.python
    if not change.changes:
        return prove(change.fit, python, machine, here, session), 0
    present = [file for file in change.files if cached_wheel(file, session.uv_cache)]
    price = bill(sizes(change.files, {}, present, session), present, change.environment.root, uv_cache=session.uv_cache)
    session.reporter.step("Download", str(price))
    price.check()
    fit, private_lock, links = change.fit, session.scratch / "pylock.private.toml", session.scratch / "unpacked"
    names = {version.package for version in change.changes}
    transfer = Transfer(fit.lock, fit.choice, private_lock, session.folder, price.missing, change.heads, only=names)
    transfer.run(uv.unpack(python, private_lock, links, cache_words(fit.lock, fit.choice, session)), session)
    wheels = [info.resolve().parent.parent for info in sorted(links.glob("*.dist-info/METADATA"))]
    record = plan_undo(change.environment, sorted(names), wheels).begin()
    try:
        record, start = record.save(), monotonic()
        run_uv(uv.put_into(python, private_lock, cache_words(None, fit.choice, session)), session.from_cache())
        session.reporter.step("Installed", f"{len(wheels)} packages", monotonic() - start)
        folders = dict.fromkeys(change.environment.paths[kind] for kind in ("purelib", "platlib"))
        for fault in check_written_files(read_packages(folders), names, change.environment.root):
            session.reporter.warn(fault.message)
        verdict = prove(fit, python, machine, here, session)
    except BaseException as error:
        record.undo()
        session.reporter.warn("the environment was restored")
        if isinstance(error, OSError):
            raise unwritable(change.environment.root, error) from None
        raise
    record.keep(session.reporter)
    return verdict, price.fetch


def _write_guard(change: _Change, project: Project) -> bool:
    """Keep plain pip in the environment to the builds of the lock; return whether it is.

    Its own configuration, if it has one, is not ours to change.
    """
    environment, fit, family = change.environment, change.fit, project.catalog.family
    files = [environment.prefix / name for name in (CONSTRAINTS, pip_configuration())]
    others = [file for file in files if os.path.lexists(file) and not is_own_guard_file(file)]
    if others or environment.root != environment.prefix:
        reason = f"{others[0]} is not gpuinstall's" if others else "its pip may be another environment's too"
        project.reporter.warn(f"plain pip may replace torch in {environment.prefix}: {reason}")
        return False
    beside = members_beside(fit, project.catalog, project.session)
    # pip installs a version that is there again if it is given by an address.
    present = {each.name for each in beside if each.version and each.version == environment.versions.get(each.name)}
    versions = fit.lock.versions_of(family) | {name: environment.versions[name] for name in present}
    absent = [each for each in beside if each.name not in present]
    lines = constraint_lines(versions, absent, fit.choice.build.backend.tag)
    record = find_undo(environment) or UndoRecord(environment.root, undo_folder(environment), "saving", (), ()).begin()
    record.extend([file.name for file in files])
    source = f"torch=={fit.lock.versions['torch']}"
    constraints = project.pip_constraints(environment.prefix)
    write_guard(environment.prefix, environment.prefix, source, lines, constraints)
    return True


@contextmanager
def _held(environment: ForeignEnvironment, wait: float) -> Iterator[None]:
    """Keep two runs apart; raise InstallationError where the environment may not be written, or is not left free."""
    from filelock import FileLock, Timeout

    path = undo_folder(environment).with_suffix(".lock")
    guard = FileLock(path)
    try:
        guard.acquire(timeout=wait)
    except Timeout:
        message = f"another run is using {environment.prefix}"
        raise InstallationError("busy", message, hint="the same with --wait 1800   # or wait for it to end") from None
    except OSError as error:
        raise unwritable(path, error) from None
    try:
        yield
    finally:
        if os.name == "nt":  # which does not remove a file that is open
            guard.release()
        with suppress(OSError):
            path.unlink(missing_ok=True)
        guard.release()
