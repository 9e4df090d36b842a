"""Which lock runs on a machine: decided from the locked versions and the catalogue by the rules of every choice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from packaging.specifiers import SpecifierSet
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from gpuinstall.backend import CPU, known_backend
from gpuinstall.catalog import DEFAULT_INDEX, Build, Catalog
from gpuinstall.errors import NoBuildError
from gpuinstall.finding import Reason, Rejection
from gpuinstall.lock.build_files import has_same_build_files
from gpuinstall.lock.declaration import digest, locks_in, plain
from gpuinstall.lock.lock import Lock, LockedFile, read_lock
from gpuinstall.lock.target import GLIBC, Target
from gpuinstall.plan import Plan, Rejected, choose
from gpuinstall.plan.requirement import Asked, parse_requirement
from gpuinstall.plan.values import Choice
from gpuinstall.vendors import rules_for

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from packaging.markers import Environment, Marker
    from packaging.pylock import Package

    from gpuinstall.machine import Machine
    from gpuinstall.request import Request

OTHER_REQUEST = "other-request"
"""The code of a lock that was made for another request."""


@dataclass(frozen=True)
class Fit:
    """A lock that runs on a machine, and the plan that says how."""

    lock: Lock
    plan: Plan

    @property
    def choice(self) -> Choice:
        """The build that it holds."""
        return self.plan.choice

    def environment(self, path: Path, status: str) -> dict[str, str]:
        """Write an environment that is made of it."""
        build, torch = self.choice.build, self.lock.versions["torch"]
        own = {"python": self.choice.python, "torch": torch, "backend": build.backend.tag}
        return {"path": str(path), **own, "status": status}


def fit(lock: Lock, machine: Machine, request: Request, catalog: Catalog) -> Fit | Rejection[Lock]:
    """Decide whether ``lock`` runs on ``machine`` and holds what ``request`` asks for."""
    wanted = (
        lock.pylock.requires_python or SpecifierSet()
    )  # somebody else's lock may serve several Pythons
    here = (".".join(version.split(".")[:2]) for version in reversed(machine.pythons or ()))
    tried = (lock.python, request.python, *request.preferred_pythons, *here)
    python = next((python for python in tried if python and f"{python}.99" in wanted), "")
    if reason := (
        _not_pinned(lock)
        or _not_from_wheels(lock, catalog)
        or _not_for(lock, python, machine)
        or _not_held(lock, python, request, machine)
    ):
        return Rejection(lock, reason)
    build = locked_build(lock, machine, catalog)
    if build is None:
        return Rejection(
            lock,
            Reason("unknown-build", f"the catalogue has no torch {lock.versions.get('torch')}"),
        )
    alone = catalog.only(replace(build, pythons=(python,), confidence="low"))
    plan = choose(machine, replace(request, requirements=(f"torch=={build.torch}",)), alone)
    if isinstance(plan, Plan):
        # A build for GPUs does not serve a machine without any, but for the default index's, which may have no other.
        is_idle = plan.status == "cpu" and build.backend != CPU and build.source != DEFAULT_INDEX
        if not is_idle:
            return Fit(lock, plan)
    return Rejection(lock, _why_not(plan, build, machine, catalog))


def judge(
    locks: Iterable[Lock],
    machine: Machine,
    request: Request,
    catalog: Catalog,
    *,
    exact: bool = False,
) -> list[Fit | Rejection[Lock]]:
    """Judge locks; ``exact`` takes only those made from the very requirements, as far as they say so."""
    judged: list[Fit | Rejection[Lock]] = []
    for lock in locks:
        if exact and not same_inputs(lock, request):
            judged.append(
                Rejection(lock, Reason(OTHER_REQUEST, f"it was made for {' '.join(lock.inputs)}"))
            )
        else:
            judged.append(fit(lock, machine, request, catalog))
    return judged


def misfit_rows(misfits: Iterable[Rejection[Lock]]) -> list[dict[str, str]]:
    """Return locks that do not fit as ``sync --json`` lists them."""
    return [{"lock": misfit.candidate.name, **misfit.reason._asdict()} for misfit in misfits]


def read_locks(folder: Path) -> list[Lock]:
    """Read every lock in a folder; raise LockError for one that cannot be read."""
    return [read_lock(path) for path in locks_in(folder)]


def best(
    judged: Iterable[Fit | Rejection[Lock]], machine: Machine, request: Request, catalog: Catalog
) -> Fit | None:
    """Return the lock that runs with the build that a plan would choose among theirs; None if none runs."""
    fits = [verdict for verdict in judged if isinstance(verdict, Fit)]
    if not fits:
        return None
    builds = catalog.only(*(verdict.choice.build for verdict in fits))
    plan = choose(machine, replace(request, requirements=("torch",)), builds)
    if isinstance(plan, Plan):
        return next(
            (verdict for verdict in fits if verdict.choice.build == plan.choice.build), fits[0]
        )
    return fits[0]


def locked_build(lock: Lock, machine: Machine, catalog: Catalog) -> Build | None:
    """The catalogue's build that a lock holds for ``machine``: by torch's local version, or the default index's."""
    text = lock.versions.get("torch")
    if text is None:
        return None
    torch = Version(text)
    backend = known_backend(torch.local)
    served = catalog.serving(backend.kind) if backend else catalog
    builds = [
        build
        for build in served.builds_for(machine.os, machine.arch)
        if str(build.torch) == torch.public
    ]
    if torch.local:
        return next((build for build in builds if build.backend.tag == torch.local), None)
    unlabelled = [build for build in builds if build.on_default_index or not build.labelled]
    return next((replace(build, source=DEFAULT_INDEX) for build in unlabelled), None)


