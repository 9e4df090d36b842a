"""Combine the request from the user, the project folder, and lock files."""

from __future__ import annotations

from itertools import chain
from os.path import exists
from typing import TYPE_CHECKING

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import expand_home
from gpuinstall.base.request import ANY_TORCH, FOLDER_REQUEST, Request
from gpuinstall.base.requirement import (
    TextOrigin,
    remove_duplicates,
    requirement_names,
)
from gpuinstall.base.values import replace
from gpuinstall.base.versions import CPU
from gpuinstall.lock.file.target import Target
from gpuinstall.lock.request.declaration import group_files_by_path
from gpuinstall.lock.request.history import (
    increment_revision,
    remove_packages,
    update_request,
)
from gpuinstall.plan.python import RUNNING_PYTHON
from gpuinstall.project.extras import (
    find_requested_parts,
    find_torch_constraints,
    prefer_locked_versions,
    read_locked_versions,
    report_omitted,
)
from gpuinstall.project.folder import SINGLE_VERSION
from gpuinstall.sources.configuration import NEVER
from gpuinstall.sources.requirements_file import (
    PROJECT,
    CondaRequest,
    RequirementsFile,
    join_files,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpuinstall.base.requirement import Requirement
    from gpuinstall.project.run import Project

_FIRST_SOURCE_FIELDS = (
    "python",
    "backend",
    "preferred_backend",
    "allowed_backends",
    "newest_per_target",
)
"""Fields whose value comes from the first of these sources that sets it:

1. an option or argument of the user;
2. a selected extra;
3. the project's settings: ``[tool.gpuinstall]``, then ``.python-version``, then
   ``requires-python``;
4. conda packages, then other settings, where a CUDA build is only preferred.
"""


def read_request(project: Project, *, quiet: bool = False) -> Request:
    """Return the complete request, and report which files are used.

    For each package, the last of these requirements takes effect:

    - a requirement in the lock files that the user added with an earlier command;
    - a new line in files of the folder or of earlier commands;
    - a requirement of this command, which is the complete request with ``only``.

    Args:
        project: The project.
        quiet: Whether to suppress reports.

    Raises:
        UsageError: A file is malformed, a package cannot be removed, or the folder
            is not trusted.
    """
    settings = project.settings
    contents = project.contents
    recorded = contents.read_locked_request()
    files = group_files_by_path(settings.files, project.paths.folder)
    # Treat the lines of a pipe as typed, because later commands cannot reread it.
    words = project.typed_requirements | files.pop("", RequirementsFile())
    if settings.only:
        request = update_request(FOLDER_REQUEST, contents.limits, words.lines, files)
    else:
        request = update_request(recorded, project.files, words.lines, files)
        request = remove_packages(request, settings.without)
        request = _add_torch_limits(request, project)
        if not quiet:
            _report_files(project, request)
    return _complete_request(
        increment_revision(request, recorded), project, is_quiet=quiet
    )


def _add_torch_limits(request: Request, project: Project) -> Request:
    """Add the torch constraints of omitted extras to a request."""
    limits = find_torch_constraints(project, request)
    if not limits:
        return request
    lines = (*request.files.get(PROJECT, ()), *limits)
    constraints = (*request.constraints, *limits)
    files = {**request.files, PROJECT: lines}
    return replace(request, constraints=remove_duplicates(constraints), files=files)


def read_current_request(project: Project) -> Request:
    """Return the current request of the files and of earlier commands."""
    return update_request(project.contents.read_locked_request(), project.files)


def read_declared_request(project: Project) -> Request:
    """Return the user's request, the folder's request, or one for torch."""
    contents = project.contents
    listed = join_files((project.typed_requirements, *project.settings.files.values()))
    if not listed.requirements:
        listed = contents.declaration.listed | listed
    listed = join_files((listed, *contents.limits.values()))
    request = Request(listed.requirements, constraints=listed.constraints)
    return _complete_request(request, project)


def _report_files(project: Project, request: Request) -> None:
    """Report which files of the folder are used and which are not read.

    Args:
        project: The project.
        request: The project's request.
    """
    reporter = project.reporter
    declared = project.contents.declaration
    listed = join_files(declared.files.values())
    # Without other requirements, only torch is requested.
    if listed.requirements not in {(), (ANY_TORCH,)}:
        message = str(declared)
        preferred = read_locked_versions(project, request, project.machine)
        if preferred:
            message += f"; {len(preferred)} versions from its own lock file"
        reporter.step("Project", message)
    report_omitted(project, request)
    for name, export in declared.unread.items():
        reporter.warn(f"{name} is ignored; to install its packages: {export}")
    for name, conda in _find_conda_requests(project):
        note = conda.note(requirement_names(request.requirements))
        if note:
            reporter.warn(f"{name}: {note}")


def _find_conda_requests(project: Project) -> Iterator[tuple[str, CondaRequest]]:
    """Yield the requests of conda environment files, with file names."""
    own = {} if project.settings.only else project.files
    for name, file in {**own, **project.settings.files}.items():
        for conda in file.conda:
            yield name, conda


def _complete_request(
    listed: Request,
    project: Project,
    *,
    is_quiet: bool = True,
) -> Request:
    """Add the Python version, backend, and sources to a request.

    Args:
        listed: The requirements and constraints with their files.
        project: The project.
        is_quiet: Whether to suppress reports.

    Raises:
        UsageError: A path of this machine does not exist.
    """
    settings = project.settings
    config = project.contents.config
    request = settings.request
    speakers = _order_requests(project, listed, is_quiet=is_quiet)
    decided = {}
    for name in _FIRST_SOURCE_FIELDS:
        values = [getattr(one, name) for one in speakers]
        # An empty list of backends is a setting, unlike None.
        said = [one for one in values if one or one == ()]
        decided[name] = next(iter(said), getattr(FOLDER_REQUEST, name))
    places: dict[str, TextOrigin] = {}
    for one in reversed(speakers):
        places |= one.places
    if not settings.only:
        _check_python(decided["python"], config, places)
    overrides = project.sources.overrides
    excluded = requirement_names(one for one in overrides if one.text.endswith(NEVER))
    requirements = tuple(
        one
        for one in listed.requirements or config.requirements
        if one.name not in excluded
    ) or (ANY_TORCH,)
    running = () if settings.machine else (RUNNING_PYTHON,)
    completed = replace(
        request,
        **decided,
        places=places,
        requirements=requirements,
        constraints=listed.constraints,
        files=listed.files,
        revision=listed.revision,
        preferred_pythons=request.preferred_pythons + running,
        managed_pythons=request.managed_pythons and not request.sourcing.offline,
        build_files_digest=_hash_build_files(requirements, project),
        sourcing=project.sourcing,
    )
    return prefer_locked_versions(project, completed, project.machine)


def _order_requests(
    project: Project, listed: Request, *, is_quiet: bool
) -> tuple[Request, ...]:
    """Return requests for a Python and a backend, highest precedence first.

    A setting requests a CPU build, but only prefers a CUDA build. The user's backend,
    GPUs, and targets override both, and the override is reported in one line.
    """
    request = project.settings.request
    extra = _find_extra_backend(project, listed)
    files = (
        extra,
        project.contents.config,
        *(conda.request for _, conda in _find_conda_requests(project)),
        _read_settings_backend(project),
    )
    setting = next(
        filter(lambda one: one.backend, files),
        next(filter(lambda one: one.preferred_backend, files), FOLDER_REQUEST),
    )
    tag = setting.backend or setting.preferred_backend
    if tag is None:
        return (request, *files)
    overriding, is_compatible = _find_backend_override(project, tag)
    text = ""
    if not is_compatible:
        text = f"{overriding} overrides {tag} of {setting.places[tag]}"
    elif setting.backend and not overriding and setting is not extra:
        text = f"{setting.places[tag]} requests the CPU build; --backend overrides it"
    if text and not is_quiet:
        project.reporter.step("Backend", text)
    # A requested extra takes precedence over the folder's targets.
    if overriding and (setting is not extra or request.targets):
        return (request, *(replace(one, backend=None) for one in files))
    return (request, *files)


def _find_backend_override(project: Project, tag: str) -> tuple[str, bool]:
    """Return the setting that overrides a backend, and whether both agree.

    Args:
        project: The project.
        tag: The backend.
    """
    settings = project.settings
    request = settings.request
    if request.backend:
        place = request.places.get(request.backend)
        return str(place), place is None or request.backend == tag
    targets = request.targets or project.contents.config.targets
    if targets:
        option = "[tool.gpuinstall] targets"
        if request.targets:
            option = " ".join(f"--target {target}" for target in targets)
        return option, any(Target.parse(one).backend == tag for one in targets)
    if settings.is_gpu_given:
        return "--gpu", tag != CPU.tag
    return "", True


def _read_settings_backend(project: Project) -> Request:
    """Return the backend selected by an index or another setting.

    The folder's settings take precedence over the user's configuration.
    """
    settings = sorted(project.sources.settings, key=lambda one: one.is_own)
    for setting in settings:
        tag = setting.backend
        if tag and setting.applies_in(project.markers):
            place = TextOrigin(str(setting.file), setting.row.key, setting.line)
            return _make_backend_request(tag, place)
    return FOLDER_REQUEST


def _find_extra_backend(project: Project, listed: Request) -> Request:
    """Return the backend selected by a requested extra or group."""
    requested = find_requested_parts(project, listed)
    for member in chain.from_iterable(project.contents.declaration.alternatives):
        tag = member.find_backend(project.markers)
        if tag and member.part in requested:
            return _make_backend_request(tag, TextOrigin(str(member.part)))
    return FOLDER_REQUEST


def _make_backend_request(tag: str, place: TextOrigin) -> Request:
    """Return a request for a CPU build or a preference for another build."""
    places = {tag: place}
    if tag == CPU.tag:
        return replace(FOLDER_REQUEST, backend=tag, places=places)
    return replace(FOLDER_REQUEST, preferred_backend=tag, places=places)


def _check_python(
    python: str | None, config: Request, places: Mapping[str, TextOrigin]
) -> None:
    """Check that a requested Python is within ``requires-python``, as uv does.

    Args:
        python: The requested Python.
        config: The project's settings.
        places: The origins of the requested Python versions.

    Raises:
        UsageError: The Python is not within ``requires-python``.
    """
    if not python or not config.required_python or not SINGLE_VERSION.fullmatch(python):
        return
    from gpuinstall.plan.demand import allows_python, parse_requested_python

    required = parse_requested_python(config.required_python)
    if not allows_python(required, python):
        place = places.get(python, "python")
        raise UsageError(
            "python-excluded",
            f"Python {python} ({place}) does not satisfy the project's requires-python, {config.required_python}",
            hint=f"Change {place}, or requires-python in pyproject.toml",
        )


def _hash_build_files(requirements: Iterable[Requirement], project: Project) -> str:
    """Return a digest of the build files in requested folders.

    Raises:
        UsageError: A path that the target requires does not exist.
    """
    folder = project.folder
    # Resolution rejects a torch requirement with a path.
    located = [one for one in requirements if one.path and one.name != "torch"]
    for one in located:
        path = one.path or ""
        if exists(folder / expand_home(path)):
            continue
        place = f"{one.origin}: " if one.origin.is_in_file else ""
        if one.marker is None or one.matches_environment(project.markers):
            raise UsageError(
                "requirement-not-there",
                f"{place}{path} does not exist",
                hint="Check the path",
            )
    if not located:
        return ""
    # slow to import
    from gpuinstall.lock.request.project import compute_build_files_digest

    return compute_build_files_digest(requirements, folder)
