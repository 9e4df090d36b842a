"""Combine the requests of the user, the project folder, and lock files."""

from __future__ import annotations

import re
from itertools import chain
from os.path import exists
from typing import TYPE_CHECKING

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import expand_home
from gpuinstall.base.request import ANY_TORCH, FOLDER_REQUEST, Request
from gpuinstall.base.requirement import Requirement, TextOrigin, requirement_names
from gpuinstall.base.values import replace
from gpuinstall.base.versions import CPU
from gpuinstall.lock.file.target import Target
from gpuinstall.lock.request.history import update_request
from gpuinstall.lock.request.tools import find_locked_versions
from gpuinstall.project.extras import report_omitted
from gpuinstall.project.folder import SINGLE_VERSION
from gpuinstall.sources.requirements_file import (
    CondaRequest,
    join_files,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from gpuinstall.project.folder import Contents
    from gpuinstall.project.run import Project
    from gpuinstall.sources import Sources

_FIRST_SOURCE_FIELDS = (
    "python",
    "backend",
    "preferred_backend",
    "allowed_backends",
    "newest_per_target",
)
"""Request fields that are read from the first source that sets them.

The sources, highest precedence first:

1. an option or argument of the user;
2. a selected extra;
3. the project's settings: ``[tool.gpuinstall]``, then ``.python-version``, then
   ``requires-python``;
4. conda packages, then other settings, where a CUDA build is only preferred.
"""


def read_request(project: Project) -> Request:
    """Return a project's complete request, and report the files in use.

    ``select_extras`` adds the versions of the project's own lock for a machine.

    Raises:
        UsageError: The requested Python or a local path cannot be used.
    """
    settings, contents = project.settings, project.contents
    listed, config = contents.request, contents.config
    if not settings.omits_project:
        _report_files(project)
    speakers = _order_requests(project)
    decided = {}
    for name in _FIRST_SOURCE_FIELDS:
        values = [getattr(one, name) for one in speakers]
        # Unlike None, an empty tuple of allowed backends is a setting.
        said = [one for one in values if one or one == ()]
        decided[name] = next(iter(said), getattr(FOLDER_REQUEST, name))
    places: dict[str, TextOrigin] = {}
    for one in reversed(speakers):
        places |= one.places
    if not settings.only:
        _check_python(decided["python"], config, places)
    excluded = project.sources.uv.excluded
    requirements = tuple(
        one
        for one in listed.requirements or config.requirements
        if one.name not in excluded
    ) or (ANY_TORCH,)
    return replace(
        settings.request,
        **decided,
        places=places,
        requirements=requirements,
        constraints=listed.constraints + project.sources.uv.limits,
        files=listed.files,
        revision=listed.revision,
        no_groups=listed.no_groups,
        preferred_pythons=project.preferred_pythons,
        managed_pythons=settings.request.managed_pythons
        and not settings.request.sourcing.offline,
        build_files_digest=_hash_build_files(
            requirements, project.folder, project.markers
        ),
        sourcing=project.sourcing,
    )


def read_current_request(project: Project) -> Request:
    """Return the request in the project's files and from earlier commands."""
    return update_request(project.contents.recorded, project.contents.files)


def _report_files(project: Project) -> None:
    """Report which project files are used and which are ignored."""
    reporter = project.reporter
    contents = project.contents
    declared = contents.declaration
    listed = join_files(declared.files.values())
    # If there are no requirements, only torch is requested.
    if listed.requirements not in {(), (ANY_TORCH,)}:
        message = str(declared)
        recorded = contents.recorded
        if recorded.requirements and declared.file not in recorded.files:
            message += ", not in the lock file yet"
        preferred = find_locked_versions(
            contents.project_lock, project.markers, contents.parts
        )
        if preferred:
            message += f"; {len(preferred)} versions from its own lock file"
        reporter.step("Project", message)
    report_omitted(contents, reporter)
    for name, export in declared.unread.items():
        reporter.warn(f"{name} is ignored; to install its packages: {export}")
    for name, conda in _find_conda_requests(project):
        note = conda.note(requirement_names(contents.request.requirements))
        if note:
            reporter.warn(f"{name}: {note}")


def _find_conda_requests(project: Project) -> Iterator[tuple[str, CondaRequest]]:
    """Yield the file name and the request of each conda environment file."""
    own = {} if project.settings.only else project.contents.files
    for name, file in {**own, **project.settings.files}.items():
        for conda in file.conda:
            yield name, conda


def _order_requests(project: Project) -> tuple[Request, ...]:
    """Return the user's and project's requests, highest precedence first.

    A project setting can request a CPU build, but can only prefer a CUDA build. A
    backend, GPU, or target that the user selects overrides the setting, and one line
    reports the override.
    """
    request = project.settings.request
    contents = project.contents
    extra = _find_extra_backend(contents, project.markers)
    files = (
        extra,
        contents.config,
        *(conda.request for _, conda in _find_conda_requests(project)),
        _find_settings_backend(project.sources, project.markers),
    )
    setting = next(
        filter(lambda one: one.backend, files),
        next(filter(lambda one: one.preferred_backend, files), FOLDER_REQUEST),
    )
    tag = setting.backend or setting.preferred_backend
    if tag is None:
        return (request, *files)
    overriding, is_compatible = _find_backend_override(project, tag)
    # A requested extra takes precedence over the folder's targets and over --gpu.
    is_kept = setting is extra and not (request.backend or request.targets)
    text = ""
    if not (is_compatible or is_kept):
        text = f"{overriding} overrides {tag} of {setting.places[tag]}"
    elif setting.backend and not overriding and setting is not extra:
        text = f"{setting.places[tag]} requests the CPU build; --backend overrides it"
    if text:
        project.reporter.step("Backend", text)
    if overriding and not is_kept:
        return (request, *(replace(one, backend=None) for one in files))
    return (request, *files)


def _find_backend_override(project: Project, tag: str) -> tuple[str, bool]:
    """Return the option that overrides a backend, and whether both agree.

    Args:
        project: The project with the options.
        tag: The backend in a project setting, such as ``cu126``.
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


def _find_settings_backend(sources: Sources, markers: Mapping[str, str]) -> Request:
    """Return a request for the backend that a project setting selects.

    Options come first, then the project's settings, then the user's configuration.
    """
    settings = sorted(
        sources.addresses.settings, key=lambda one: (not one.is_option, one.is_own)
    )
    for setting in settings:
        tag = setting.backend
        if tag and setting.applies_in(markers):
            # Options and variables, which have no suffix, need no key.
            key = setting.key if setting.file.suffix else ""
            place = TextOrigin(str(setting.file), key, setting.line)
            return _make_backend_request(tag, place)
    return FOLDER_REQUEST


def _find_extra_backend(contents: Contents, markers: Mapping[str, str]) -> Request:
    """Return a request for the backend that an extra or group selects."""
    for member in chain.from_iterable(contents.declaration.alternatives):
        tag = member.select_backend(markers).backend
        if tag and member.part in contents.parts:
            return _make_backend_request(tag, TextOrigin(str(member.part)))
    return FOLDER_REQUEST


def _make_backend_request(tag: str, place: TextOrigin) -> Request:
    """Return a request that requires a CPU build or prefers a GPU build."""
    places = {tag: place}
    if tag == CPU.tag:
        return replace(FOLDER_REQUEST, backend=tag, places=places)
    return replace(FOLDER_REQUEST, preferred_backend=tag, places=places)


def _check_python(
    python: str | None, config: Request, places: Mapping[str, TextOrigin]
) -> None:
    """Check that the requested Python version satisfies ``requires-python``.

    Args:
        python: The requested Python version.
        config: The settings of the project.
        places: The origins of requested Python versions.

    Raises:
        UsageError: The Python version does not satisfy ``requires-python``.
    """
    if (
        not python
        or not config.required_python
        or not re.fullmatch(SINGLE_VERSION, python)
    ):
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


def _hash_build_files(
    requirements: Iterable[Requirement], folder: Path, markers: Mapping[str, str]
) -> str:
    """Return a digest of the build files in requested local folders.

    Raises:
        UsageError: A local path that the request requires does not exist.
    """
    # The resolver rejects a torch requirement with a local path.
    located = [one for one in requirements if one.path and one.name != "torch"]
    for one in located:
        path = one.path or ""
        if exists(folder / expand_home(path)):
            continue
        place = f"{one.origin}: " if one.origin.is_in_file else ""
        if one.applies_in(markers):
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