def selected(lock: Lock, python: str, machine: Machine) -> tuple[LockedFile, ...]:
    """The files with an address that the standard's own selection takes on ``machine``."""
    return tuple(
        LockedFile(package.name, entry.url, entry.hashes.get("sha256"))
        for package, entry in _select(lock, python, machine)
        if getattr(entry, "url", None) and getattr(entry, "hashes", None)
    )


def best_files(
    files: Iterable[LockedFile], python: str, machine: Machine
) -> tuple[LockedFile, ...]:
    """Return of each package the file that ``selected`` would take of a lock with these files."""
    ranks = {tag: position for position, tag in enumerate(_target_of(machine).tags(python))}
    best: dict[str, tuple[int, LockedFile]] = {}
    for file in files:
        tags = parse_wheel_filename(file.name)[3] if file.name.endswith(".whl") else ()
        rank = min((ranks[tag] for tag in tags if tag in ranks), default=len(ranks))
        if file.package not in best or rank < best[file.package][0]:
            best[file.package] = rank, file
    return tuple(file for _, file in best.values())


def same_inputs(lock: Lock, request: Request) -> bool:
    """Whether a lock was made from the very requirements, as far as it says what it was made from."""
    if not lock.inputs:
        return True
    same = plain(lock.inputs) == plain(request.requirements) and plain(lock.constraints) == plain(
        request.constraints
    )
    same = (
        same
        and lock.sources == request.sources
        and has_same_build_files(lock, request.build_files_digest)
    )
    same = same and (lock.code_check or not request.sourcing.code_check)
    return same and lock.evidence.get("preferred-digest", digest(())) == digest(request.preferred)


def uninstalled(lock: Lock, target: Target, python: str) -> tuple[str, ...]:
    """The packages that their own markers keep out of every environment that a lock is for; ``python`` is ``X.Y``."""
    environment: dict[str, Any] = target.environment(python)

    def fails(marker: Marker) -> bool:
        try:
            return not marker.evaluate(environment)
        except (ValueError, KeyError):  # a marker of names that no environment has
            return True

    return tuple(
        package.name for package in lock.pylock.packages if package.marker and fails(package.marker)
    )


