"""Select the target machines for which to write lock files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.base.advice import Hint, make_change
from gpuinstall.base.errors import UsageError
from gpuinstall.base.request import ANY_TORCH, Request
from gpuinstall.base.requirement import marker_holds
from gpuinstall.base.values import replace
from gpuinstall.base.versions import CPU, version_key
from gpuinstall.environments.environment import read_marker, read_python_version
from gpuinstall.lock.file.target import Target
from gpuinstall.lock.request.lock_request import LockRequest, create_target_machine
from gpuinstall.machine.host import read_assumed_glibc
from gpuinstall.plan.demand import parse_request
from gpuinstall.project.extras import prefer_locked_versions, select_extras

if TYPE_CHECKING:
    from gpuinstall.project.run import Project


def make_environment_request(project: Project, request: Request) -> Request:
    """Adapt a project's request to its existing environment.

    The environment's Python version is preferred, and its target is kept.
    """
    paths = project.paths
    # Ignore the environment's state if a change was interrupted.
    existing = None if paths.has_unfinished_change() else read_marker(paths.venv)
    if existing:
        python = read_python_version(paths.venv) or existing.python
        pythons = (python, *request.preferred_pythons)
        request = replace(request, preferred_pythons=pythons)
    # A requested backend or a new request overrides the previous target.
    if not (request.backend or project.settings.ignores_existing_backend):
        request = _limit_to_targets(project, request)
    parse_request(request, project.catalog, project.machine)
    return select_extras(project, project.wants(request))


def read_project_targets(project: Project) -> list[Target]:
    """Return the targets in the project's settings and lock files."""
    targets = map(Target.parse, project.contents.config.targets)
    return [*targets, *project.contents.locks.requested_targets]


def _limit_to_targets(project: Project, request: Request) -> Request:
    """Limit a request to backends of the project's targets."""
    own = project.contents.locks.own
    targets = read_project_targets(project)
    machine = project.machine
    tags = [
        target.backend
        for target in targets
        if target.os == machine.os and target.arch == machine.arch
    ]
    if own and own.record.asked and (own.record.asked in tags or not targets):
        return replace(request, backend=own.record.asked)
    if not targets:
        return request
    within = replace(request, allowed_backends=tuple(tags))
    torch_alone = project.wants(replace(within, requirements=(ANY_TORCH,)))
    preferring = prefer_locked_versions(
        project, torch_alone.request, torch_alone.markers
    )
    choice = project.wants(preferring).outcome.choice
    if choice:
        within = replace(within, backend=choice.build.backend.tag)
    return within


def make_lock_requests(
    project: Project,
    request: Request,
) -> tuple[LockRequest, ...]:
    """Return a request for each lock file to write.

    By default, the lock files are for the targets in the project's settings. If the
    settings list no targets, the existing lock files are updated. If there are no lock
    files, a lock file is written for this machine.

    Args:
        project: The project to lock.
        request: The request with the targets that the user selects.

    Raises:
        UsageError: A target is malformed, or both targets and a machine are selected.
    """
    requests = _find_lock_requests(project, request)
    return tuple(_add_selected_extras(project, one) for one in requests)


def _find_lock_requests(project: Project, request: Request) -> tuple[LockRequest, ...]:
    """Return a request for each lock file to write, without extras."""
    from gpuinstall.lock.request.lock_sources import add_locked_builds

    locks = project.contents.locks.valid
    catalog = add_locked_builds(project.catalog, locks, project.open_session)
    targets = request.targets or project.contents.config.targets
    machine = project.settings.machine
    glibc = (
        (machine and machine.glibc) or project.contents.glibc or read_assumed_glibc()
    )
    is_glibc_alone = machine == create_target_machine(Target(CPU.tag), glibc)
    is_described = machine and not (targets and is_glibc_alone)
    if request.targets and (is_described or request.gpus is not None):
        raise UsageError(
            "machine-and-target",
            "--target cannot be combined with --machine, --gpu, --gpus, --driver, --os, or --arch",
            hint=make_change(
                without=("--target", request.targets[0]),
                note="--backend selects the build",
            ),
        )
    if is_described:
        one = LockRequest(project.machine, request, catalog, builds_here=False)
        return (one,)
    if not targets or request.gpus is not None:
        here = LockRequest(project.machine, request, catalog)
        return _make_locked_requests(project, here) or (here,)
    parsed = dict.fromkeys(map(Target.parse, targets))
    if request.backend and not project.settings.request.backend:
        place = request.places.get(request.backend, "a setting")
        message = f"targets override {request.backend} of {place}"
        project.reporter.step("Backend", message)
        request = replace(request, backend=None)
    if request.backend and any(target.backend != request.backend for target in parsed):
        raise UsageError(
            "backend-and-target",
            f"the backend {request.backend} is requested, but the targets are {' '.join(targets)}",
            hint=_drop_backend(request, request.backend),
        )
    return tuple(
        LockRequest.for_target(target, request, catalog, glibc=glibc)
        for target in parsed
    )


def _add_selected_extras(project: Project, one: LockRequest) -> LockRequest:
    """Select extras for a target machine, and add them to its lock request."""
    listed = project.contents.environments
    if listed and not any(marker_holds(marker, one.markers) for marker in listed):
        project.reporter.step(
            "Target", f"{one.label} is not in environments of [tool.uv]"
        )
    return replace(one, request=select_extras(project, one))


def _make_locked_requests(
    project: Project, here: LockRequest
) -> tuple[LockRequest, ...]:
    """Return a lock request for each existing lock file in the project."""
    # A backend or --gpus selects this machine.
    if here.request.backend or here.request.gpus is not None:
        return ()
    locks = project.contents.locks.by_target
    if any(lock and "torch" in lock.record.apart for lock in locks.values()):
        here = here.with_request_changes(newest_per_target=True)
    own = project.contents.locks.own
    requests = []
    for target, lock in locks.items():
        request = LockRequest.for_target(
            target,
            here.request,
            here.catalog,
            glibc=project.contents.glibc
            or (lock.glibc if lock else read_assumed_glibc()),
            is_backend_asked=not lock or bool(lock.record.asked),
        )
        if own and own.name == target.filename:
            # The environment's lock file is for this machine's glibc, or keeps its own.
            glibcs = filter(None, (here.machine.glibc, own.record.glibc))
            glibc = min(glibcs, key=version_key, default=None)
            within = replace(here.request, allowed_backends=(target.backend,))
            if own.record.asked:
                within = replace(here.request, backend=target.backend)
            exact = replace(
                request,
                machine=replace(here.machine, glibc=glibc),
                request=within,
                is_backend_asked=True,
            )
            is_here = target.os == here.machine.os and target.arch == here.machine.arch
            if is_here and exact.outcome.choice:
                request = exact
        requests.append(request)
    return tuple(requests)


def _drop_backend(request: Request, backend: str) -> Hint:
    """Return the hint to omit the option or setting of a backend."""
    place = str(request.places.get(backend, "the backend"))
    if place.startswith("--"):
        return make_change(without=place.split())
    return f"Remove {place}"
