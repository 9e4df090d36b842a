"""Which lock runs on a machine: decided from the locked versions and the catalogue by the rules of every choice."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from gpuinstall.catalog.build import DEFAULT_INDEX
from gpuinstall.lock.document import LockedFile
from gpuinstall.lock.target import GLIBC, Target
from gpuinstall.plan import choose
from gpuinstall.plan.values import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from packaging.markers import Environment
    from packaging.pylock import Package

    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.build import Build
    from gpuinstall.lock.lock import Lock
    from gpuinstall.machine import Machine
    from gpuinstall.plan import Plan
    from gpuinstall.plan.values import Choice
    from gpuinstall.request import Request


@dataclass(frozen=True)
class Fit:
    """A lock that runs on a machine: its plan, and the choice in it."""

    lock: Lock
    plan: Plan
    choice: Choice


@dataclass(frozen=True)
class Misfit:
    """A lock that does not, and why."""

    lock: Lock
    reason: Reason


def fit(lock: Lock, machine: Machine, request: Request, catalog: Catalog) -> Fit | Misfit:
    """Decide whether ``lock`` runs on ``machine`` and holds what ``request`` asks for."""
    if lock.python is None:
        return Misfit(lock, Reason("no-python", "it does not say which Python it is for"))
    if reason := _not_for(lock, machine):
        return Misfit(lock, reason)
    build = locked_build(lock, machine, catalog)
    if build is None:
        return Misfit(lock, Reason("unknown-build", f"the catalogue has no torch {lock.versions.get('torch')}"))
    if missing := unsatisfied(lock, lock.python, request.requirements, machine):
        return Misfit(lock, Reason("other-request", f"it does not hold {', '.join(missing)}"))
    alone = replace(catalog, builds=(replace(build, pythons=(lock.python,), confidence="low"),))
    plan = choose(machine, replace(request, requirements=(f"torch=={build.torch}",)), alone)
    if plan.choice is not None:
        return Fit(lock, plan, plan.choice)
    why = plan.rejected[0] if plan.rejected else plan.reasons[0]
    return Misfit(lock, Reason(why.code, why.message))


def best(fits: Iterable[Fit]) -> Fit | None:
    """Of the locks that run, the one with the newest torch and then the newest toolkit."""
    return max(fits, key=_preference, default=None)


def unsatisfied(lock: Lock, python: str, requirements: Iterable[str], machine: Machine) -> tuple[str, ...]:
    """The requirements that the locked versions do not satisfy."""
    environment = target_of(machine).environment(python)
    wanted = [requirement for requirement in map(Requirement, requirements) if _applies(requirement, environment)]
    return tuple(str(requirement) for requirement in wanted if not _holds(lock, requirement))


def locked_build(lock: Lock, machine: Machine, catalog: Catalog) -> Build | None:
    """The catalogue's build that a lock holds for ``machine``: by torch's local version, or the default index's."""
    text = lock.versions.get("torch")
    if text is None:
        return None
    torch = Version(text)
    builds = [build for build in catalog.builds_for(machine.os, machine.arch) if str(build.torch) == torch.public]
    if torch.local:
        return next((build for build in builds if build.backend == torch.local), None)
    unlabelled = [build for build in builds if build.on_default_index or not build.labelled]
    return next((replace(build, source=DEFAULT_INDEX) for build in unlabelled), None)


def target_of(machine: Machine, backend: str = "cpu") -> Target:
    """The target that a machine is, with its own glibc."""
    return Target(backend, machine.os, machine.arch, machine.glibc or GLIBC)


def selected(lock: Lock, machine: Machine) -> tuple[LockedFile, ...]:
    """The files with an address that the standard's own selection takes on ``machine``."""
    files = (entry for entry in _select(lock, machine) if getattr(entry[1], "url", None))
    return tuple(LockedFile(package.name, entry.url, entry.hashes.get("sha256")) for package, entry in files)


def _not_for(lock: Lock, machine: Machine) -> Reason | None:
    from packaging.pylock import PylockSelectError

    try:
        _select(lock, machine)
    except PylockSelectError as error:
        return Reason("other-platform", str(error))
    return None


def _select(lock: Lock, machine: Machine) -> list[tuple[Package, Any]]:
    target, python = target_of(machine), lock.python or ""
    environment = cast("Environment", target.environment(python))
    return list(lock.pylock.select(environment=environment, tags=target.tags(python)))


def _applies(requirement: Requirement, environment: dict[str, str]) -> bool:
    return requirement.marker is None or requirement.marker.evaluate(environment)


def _holds(lock: Lock, requirement: Requirement) -> bool:
    version = lock.versions.get(canonicalize_name(requirement.name))
    return version is not None and requirement.specifier.contains(version, prereleases=True)


def _preference(fit: Fit) -> tuple[Version, tuple[int, int]]:
    return fit.choice.build.torch, fit.choice.build.toolkit or (0, 0)