def _why_not(plan: Plan | Rejected, build: Build, machine: Machine, catalog: Catalog) -> Reason:
    maker = rules_for(machine, catalog, {build.backend.kind}).name
    if not machine.gpus and build.backend != CPU:
        return Reason(
            "gpu-build", f"it is for {maker} GPUs ({build.backend}), but this machine has none"
        )
    is_refused = isinstance(plan, Rejected) and plan.error_class is NoBuildError
    if machine.gpus and build.backend == CPU and is_refused:
        return Reason(
            "cpu-build",
            f"it has the CPU build, but this machine has an {maker} GPU (--target cpu installs it)",
        )
    return plan.rejected[0].reason if plan.rejected else plan.reasons[0]


def _not_pinned(lock: Lock) -> Reason | None:
    """Return what no hash pins, unless the lock was made so because somebody asked for it."""
    strangers = [name for name in lock.addresses if name not in lock.meant_unhashed]
    if not strangers:
        return None
    message = (
        f"{' and '.join(strangers)} would come from a folder or repository, which cannot be hashed"
    )
    return Reason("unpinned", f"{message}; if that is intended, request it with gpuinstall lock")


def _not_from_wheels(lock: Lock, catalog: Catalog) -> Reason | None:
    def is_built(package: Package) -> bool:
        place = (package.archive.url or package.archive.path or "") if package.archive else ""
        return not (package.wheels or place.partition("#")[0].endswith(".whl"))

    built = [
        package.name
        for package in lock.pylock.packages
        if package.name in catalog.family and is_built(package)
    ]
    message = (
        f"{' and '.join(built)} has no wheel, and PyTorch packages are never built from source"
    )
    return Reason("wrong-source", message) if built else None


def _not_for(lock: Lock, python: str, machine: Machine) -> Reason | None:
    from packaging.pylock import PylockSelectError

    if not python:
        return Reason(
            "no-python",
            f"it is for Python {lock.pylock.requires_python}, which is not installed here",
        )
    markers, here = lock.pylock.environments or (), _markers_of(machine, python)
    if markers and not any(marker.evaluate(here) for marker in markers):
        return Reason("other-platform", f"it is for {' or '.join(map(str, markers))}")
    try:
        _select(lock, python, machine)
    except PylockSelectError as error:
        return Reason("other-platform", str(error))
    return None


def _not_held(lock: Lock, python: str, request: Request, machine: Machine) -> Reason | None:
    here, left_out = _markers_of(machine, python), uninstalled(lock, _target_of(machine), python)
    missing = [
        requirement.text
        for requirement in map(parse_requirement, request.requirements)
        if requirement.marker is None or requirement.marker.evaluate(here)
        if requirement.name in left_out or not _holds(lock, requirement)
    ]
    missing += [f"{name} (its marker never holds)" for name in left_out if lock.evidence]
    for constraint in map(parse_requirement, request.constraints):
        version = lock.versions.get(constraint.name)
        if version and constraint.specifier and not constraint.specifier.contains(version):
            missing.append(f"{constraint.text} (a constraint)")
    return Reason(OTHER_REQUEST, f"it lacks {', '.join(missing)}") if missing else None


def _target_of(machine: Machine) -> Target:
    """The target that a machine is, with its own glibc."""
    return Target(CPU.tag, machine.os, machine.arch, machine.glibc or GLIBC)


def _markers_of(machine: Machine, python: str) -> dict[str, str]:
    """The values of a machine's markers for ``X.Y``: its patch release there, or the newest that there can be."""
    here = (
        version for version in reversed(machine.pythons or ()) if version.startswith(f"{python}.")
    )
    return _target_of(machine).environment(next(here, f"{python}.99"))


def _select(lock: Lock, python: str, machine: Machine) -> list[tuple[Package, Any]]:
    environment = cast("Environment", _markers_of(machine, python))
    return list(lock.pylock.select(environment=environment, tags=_target_of(machine).tags(python)))


def _holds(lock: Lock, requirement: Asked) -> bool:
    """Whether a lock has what is asked for; an address is held where the lock was made from it."""
    if requirement.url:
        return requirement.text in plain(lock.inputs)
    version = lock.versions.get(requirement.name)
    if version is None:
        return requirement.name in lock.addresses and requirement.specifier is None
    return requirement.specifier is None or requirement.specifier.contains(
        version, prereleases=True
    )
