"""Installation into an unmanaged environment (``install --into``)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from os.path import exists
from pathlib import Path
from typing import Any

from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import MachineError, NoBuildError, UsageError
from gpuinstall.base.request import Request
from gpuinstall.base.requirement import Constraint, Requirement, names_of
from gpuinstall.base.values import replace
from gpuinstall.base.versions import Backend
from gpuinstall.environments.environment import torch_cuda, versions_of
from gpuinstall.environments.guard import (
    CONSTRAINTS,
    guarded_lines,
    is_own_guard_file,
    renew_uv_guard,
)
from gpuinstall.environments.packages import read_packages
from gpuinstall.environments.records import check_finished, check_records
from gpuinstall.environments.rights import check_rights
from gpuinstall.install.environment_lock import environment_lock
from gpuinstall.install.foreign import inspect_foreign
from gpuinstall.install.install import (
    ChangeResult,
    change_environment,
    report_broken,
    until_settled,
    with_preflight,
)
from gpuinstall.install.priced_lock import PricedLock, price_resolution
from gpuinstall.install.state import (
    Action,
    ExistingEnvironment,
    InstallOptions,
    InstallState,
)
from gpuinstall.install.unpack import reason_against_guard
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.lock.resolve.locks import resolve_locks
from gpuinstall.lock.uv.resolution import Resolution
from gpuinstall.project import Project
from gpuinstall.project.extras import select_extras
from gpuinstall.project.request import declared_request


class IntoResult(ChangeResult, kw_only=True):
    """The result of an installation into an unmanaged environment."""

    guard: Path | None = None
    """The constraints that keep pip to the builds."""
    uv_guard: Path | None = None
    """The settings that keep uv to them in an application's folder."""

    def to_dict(self) -> dict[str, Any]:
        """Return the document of ``install --into --json``."""
        status = "changed" if self.changes else "none"
        changes = [change._asdict() for change in self.changes]
        return {**self.document(status), "changes": changes}


def dry_run_into(project: Project, python: Path) -> PricedLock:
    """Return the change that ``install_into`` would make."""
    place = inspect_foreign(python)
    check_finished(place.root)
    return _price(_read_state(place, project), project)


def install_into(project: Project, python: Path) -> IntoResult:
    """Install a request into the environment of an interpreter, and verify it.

    Without a request, the verified builds are restored if they still run. If anything
    fails, the environment is unchanged. Constraints keep its pip, and uv in the folder of
    its application, to the new builds.

    Args:
        project: The project.
        python: The interpreter.

    Raises:
        UsageError: It is the system's Python.
        KernelFailedError: A kernel failed.
        GpuInstallError: The selection, resolution, or installation failed.
    """
    return until_settled(project, lambda: _install_into(project, python))


def _install_into(project: Project, python: Path) -> IntoResult:
    reporter = project.reporter
    place = inspect_foreign(python)
    check_rights(place)
    check_records()
    with environment_lock(place, reporter):
        # Another command can have changed it before the lock.
        place = inspect_foreign(python)
        state = with_preflight(_read_state(place, project), project)
        priced = _price(state, project)
        priced.announce(reporter)
        reason = reason_against_guard(place)
        if reason:
            reporter.warn(f"plain pip may replace torch in {place.venv}: {reason}")
        constraints = place.venv / CONSTRAINTS
        is_guarded = reason is not None or is_own_guard_file(constraints)
        is_right = is_guarded and not priced.change.comes
        action = Action.VERIFY if is_right else Action.BUILD
        fit, proof = change_environment(action, priced, state, project)
        uv_guard = renew_uv_guard(place.venv)
    return IntoResult(
        paths=place,
        fit=fit,
        changes=priced.changes,
        verdict=proof.verdict,
        bytes=project.session.client.received,
        rollback=place.last_change if exists(place.last_change) else None,
        guard=None if reason else constraints,
        uv_guard=uv_guard,
    )


def _read_state(place: EnvironmentPaths, project: Project) -> InstallState:
    """Return the environment, and the request for it."""
    # Python imports the first of two packages.
    visible = reversed(read_packages(place.search_path))
    existing = ExistingEnvironment(
        place,
        is_empty=False,
        versions=versions_of(visible),
        packages=read_packages(place.packages_folders),
    )
    request = select_extras(
        project, project.machine, declared_request(project), project.catalog
    )
    # Packages that were built for the installed torch change with it.
    companions = {"torchvision", "torchaudio"} & existing.versions.keys()
    unnamed = sorted(companions - names_of(request.requirements))
    request = replace(
        request,
        requirements=(*request.requirements, *map(Requirement.of, unnamed)),
        python=place.layout and place.layout.version,
        managed_pythons=False,
    )
    return InstallState(
        existing,
        LockRequest(project.machine, request, project.catalog),
        here=project.here(request),
        options=InstallOptions(),
    )


