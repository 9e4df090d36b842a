"""Install torch into an existing environment: what changes is shown first, and all is proven or undone."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Any

from gpuinstall.base import uv
from gpuinstall.base.environment_paths import interpreter, packages_folders
from gpuinstall.base.errors import (
    InstallationError,
    MachineError,
    NoBuildError,
    UsageError,
)
from gpuinstall.base.requirement import parse_requirement
from gpuinstall.base.shell import quoted
from gpuinstall.base.text import number_of, some
from gpuinstall.base.values import dataclass
from gpuinstall.environments.environment import packages_called
from gpuinstall.environments.guard import (
    CONSTRAINTS,
    GUARD_FILES,
    constraint_lines,
    guarded_lines,
    is_own_guard_file,
    pip_configuration,
    renew_uv_guard,
    write_guard,
)
from gpuinstall.environments.packages import broken_by, read_packages
from gpuinstall.environments.records import check_records
from gpuinstall.environments.rights import check_writable
from gpuinstall.environments.written_files import check_written_files
from gpuinstall.install.file_change import (
    Change,
    check_inside,
    plan_change,
    recorded_names,
)
from gpuinstall.install.foreign import ForeignEnvironment, inspect_foreign
from gpuinstall.install.hold import hold
from gpuinstall.install.journal import Place
from gpuinstall.install.priced_lock import PricedLock, price_files
from gpuinstall.install.proof import check_import, preflighted, prove
from gpuinstall.install.transaction import changing, commit, journal_bytes
from gpuinstall.install.unpack import packages_beside, write_front
from gpuinstall.lock.file.fetch import Transfer, cache_words, local_path, run_uv
from gpuinstall.lock.file.fit import Fit, selected
from gpuinstall.lock.file.lock import LockedFile, VersionChange, compare_versions
from gpuinstall.lock.file.write import build_incomplete
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.lock.solve.members import members_beside
from gpuinstall.lock.solve.solve import resolve_locks

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from gpuinstall.base.machine import Machine
    from gpuinstall.base.request import Request
    from gpuinstall.environments.packages import InstalledPackage
    from gpuinstall.lock.uv.resolution import Resolution
    from gpuinstall.project import Project
    from gpuinstall.sources.session import Session
    from gpuinstall.verify.verdict import Verdict


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
    rollback: Path | None = None
    """The journal by which ``env rollback`` takes the last change back; None if there is none."""
    guard: Path | None = None
    """The constraints by which plain pip there keeps the builds."""
    uv_guard: Path | None = None
    """The settings by which uv keeps them in the folder of an application."""

    def to_dict(self) -> dict[str, Any]:
        """Return the document of ``install --into --json``."""
        return {
            "plan": self.fit.plan.to_dict(),
            "environment": self.fit.environment(
                self.environment.prefix, "changed" if self.changes else "none"
            ),
            "changes": [change._asdict() for change in self.changes],
            "rollback": self.rollback
            and {"path": str(self.rollback), "bytes": journal_bytes(self.rollback)},
            "verdict": self.verdict,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
        }


def install_into(
    project: Project,
    python: Path,
    *,
    repair: bool = False,
    is_dry_run: bool = False,
) -> IntoResult:
    """Bring what is requested into the environment of an interpreter, made by others, and prove it.

    Leave it as it was on any failure. Other installers are kept to the new builds: pip there, and uv in the folder of
    the application that the environment belongs to.

    Args:
        project: What to install, and from where.
        python: The interpreter.
        repair: Bring back the builds that were proven there before.
        is_dry_run: Only show what would change.

    Raises:
        UsageError: it is the system's Python, or there is nothing to bring back.
        KernelFailedError: a kernel failed.
        GpuInstallError: whatever choosing, resolving and installing raise.
    """
    start = monotonic()
    request, reporter = project.request, project.reporter
    environment = inspect_foreign(python)
    if is_dry_run:
        priced, _ = _planned(environment, project.machine, project, repair=repair)
        seconds = monotonic() - start
        return IntoResult(
            environment, priced.fit, priced.changes, None, bytes=0, seconds=seconds
        )
    here = project.here(request)
    place = Place.of_others(environment)
    check_writable(path for path in environment.paths.values() if path.exists())
    check_records()
    with hold(place, reporter):
        # Another run may have changed it, before it was ours to hold.
        environment = inspect_foreign(python)
        machine = preflighted(project.machine, here, request, reporter)
        priced, wheels = _planned(environment, machine, project, repair=repair)
        names = {change.package for change in priced.changes}
        leaving = packages_called(names, place.packages_folders)
        check_inside(place, recorded_names(leaving, place.root))
        if priced.changes:
            bill = price_files(wheels, {}, environment.root, project.session)
            priced = replace(priced, bill=bill)
            reporter.step("Download", str(bill))
            bill.check()
        staging = place.work / f"staging-{os.urandom(4).hex()}"
        if priced.changes:
            _unpack(environment, priced, staging, project)
        is_guarded = is_own_guard_file(environment.prefix / CONSTRAINTS)
        if priced.changes or not is_guarded:
            is_guarded = _write_guard(environment, staging, priced.fit, project)
        change = _change(environment, place, staging, leaving)
        ahead = None
        if "torch" in names:
            ahead = _prove_ahead(environment, staging, priced.fit, here, project)
        if change.names:
            with changing(change, reporter) as journal:
                if ahead:
                    check_import(environment.python)
                verdict = ahead or prove(priced.fit, python, here, project)
                commit(place, journal, reporter)
        else:
            verdict = prove(priced.fit, python, here, project)
        uv_guard = renew_uv_guard(environment.prefix)
    return IntoResult(
        environment=environment,
        fit=priced.fit,
        changes=priced.changes,
        verdict=verdict.to_dict(),
        bytes=priced.bill.fetch,
        seconds=monotonic() - start,
        rollback=place.last if place.last.exists() else None,
        guard=environment.prefix / CONSTRAINTS if is_guarded else None,
        uv_guard=uv_guard,
    )


def _unpack(
    environment: ForeignEnvironment,
    priced: PricedLock,
    staging: Path,
    project: Project,
) -> None:
    """Have the wheels fetched, and unpacked beside the environment."""
    session, fit, reporter = project.session, priced.fit, project.reporter
    private_lock = session.scratch / "pylock.private.toml"
    names = {change.package for change in priced.changes}
    transfer = Transfer(
        fit.lock,
        fit.choice,
        private_lock,
        session.folder,
        missing=priced.bill.missing,
        heads=priced.heads,
        only=names,
    )
    words = cache_words(fit.lock, fit.choice, session)
    start = monotonic()
    transfer.run(
        uv.put_below(environment.python, private_lock, staging, words), session
    )
    installed = number_of(len(names), "package")
    reporter.detail("Unpacked", installed, monotonic() - start)
    new = read_packages(packages_folders(staging))
    staying = packages_beside(new, environment.paths["purelib"], names)
    for fault in check_written_files(new, names, staging, staying):
        reporter.warn(fault.message)


def _change(
    environment: ForeignEnvironment,
    place: Place,
    staging: Path,
    leaving: Collection[InstalledPackage],
) -> Change:
    """Return what is to be done to the files of the environment."""
    root, paths = environment.root, environment.paths
    folders = packages_folders(staging)
    rows = {
        **{below(folder, staging): below(paths["purelib"], root) for folder in folders},
        "bin/": below(paths["scripts"], root),
        "Scripts/": below(paths["scripts"], root),
        "": below(paths["data"], root),
    }

    def placed(name: str) -> str:
        start = next(start for start in rows if name.startswith(start))
        return rows[start] + name.removeprefix(start)

    prefix = below(environment.prefix, root)
    guard = {
        prefix + name: staging / name
        for name in GUARD_FILES
        if (staging / name).exists()
    }
    arriving = dict.fromkeys(read_packages(folders), staging)
    return plan_change(
        place, arriving=arriving, leaving=leaving, further=guard, placed=placed
    )


def below(folder: Path, root: Path) -> str:
    """Return how the paths of what lies in a folder begin below another: empty, or with a slash at its end."""
    name = folder.relative_to(root).as_posix()
    return "" if name == "." else f"{name}/"


def _prove_ahead(
    environment: ForeignEnvironment,
    staging: Path,
    fit: Fit,
    here: Machine | None,
    project: Project,
) -> Verdict | None:
    """Run kernels with what comes in front of the environment's own packages.

    None if its Python makes no virtual environment: a portable one.
    """
    try:
        run_uv(uv.create(environment.python, staging), project.session)
    except InstallationError:
        return None
    write_front(packages_folders(staging)[0], environment.path)
    return prove(fit, interpreter(staging), here, project)


def _proven_request(environment: ForeignEnvironment, request: Request) -> Request:
    """Return a request held to the builds that the guard of an environment names."""
    lines = guarded_lines(environment.prefix)
    if not lines:
        raise UsageError(
            "nothing-proven",
            f"{environment.prefix} has no record of the builds that were proven there",
            hint=f"gpuinstall install --into --python {quoted(environment.python)}",
        )
    # "torchaudio==0+none.for.cu132" keeps pip from what does not exist, and was never there.
    versions = [line for line in lines if "==" in line and "+none" not in line]
    return replace(request, constraints=(*request.constraints, *versions))


def _planned(
    environment: ForeignEnvironment,
    machine: Machine,
    project: Project,
    *,
    repair: bool,
) -> tuple[PricedLock, list[LockedFile]]:
    """Choose and resolve, near to what is there; report what changes, and what else that concerns.

    Returns:
        The lock with what changes, and the wheels that come.
    """
    session, reporter, request = project.session, project.reporter, project.request
    if repair:
        request = _proven_request(environment, request)
    request = replace(request, python=environment.version, managed_pythons=False)
    # The family's versions follow torch's, which is kept by itself.
    outside = environment.versions.keys() - project.catalog.family
    near = {name: environment.versions[name] for name in sorted(outside)}
    lock_request = LockRequest(machine, request, project.catalog)
    resolution = _resolve_near(environment, lock_request, near, session)
    choice = resolution.choice
    reporter.step("Build", f"torch {choice.build.name} · Python {choice.python}")
    fit = Fit(build_incomplete(resolution, request, session), resolution.plan)
    differences = compare_versions(environment.versions, fit.lock.versions)
    changes = [change for change in differences if change.kind != "removed"]
    new_versions = {change.package: change.new or "" for change in changes}
    added = [str(change).removeprefix("+ ") for change in changes if not change.old]
    if added:
        reporter.step("Changes", f"+ {some(added)}")
    for change in changes:
        if change.old:
            reporter.step("Changes", str(change))
    for warning in fit.plan.warnings:
        reporter.warn(warning.message)
    installed = read_packages(environment.packages_folders)
    for conflict in broken_by(new_versions, installed):
        reporter.warn(conflict)
    # What is there and no longer required stays: it is not ours to remove.
    wheels = _wheels_of(new_versions, fit, resolution, machine)
    heads = resolution.hashes.missing
    return PricedLock(fit, tuple(changes), heads=heads), wheels


def _wheels_of(
    names: Iterable[str],
    fit: Fit,
    resolution: Resolution,
    machine: Machine,
) -> list[LockedFile]:
    """Return the wheels of packages; raise InstallationError if one has none."""
    local_files = [file for file in resolution.files if local_path(file.url)]
    others = selected(fit.lock, fit.choice.python, machine)
    files = {file.package: file for file in (*local_files, *others)}
    wheels = []
    for name in names:
        file = files.get(name)
        if file is None or not file.name.endswith(".whl"):
            raise InstallationError(
                "needs-building",
                f"{name} has no wheel, and a build cannot be undone",
                hint=f"Leave {name} out, and install it with the environment's own tools afterwards",
            )
        wheels.append(file)
    return wheels


def _resolve_near(
    environment: ForeignEnvironment,
    request: LockRequest,
    installed: Mapping[str, str],
    session: Session,
) -> Resolution:
    """Resolve with the torch that is there, in its build or in this machine's; with another only if none of it runs.

    A version or a backend that was requested is not overruled.
    """
    for constraint in _torch_constraints(environment, request.request):
        constraints = (*request.request.constraints, constraint)
        near = replace(
            request, request=replace(request.request, constraints=constraints)
        )
        with suppress(MachineError, NoBuildError, UsageError):
            return resolve_locks([near], session, installed=installed)[0]
    return resolve_locks([request], session, installed=installed)[0]


def _torch_constraints(
    environment: ForeignEnvironment, request: Request
) -> Iterator[str]:
    """Yield what keeps a resolution to the torch of an environment, the narrowest first."""
    installed = environment.versions.get("torch")
    if installed is None:
        return
    for text in (*request.requirements, *request.constraints):
        requirement = parse_requirement(text)
        if requirement.name == "torch" and (requirement.specifier or requirement.url):
            return
    public, _, label = installed.partition("+")
    # A CPU build that is there was not requested: pip takes it on machines with a GPU, too.
    if label not in ("", "cpu") and request.backend is None:
        yield f"torch=={installed}"
    yield f"torch=={public}"


def _write_guard(
    environment: ForeignEnvironment,
    staging: Path,
    fit: Fit,
    project: Project,
) -> bool:
    """Write what keeps plain pip in the environment to the builds of the lock; return whether it is kept.

    Its own configuration, if it has one, is not ours to change.
    """
    prefix = environment.prefix
    reason = _reason_against_guard(environment)
    if reason:
        project.reporter.warn(f"plain pip may replace torch in {prefix}: {reason}")
        return False
    versions = fit.lock.versions_of(project.catalog.family)
    absent = []
    for member in members_beside(fit, project.catalog, project.session):
        if member.version and member.version == environment.versions.get(member.name):
            # pip installs a version that is there again if it is given by an address.
            versions[member.name] = member.version
        else:
            absent.append(member)
    write_guard(
        staging,
        prefix,
        source=f"torch=={fit.lock.versions['torch']}",
        lines=constraint_lines(versions, absent, fit.choice.build.backend.tag),
        constraints=project.pip_constraints(prefix),
    )
    return True


def _reason_against_guard(environment: ForeignEnvironment) -> str | None:
    for name in (CONSTRAINTS, pip_configuration()):
        file = environment.prefix / name
        if os.path.lexists(file) and not is_own_guard_file(file):
            return f"{file} is not gpuinstall's"
    if environment.root != environment.prefix:
        return "its pip may be another environment's too"
    return None
