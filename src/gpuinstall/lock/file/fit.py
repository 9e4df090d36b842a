"""Select the lock file for a machine with the rules for selecting builds."""

from __future__ import annotations

import re
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from gpuinstall.base.errors import NoBuildError
from gpuinstall.base.finding import Reason, Rejection
from gpuinstall.base.request import ANY_TORCH, Request
from gpuinstall.base.requirement import (
    Constraint,
    Requirement,
    marker_environment,
    marker_holds,
    normalize_name,
)
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import CPU, known_backend
from gpuinstall.catalog import DEFAULT_INDEX, Build, Catalog
from gpuinstall.lock.file.lock import (
    Lock,
    LockEntry,
    Record,
    compare_requests,
    list_built_sources,
    parse,
)
from gpuinstall.lock.file.target import GLIBC, Target
from gpuinstall.plan import Plan, Rejected, choose
from gpuinstall.plan.demand import allows_python
from gpuinstall.plan.python import find_release, get_minor_version
from gpuinstall.plan.values import Choice, PlanInput

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from packaging.tags import Tag

    from gpuinstall.base.machine import Machine
    from gpuinstall.lock.file.entries import LockGate

_VERSION = re.compile(r"-\d.*$")
"""The version and suffix in the name of an archive."""
OTHER_REQUEST = "inputs-changed"
"""The reason code for a lock file with another request."""


class CompatibleLock(Value):
    """A lock file that is compatible with a machine, and the plan for it."""

    lock: Lock
    plan: Plan
    python: str
    """The interpreter's version as ``X.Y.Z``, or ``X.Y`` if unknown."""

    @property
    def choice(self) -> Choice:
        """The locked torch build."""
        return self.plan.choice

    @property
    def gpus(self) -> tuple[int, ...]:
        """The indices of the GPUs that the locked build supports."""
        return tuple(sorted(self.plan.covered_gpus))

    @property
    def has_idle_build(self) -> bool:
        """Whether the locked build is for GPUs, but would run on the CPU."""
        return self.plan.status == "cpu" and self.choice.build.backend != CPU


LockVerdict = CompatibleLock | Rejection[Lock]


def check_lock(
    lock: Lock,
    wanted: PlanInput,
    *,
    gate: LockGate | None = None,
    exact: bool = False,
) -> LockVerdict:
    """Check whether a lock file supports a machine and satisfies a request.

    Args:
        lock: The lock file.
        wanted: The machine, the request, and the catalog of torch builds.
        gate: Checks the sources; None if they are already checked.
        exact: Whether the recorded requirements must equal the request.
    """
    python = _select_python(lock, wanted)
    reasons = chain(
        _find_request_mismatch(lock, wanted.request) if exact else (),
        _find_source_built_family(lock, wanted.catalog),
        _find_incompatibilities(lock, python, wanted, gate),
    )
    reason = next(reasons, None)
    if reason:
        return Rejection(lock, reason)
    return _check_locked_build(lock, python, wanted)


def _check_locked_build(lock: Lock, python: str, wanted: PlanInput) -> LockVerdict:
    """Check whether the locked torch build is compatible with a machine."""
    machine, request, catalog = wanted.machine, wanted.request, wanted.catalog
    build = find_locked_build(lock, machine, catalog)
    if build is None:
        locked = lock.versions.get("torch")
        message = (
            f"torch {locked} is not in the catalog"
            if locked
            else "it does not contain torch"
        )
        return Rejection(lock, Reason("unknown-build", message))
    published = replace(build.mark_as_published(), pythons=(python,))
    plan = _choose_any_torch(wanted, published)
    if isinstance(plan, Plan):
        fit = CompatibleLock(lock, plan, find_release(python, request, machine))
        # The default index may have only a GPU build, which also runs on a CPU.
        if not fit.has_idle_build or build.source == DEFAULT_INDEX:
            return fit
    return Rejection(lock, _explain_build_rejection(plan, build, wanted))


def _choose_any_torch(wanted: PlanInput, *builds: Build) -> Plan | Rejected:
    """Select one of these builds, whatever packages are requested."""
    any_torch = replace(wanted.request, requirements=(ANY_TORCH,))
    return choose(wanted.machine, any_torch, wanted.catalog.select_builds(*builds))