def _price(state: InstallState, project: Project) -> PricedLock:
    """Resolve near the installed versions, and report unmet requirements."""
    project.sources.explain_ignored_settings(project.reporter)
    label = _label_of_default(state.existing)
    resolution = _resolve_near(state, project, label)
    existing = _called_as_in(resolution, state.existing, label)
    priced = price_resolution(resolution, replace(state, existing=existing), project)
    report_broken(state.existing.packages, priced, project.reporter)
    return priced


def _label_of_default(existing: ExistingEnvironment) -> str:
    """Return the missing label of a torch from the default index."""
    prefix = existing.paths.venv
    is_condas = any(prefix.glob("conda-meta/pytorch-*.json"))
    cuda = torch_cuda(prefix)
    if is_condas or not cuda or "+" in existing.versions.get("torch", ""):
        return ""
    return Backend("cuda", cuda).tag


def _called_as_in(
    resolution: Resolution, existing: ExistingEnvironment, label: str
) -> ExistingEnvironment:
    """Return the environment with the resolution's labels of the same builds.

    Args:
        resolution: The resolution.
        existing: The environment.
        label: The label of its torch, empty if unknown or not missing.
    """
    named = {one["name"]: one.get("version") for one in resolution.packages}
    versions = {}
    for name, there in existing.versions.items():
        labelled = f"{there}+{label}"
        is_labelled = label and named.get(name) == labelled
        versions[name] = labelled if is_labelled else there
    return replace(existing, versions=versions)


def _resolve_near(state: InstallState, project: Project, label: str) -> Resolution:
    """Resolve with the verified builds, the installed torch, or any torch.

    A requested version or backend has priority.

    Args:
        state: The environment, and the request.
        project: The project.
        label: The label of an installed torch without one, empty if unknown.
    """
    session = project.session
    request = state.lock_request
    existing = state.existing
    # The versions of the family follow torch's.
    outside = existing.versions.keys() - project.catalog.family
    near = {name: existing.versions[name] for name in sorted(outside)}
    asked = project.settings
    builds = _near_builds(existing, request.request, label)
    if not (asked.files or asked.request.requirements or asked.request.backend):
        builds = chain([_proven_builds(existing, label)], builds)
    for build in filter(None, builds):
        constraints = (*request.request.constraints, *build)
        # The installed label can be of no backend. A wrong request is refused below.
        with suppress(MachineError, NoBuildError, UsageError):
            kept = request.asking(constraints=constraints)
            return resolve_locks([kept], session, installed=near)[0]
    return resolve_locks([request], session, installed=near)[0]


def _proven_builds(existing: ExistingEnvironment, label: str) -> list[Constraint]:
    """Return constraints for the builds in the guard of an environment."""
    # "torchaudio==0+none.for.cu132" is not an installed version.
    lines = guarded_lines(existing.paths.venv)
    proven = [line for line in lines if "==" in line and "+none" not in line]
    there = f"torch=={existing.versions.get('torch')}"
    constraints = []
    for line in proven:
        # Without its label, the pin would allow every CUDA.
        pin = f"{line}+{label}" if label and line == there else line
        name, _, version = pin.partition("==")
        constraints.append(Constraint.of(name, f"=={version}"))
    return constraints


def _near_builds(
    existing: ExistingEnvironment, request: Request, of_default: str
) -> Iterator[list[Constraint]]:
    """Yield constraints for the installed torch, the narrowest first.

    Args:
        existing: The environment.
        request: The request, which can have its own torch.
        of_default: The label of an installed torch without one, empty if unknown.
    """
    installed = existing.versions.get("torch")
    if installed is None:
        return
    for requirement in (*request.requirements, *request.constraints):
        if requirement.name == "torch" and (requirement.specifier or requirement.url):
            return
    public, _, label = installed.partition("+")
    label = label or of_default
    # pip installs a CPU build on machines with a GPU too, without a request.
    if label not in ("", "cpu") and request.backend is None:
        yield [Constraint.of("torch", f"=={public}+{label}")]
    yield [Constraint.of("torch", f"=={public}")]
