"""Select a compatible lock file, or resolve a new lock file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.version import Version

from gpuinstall.base.advice import Advice, make_change
from gpuinstall.base.errors import MachineError, NoBuildError, UsageError
from gpuinstall.base.finding import Reason, Rejection
from gpuinstall.base.request import Request
from gpuinstall.base.requirement import INSTALLED, Constraint, parse_specifier
from gpuinstall.base.values import replace
from gpuinstall.base.versions import CPU, Backend, known_backend, version_key
from gpuinstall.environments.environment import torch_cuda
from gpuinstall.environments.guard import read_guard_lines
from gpuinstall.environments.packages import find_unmet_requirements
from gpuinstall.install.state import ExistingEnvironment, InstallState
from gpuinstall.lock.file.fit import (
    OTHER_REQUEST,
    CompatibleLock,
    check_lock,
    select_sources,
)
from gpuinstall.plan.python import find_release
from gpuinstall.plan.values import TORCH_HELD, TORCH_LIMITED
from gpuinstall.project import Project
from gpuinstall.sources.sources import report_ignored_settings

if TYPE_CHECKING:
    from gpuinstall.base.reporter import Reporter
    from gpuinstall.lock.file.lock import Lock
    from gpuinstall.lock.request.lock_request import LockRequest
    from gpuinstall.lock.uv.resolution import Resolution


def select_lock(
    state: InstallState, project: Project
) -> tuple[InstallState, CompatibleLock]:
    """Select a compatible lock file, or resolve a new one.

    Args:
        state: The environment and the request.
        project: The project.

    Returns:
        The state, with the resolution of a new lock file, and the lock file.

    Raises:
        GpuInstallError: The selection or the resolution failed.
    """
    fit = state.fit
    if fit:
        is_new = fit.lock.versions.get("torch") != state.existing.versions.get("torch")
        if is_new and fit.has_idle_build:
            _report_gpu_lock(fit, project.reporter)
        return state, fit
    is_managed = state.existing.paths.is_managed
    if is_managed:
        state.check_lockable()
        _report_misfits(state, project.reporter)
    report_ignored_settings(project.sources, project.reporter)
    if not is_managed:
        return _select_unmanaged(state, project)
    resolution = _resolve(state, project)
    client = project.open_session().client
    reasons: list[Reason] = []
    if state.options.upgrade or "torch" in state.options.moving:
        reasons += [
            one._replace(code=TORCH_HELD)
            for one in resolution.plan.reasons
            if one.code == TORCH_LIMITED
        ]
    elif not client.was_unreachable(project.sources.addresses.torch_index):
        better = _find_better_build(resolution, state, project.contents.locks.valid)
        reasons += filter(None, [better])
    explained = resolution.with_warnings((), reasons)
    return _add_lock(explained, state, project)


def _find_better_build(
    resolution: Resolution, state: InstallState, locks: Iterable[Lock]
) -> Reason | None:
    """Return a reason to use ``--upgrade``, which selects a better build."""
    kept = resolution.choice.build
    best = state.lock_request.outcome.choice
    packages = state.existing.packages
    if best is None or state.existing.versions.get("torch") != kept.name:
        return None
    build = best.build
    torch = str(build.torch)
    if build.name == kept.name or version_key(torch) < version_key(str(kept.torch)):
        return None
    markers = state.existing.create_markers(state.lock_request.machine)
    unmet = find_unmet_requirements(packages, {"torch": torch}, markers)
    for _, requirement, version in unmet:
        if version and requirement.name == "torch":
            return None
    change = "install --upgrade selects it"
    others = {one.versions.get("torch", "") for one in locks} - {kept.name}
    if any(one.partition("+")[0] == str(kept.torch) for one in others):
        change = f"the other lock files have {kept.torch}"
    message = f"torch {build.name} also runs on this machine; {change}"
    return Reason(TORCH_HELD, message)


def _report_gpu_lock(fit: CompatibleLock, reporter: Reporter) -> None:
    """Report a build for GPUs on a machine without one."""
    backend = fit.choice.build.backend
    reporter.warn(
        f"{fit.lock.name} has a build for GPUs ({backend}), and this machine has none: torch runs on the CPU"
    )


def _report_misfits(state: InstallState, reporter: Reporter) -> None:
    """Report why a new lock file replaces an existing one."""
    own = state.existing.intact_lock
    changed = {
        misfit.candidate.sha256
        for misfit in state.misfits
        if misfit.reason.code == OTHER_REQUEST and misfit.candidate.is_from_gpuinstall
    }
    marker = state.existing.marker
    # If the request changed, the list of changes explains the new lock file.
    if own and marker and own.sha256 in changed:
        locked = Request(backend=marker.backend, python=marker.python)
        verdict = check_lock(own, replace(state.lock_request, request=locked))
        if isinstance(verdict, Rejection):
            text = f"torch {own.versions['torch']} no longer runs on this machine"
            reporter.step(
                "Lock", f"new lock file required: {text}: {verdict.reason.message}"
            )
        return
    # Further lock files are for other machines, or as outdated as the first.
    for misfit in state.misfits[:1]:
        text = f"{misfit.candidate.name} does not fit: {misfit.reason.message}"
        if changed:
            text = "the request has changed"
        reporter.step("Lock", f"new lock file required: {text}")


def _resolve(state: InstallState, project: Project) -> Resolution:
    """Resolve, and keep the locked versions of packages not to upgrade."""
    from gpuinstall.lock.resolve.locks import resolve_locks  # slow to import
    from gpuinstall.lock.resolve.previous import Previous

    pinned = [*filter(None, [state.find_pinned_lock()])]
    # Without a lock file, no version is kept.
    near_to = [] if state.options.upgrade else pinned
    # A new package resolves to its latest version anyway.
    moving = [
        name
        for name in state.options.moving
        if any(name in lock.versions for lock in near_to)
    ]
    previous = Previous(pinned, moving, state.options.upgrade)
    session = project.open_session()
    resolve = partial(resolve_locks, session=session, previous=previous)
    request = state.lock_request.limit_to_locked_backends(near_to)
    try:
        return resolve([request])[0]
    except NoBuildError:
        # The user did not request the lock file's backend.
        if request is state.lock_request:
            raise
    return resolve([state.lock_request])[0]


def _add_lock(
    resolution: Resolution, state: InstallState, project: Project
) -> tuple[InstallState, CompatibleLock]:
    """Return a state with a resolution, and its lock file."""
    from gpuinstall.lock.write import build_locks, fetch_hashes  # slow to import

    session = project.open_session()
    place = state.existing.paths
    for warning in resolution.plan.warnings:
        session.reporter.warn(warning.message, *warning.fixes)
    folder = place.folder if place.is_managed else Path()
    hashes = fetch_hashes(
        [resolution], resolution.unhashed_wheels, session.client, session.reporter
    )
    [lock] = build_locks([state.lock_request], [resolution], hashes, folder)
    request = state.lock_request
    python = find_release(resolution.choice.python, request.request, request.machine)
    fit = CompatibleLock(lock, resolution.plan, python)
    if not session.sources.policy.trusts_folder:
        sources = select_sources(lock, fit.python, project.machine)
        replace(project.lock_gate, is_resolved=True).check(lock, sources)
    return replace(state, resolution=resolution), fit


def _select_unmanaged(
    state: InstallState, project: Project
) -> tuple[InstallState, CompatibleLock]:
    """Resolve for an unmanaged environment, preferring installed versions."""
    existing = state.existing
    label = _find_default_index_label(existing)
    resolution = _resolve_with_installed(state, project, label)
    # The resolved versions of the same builds have local version labels.
    named = resolution.all_versions
    versions = {
        name: f"{there}+{label}"
        for name, there in existing.versions.items()
        if label and named.get(name) == f"{there}+{label}"
    }
    labeled = replace(existing, versions={**existing.versions, **versions})
    return _add_lock(resolution, replace(state, existing=labeled), project)


def _find_default_index_label(existing: ExistingEnvironment) -> str:
    """Return the local version label that torch on the default index omits."""
    prefix = existing.paths.venv
    is_condas = any(prefix.glob("conda-meta/pytorch-*.json"))
    cuda = torch_cuda(prefix)
    if is_condas or not cuda or "+" in existing.versions.get("torch", ""):
        return ""
    return Backend("cuda", cuda).tag


def _resolve_with_installed(
    state: InstallState, project: Project, label: str
) -> Resolution:
    """Resolve, and prefer the verified builds or the installed torch.

    Another requested version or backend takes precedence over installed builds.

    Args:
        state: The environment and the request.
        project: The project.
        label: The local version label of an installed torch that omits it. Empty if unknown.
    """
    from gpuinstall.lock.resolve.locks import resolve_locks  # slow to import
    from gpuinstall.lock.resolve.previous import Previous

    request = state.lock_request
    existing = state.existing
    # The versions of other packages in PyTorch's family depend on torch.
    outside = existing.versions.keys() - project.catalog.family
    near = {name: existing.versions[name] for name in sorted(outside)}
    session = project.open_session()
    previous = Previous(installed=near)
    resolve = partial(resolve_locks, session=session, previous=previous)
    typed = project.settings
    names_packages = bool(typed.files or typed.request.requirements)
    builds = [*_find_installed_builds(existing, request.request, label)]
    if not (names_packages or typed.request.backend):
        builds.insert(0, _find_verified_builds(existing, label))
    for build in filter(None, builds):
        pins = [pin.at(INSTALLED) for pin in build]
        constraints = (*request.request.constraints, *pins)
        # The label of the installed torch may be no backend. An invalid request is rejected below.
        with suppress(MachineError, NoBuildError, UsageError):
            return resolve([request.with_request_changes(constraints=constraints)])[0]
    if builds and names_packages:
        _check_released(existing, request)
    return resolve([request])[0]


def _check_released(existing: ExistingEnvironment, request: LockRequest) -> None:
    """Check that the installed torch is a release, which an index may list.

    Raises:
        UsageError: torch was built from source, or is part of a vendor's image.
    """
    version = Version(existing.versions["torch"])
    if not version.is_prerelease and known_backend(version.local or CPU.tag):
        return
    python = str(existing.paths.find_interpreter())
    words = [python, "-I", "-m", "pip", "install"]
    if "pip" not in existing.versions:
        words = ["uv", "pip", "install", "--python", python]
    for one in request.request.requirements:
        if one.name != "torch":
            words += ["-e", one.url or ""] if one.editable else [one.text]
    fixes = [Advice(words[0], tuple(words[1:]), note="keeps torch")]
    choice = request.outcome.choice
    if choice:
        release = f"torch=={choice.build.torch}"
        fixes.append(make_change(release, note="replaces torch"))
    raise UsageError(
        "torch-not-released",
        f"torch {version} in {existing.paths.venv} is not a release of PyTorch, and would be replaced",
        hint=tuple(fixes),
    )


def _find_verified_builds(
    existing: ExistingEnvironment, label: str
) -> list[Constraint]:
    """Return constraints that keep an environment's verified builds."""
    there = f"torch=={existing.versions.get('torch')}"
    constraints = []
    for line in read_guard_lines(existing.paths.venv):
        # "torchaudio==0+gpuinstall.found.none.for.cu132" is not an installed version.
        if "==" not in line or "+none" in line:
            continue
        # Without the label, the pin would allow any CUDA version.
        pin = f"{line}+{label}" if label and line == there else line
        name, _, version = pin.partition("==")
        constraints.append(Constraint.of(name, f"=={version}"))
    return constraints


def _find_installed_builds(
    existing: ExistingEnvironment, request: Request, of_default: str
) -> Iterator[list[Constraint]]:
    """Yield constraints that keep the installed torch, strictest first.

    Args:
        existing: The environment.
        request: The request, which may include torch.
        of_default: The local version label of an installed torch that omits it. Empty if unknown.
    """
    installed = existing.versions.get("torch")
    requested = (*request.requirements, *request.constraints)
    own = [one for one in requested if one.name == "torch"]
    if installed is None or any(
        one.url
        or not parse_specifier(one.clauses).contains(installed, prereleases=True)
        for one in own
    ):
        return
    public, _, label = installed.partition("+")
    label = label or of_default
    # pip may install a CPU build without a request, even on a machine with a GPU.
    if label not in ("", "cpu") and request.backend is None:
        yield [Constraint.of("torch", f"=={public}+{label}")]
    yield [Constraint.of("torch", f"=={public}")]