def _select_python(lock: Lock, wanted: PlanInput) -> str:
    """Return the Python version for a lock file, or an empty string.

    The candidates are, in order, the versions of the lock, the request, and the
    machine.
    """
    request = wanted.request
    pythons = [lock.python, request.python, *request.preferred_pythons]
    pythons += reversed(wanted.machine.pythons or ())
    # A lock by another tool may support several Python versions.
    allowed = lock.pylock.requires_python or SpecifierSet()
    minors = [get_minor_version(python or "") for python in pythons]
    # A request may have a range instead of a version.
    return next(
        (one for one in minors if one[:1].isdigit() and allows_python(allowed, one)), ""
    )


def _find_request_mismatch(lock: Lock, request: Request) -> Iterator[Reason]:
    changes = compare_requests(lock.record, Record.from_request(request)).texts
    if changes:
        text = f"the request has changed: {', '.join(changes)}"
        yield Reason(OTHER_REQUEST, text)
    if lock.record.relaxed and not request.relax:
        # Unless the lock was created with --relax, require the requested versions.
        yield Reason(OTHER_REQUEST, "it was created with --relax")


def list_rejected_locks(misfits: Iterable[Rejection[Lock]]) -> list[dict[str, str]]:
    """Return the rejected lock files for the output of ``sync --json``."""
    return [
        {"lock": misfit.candidate.name, **misfit.reason.to_dict()} for misfit in misfits
    ]


def reject_idle_builds(
    verdicts: Iterable[LockVerdict], machine: Machine
) -> tuple[LockVerdict, ...]:
    """Reject idle GPU builds if there is a lock file for the CPU.

    A lock file for the CPU counts even if it is rejected, because its request is
    older.
    """
    verdicts = tuple(verdicts)
    cpu = str(Target(CPU.tag, machine.os, machine.arch))
    if not any(_is_for_cpu(verdict, cpu) for verdict in verdicts):
        return verdicts
    return tuple(_reject_idle_build(verdict, cpu) for verdict in verdicts)


def _is_for_cpu(verdict: LockVerdict, cpu: str) -> bool:
    if isinstance(verdict, Rejection):
        return verdict.candidate.target == cpu
    # Locks by other tools may have any name.
    return verdict.lock.target == cpu or verdict.choice.build.backend == CPU


def _reject_idle_build(verdict: LockVerdict, cpu: str) -> LockVerdict:
    if isinstance(verdict, Rejection):
        return verdict
    if verdict.lock.target == cpu or not verdict.has_idle_build:
        return verdict
    return Rejection(verdict.lock, _explain_idle_build(verdict.choice.build))


def find_best_lock(
    verdicts: Iterable[LockVerdict], wanted: PlanInput
) -> CompatibleLock | None:
    """Return the lock file with the best build for a machine.

    Locks of older requests are used only if no lock of the latest request has a
    GPU build.

    Returns:
        The lock, or None if no lock is compatible.
    """
    judged = reject_idle_builds(verdicts, wanted.machine)
    fits = [verdict for verdict in judged if isinstance(verdict, CompatibleLock)]
    if not fits:
        return None
    revision = max(fit.lock.record.request_revision for fit in fits)
    newest = [fit for fit in fits if fit.lock.record.request_revision == revision]
    if any(fit.choice.build.backend != CPU for fit in newest):
        fits = newest
    plan = _choose_any_torch(wanted, *(fit.choice.build for fit in fits))
    chosen = plan.choice and plan.choice.build
    return next((fit for fit in fits if fit.choice.build == chosen), fits[0])


def find_locked_build(lock: Lock, machine: Machine, catalog: Catalog) -> Build | None:
    """Return the catalog's entry for the locked torch build, or None.

    A version without a local label is the build on the default index. A lock by another
    tool may support several platforms. The machine determines the platform.
    """
    version = lock.versions.get("torch")
    if version is None:
        return None
    torch = Version(version)
    backend = known_backend(torch.local)
    served = catalog.with_kind(backend.kind) if backend else catalog
    for build in served.builds_for(machine.os, machine.arch):
        if str(build.torch) != torch.public:
            continue
        if torch.local:
            if build.backend.tag == torch.local:
                return build
        elif build.on_default_index or not build.is_labeled:
            return replace(build, source=DEFAULT_INDEX)
    return None


def _explain_build_rejection(
    plan: Plan | Rejected, build: Build, wanted: PlanInput
) -> Reason:
    machine, request = wanted.machine, wanted.request
    if request.backend not in {None, build.backend.tag}:
        message = f"it has {build.backend}, but {request.backend} is requested"
        return Reason("other-backend", message)
    if not machine.gpus and build.backend != CPU:
        return _explain_idle_build(build)
    is_refused = isinstance(plan, Rejected) and plan.error_class is NoBuildError
    if machine.gpus and build.backend == CPU and is_refused:
        message = "it has the CPU build, but this machine has a GPU (--target cpu installs it)"
        return Reason("cpu-build", message)
    if plan.rejected:
        return plan.rejected[0].reason
    return plan.reasons[0]


def _explain_idle_build(build: Build) -> Reason:
    message = f"it is for GPUs ({build.backend}), but this machine has none"
    return Reason("gpu-build", message)


def _find_source_built_family(lock: Lock, catalog: Catalog) -> Iterator[Reason]:
    """Yield locked PyTorch packages that would be built from source."""
    built = set()
    for package, source in list_built_sources(lock.pylock.packages):
        named = normalize_name(_VERSION.sub("", source.filename))
        built |= {package.name, named} & catalog.family
    if built:
        message = f"{' and '.join(sorted(built))} has no wheel, and PyTorch packages are never built from source"
        yield Reason("wrong-source", message)


def _find_incompatibilities(
    lock: Lock, python: str, wanted: PlanInput, gate: LockGate | None
) -> Iterator[Reason]:
    """Yield reasons why a lock file does not fit a machine or a request."""
    from packaging.pylock import PylockSelectError

    machine, request = wanted.machine, wanted.request

    if not python:
        message = (
            f"it is for Python {lock.pylock.requires_python}, which is not installed"
        )
        yield Reason("no-python", message)
    markers = lock.pylock.environments or ()
    release = find_release(python, request, machine)
    environment = marker_environment(machine.os, machine.arch, release)
    if markers and not any(marker_holds(one, environment) for one in markers):
        yield Reason("other-platform", f"it is for {' or '.join(map(str, markers))}")
    try:
        selection = select_sources(lock, release, machine)
    except PylockSelectError as error:
        yield Reason("other-platform", str(error))
        return
    if gate:
        yield from gate.find_rejections(lock, selection)
    installed = {package.name for package, _ in selection}
    missing = [
        line
        for line in (*request.requirements, *request.constraints)
        if _applies(line, release, machine) and not _satisfies(lock, line, installed)
    ]
    if lock.is_from_gpuinstall:
        # Every package in such a lock is required, even if a marker excludes it.
        missing += map(Requirement.of, sorted(lock.names - installed))
    relaxed = lock.record.relaxed
    texts = [one.text for one in missing if relaxed.get(one.name) != one.text]
    if texts:
        yield Reason(OTHER_REQUEST, f"it does not satisfy {', '.join(texts)}")


def _satisfies(
    lock: Lock,
    requirement: Requirement,
    installed: Collection[str],
) -> bool:
    """Return whether a lock file satisfies a requirement or constraint.

    Args:
        lock: The lock file.
        requirement: The requirement. If it has a URL, it must be in the record.
        installed: The locked packages that the machine installs.
    """
    name = requirement.name
    version = lock.versions.get(name)
    if isinstance(requirement, Constraint):
        return version is None or requirement.allows(version)
    if requirement.url:
        return requirement.text in lock.record.all_inputs
    if name not in installed or not requirement.clauses:
        return name in installed
    return version is not None and requirement.allows(version)


def _applies(requirement: Requirement, python: str, machine: Machine) -> bool:
    """Return whether a requirement applies to ``X.Y.Z`` or all of ``X.Y``."""
    # The lock of a target may be for any patch release.
    releases = [python] if python.count(".") > 1 else [f"{python}.0", python]
    return all(
        requirement.applies_in(marker_environment(machine.os, machine.arch, one))
        for one in releases
    )


def select_sources(lock: Lock, python: str, machine: Machine) -> list[LockEntry]:
    """Return the locked packages that a machine installs, with their sources.

    Args:
        lock: The lock file.
        python: The version of the interpreter: ``X.Y.Z``, or ``X.Y`` if it is unknown.
        machine: The machine.

    Raises:
        PylockSelectError: The lock does not support the machine.
    """
    target = Target(CPU.tag, machine.os, machine.arch, machine.glibc or GLIBC)
    values = tuple(target.environment(python).items())
    tags = target.tags(get_minor_version(python))
    return [*_select(lock.name, lock.text, values, tags)]


# Cached: one run selects the packages of a lock several times.
@cache
def _select(
    name: str, text: str, values: tuple[tuple[str, str], ...], tags: tuple[Tag, ...]
) -> tuple[LockEntry, ...]:
    environment: Any = dict(values)
    return tuple(parse(name, text).pylock.select(environment=environment, tags=tags))
