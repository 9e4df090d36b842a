"""Read the files in a project folder, and define the settings of a command."""

from __future__ import annotations

import re
from itertools import chain
from os.path import isfile
from typing import TYPE_CHECKING

from gpuinstall.base.advice import Advice, make_change
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import is_inside
from gpuinstall.base.request import FOLDER_REQUEST, Request
from gpuinstall.base.requirement import parse_standard_marker
from gpuinstall.base.values import Value, replace
from gpuinstall.lock.file.folder import FolderLocks, read_folder_locks
from gpuinstall.lock.request.declaration import (
    PROJECT_FILES,
    Declaration,
    SelectedParts,
    find_parts,
    group_files_by_path,
    read_declaration,
    read_inputs,
    reread_file,
)
from gpuinstall.lock.request.history import (
    combine_recorded_requests,
    increment_revision,
    read_environment_lock,
    remove_files,
    remove_packages,
    update_request,
)
from gpuinstall.lock.request.tools import ProjectLock, read_project_lock
from gpuinstall.sources.configuration import (
    read_no_sources,
    read_project_tables,
)
from gpuinstall.sources.requirements_file import (
    PROJECT,
    Part,
    RequirementsFile,
    convert_content_errors,
    extra_path,
    join_files,
    split_part,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from packaging.markers import Marker

    from gpuinstall.base.environment_paths import EnvironmentPaths
    from gpuinstall.base.machine import Machine
    from gpuinstall.base.reporter import Reporter


SINGLE_VERSION = r"3\.\d+"
"""Pattern for a Python version such as ``3.12``."""
_SAME_OPTIONS = {"--index-url": "--default-index", "--extra-index-url": "--index"}
"""The options of the command line by the options in requirements files."""


class Settings(Value):
    """Settings from command-line options or API arguments."""

    request: Request = FOLDER_REQUEST
    """The user's request, which is added to the project's request."""

    files: Mapping[str, RequirementsFile] = {}
    """The requirements files to add to the project's request, by file name."""

    only: bool = False
    """Whether ``request`` and ``files`` replace the project's request."""

    is_unmanaged: bool = False
    """Whether to ignore the lock files, as for an unmanaged environment."""

    ignores_existing_backend: bool = False
    """Whether to ignore the backend that the existing environment uses."""

    without: tuple[str, ...] = ()
    """The names of packages to remove from the request."""

    machine: Machine | None = None
    """The machine to plan for, or None for the local machine."""

    is_gpu_given: bool = False
    """Whether ``machine`` is from the ``--gpu`` option."""

    venv: Path | None = None
    """The environment's path, or None for ``.venv`` in the project folder."""

    base_python: Path | None = None
    """The base Python interpreter for the environment, or None for any."""

    is_read_only: bool = False
    """Whether the command is read-only and does not run the environment."""

    command_folder: Path | None = None
    """The folder in which the command runs; None: the working directory."""

    @property
    def typed_requirements(self) -> RequirementsFile:
        """The requirements that the user typed on the command line."""
        words = (*self.request.requirements, *self.request.constraints)
        typed = RequirementsFile.from_lines(words)
        own = [replace(setting, is_own=True) for setting in typed.settings]
        return replace(typed, settings=tuple(own))

    @property
    def requested(self) -> RequirementsFile:
        """The requirements of the command, also in its files."""
        return join_files((*self.files.values(), self.typed_requirements))

    @property
    def omits_project(self) -> bool:
        """Whether the project's own requirements are not requested."""
        return self.only or (self.is_unmanaged and bool(self.requested.requirements))


class Contents(Value):
    """The files of a project folder, read once."""

    config: Request
    """The project's settings, such as ``[tool.gpuinstall]``."""

    declaration: Declaration
    """The requirements that the project's files declare."""

    locks: FolderLocks
    recorded: Request
    """The request that the lock files record."""

    request: Request
    """The requirements of the command, the project's files, and its locks."""

    parts: frozenset[Part]
    """The requested extras and dependency groups."""

    files: Mapping[str, RequirementsFile]
    """The requirements in the project's files, by relative path."""

    required: RequirementsFile
    """The requirements of existing files, also of unselected extras."""

    glibc: str | None
    """uv's ``minimum-libc-version``, which targets must support."""

    environments: tuple[Marker, ...]
    """The markers in uv's ``environments``, for which uv locks."""

    project_lock: ProjectLock | None = None
    """The uv.lock or poetry.lock, unless the command replaces the request."""


def read_contents(
    folder: Path,
    paths: EnvironmentPaths,
    settings: Settings,
    reporter: Reporter,
    *,
    config: Request,
    no_sources: Collection[str],
) -> Contents:
    """Read the files of a project folder.

    Args:
        folder: The folder.
        paths: The paths of its environment and lock files.
        settings: The settings of the command.
        reporter: Reports missing files.
        config: The project's settings, such as ``[tool.gpuinstall]``.
        no_sources: The packages without a source, or ``:all:``.

    Raises:
        UsageError: A file is malformed.
    """
    locks = FolderLocks()
    if not settings.is_unmanaged:
        # A change that was interrupted may have written only one of both.
        is_unfinished = paths.has_unfinished_change()
        own = None if is_unfinished else read_environment_lock(paths.venv)
        locks = read_folder_locks(paths.folder, own)
    locks.report_later_versions(reporter)
    requested = group_files_by_path(settings.files, paths.folder)
    recorded = combine_recorded_requests(locks)
    selected = SelectedParts.from_files(settings.request, recorded, requested)
    declaration = read_declaration(folder, config.requirements, no_sources, selected)
    recorded = remove_files(recorded, {part.path for part in declaration.replaced})
    files = declaration.files
    files |= _reread_files(
        recorded,
        declaration,
        {*files, *requested},
        folder=paths.folder,
        settings=settings,
        reporter=reporter,
        no_sources=no_sources,
    )
    existing = [
        file
        for name, file in files.items()
        if isfile(paths.folder / split_part(name)[0])
    ]
    alternatives = chain.from_iterable(declaration.alternatives)
    request = _combine_requests(
        settings, recorded, declaration, files=files, requested=requested
    )
    glibc, environments = _read_limits(folder)
    return Contents(
        config,
        declaration,
        locks,
        recorded,
        request,
        _find_requested_parts(declaration, request),
        files,
        # The requirements of a missing file exist only in a lock file.
        join_files((*existing, *(member.listed for member in alternatives))),
        glibc,
        environments,
        None if settings.only else read_project_lock(folder),
    )


def _combine_requests(
    settings: Settings,
    recorded: Request,
    declaration: Declaration,
    *,
    files: Mapping[str, RequirementsFile],
    requested: Mapping[str, RequirementsFile],
) -> Request:
    """Combine the requirements of the command, the files, and the locks.

    For each package, the last of these requirements is used:

    - a requirement in the lock files that the user added with an earlier command;
    - a new line in the project's files or in files that earlier commands used;
    - a requirement of this command, which is the complete request with ``only``.

    Args:
        settings: The settings of the command.
        recorded: The request of the lock files.
        declaration: The project's own files.
        files: The requirements in the project's files, by relative path.
        requested: The requirements in the files of the command, by relative path.

    Raises:
        UsageError: A package cannot be removed.
    """
    if settings.omits_project:
        files = {}
    elif settings.is_unmanaged:
        # The project itself is not installed.
        files = {declaration.file: declaration.listed}
    further = {name: file for name, file in requested.items() if name}
    # Treat lines from a pipe as typed requirements, because later commands cannot reread a pipe.
    words = settings.typed_requirements | requested.get("", RequirementsFile())
    if settings.only:
        request = update_request(FOLDER_REQUEST, {}, words.lines, further)
    else:
        request = update_request(recorded, files, words.lines, further)
        request = remove_packages(request, settings.without)
        request = replace(request, no_groups=declaration.no_groups)
    return increment_revision(request, recorded)


def _find_requested_parts(
    declaration: Declaration, request: Request
) -> frozenset[Part]:
    """Return the requested extras and dependency groups of a project.

    Raises:
        UsageError: Two requested extras or groups conflict.
    """
    parts = {*find_parts(request.files), *declaration.default_parts}
    for one in request.requirements:
        if one.path in {".", "./"}:
            parts.update(Part("extra", extra) for extra in one.extras)
    for members in declaration.conflicts:
        excluded = [part for part in members if part in parts]
        if len(excluded) > 1:
            shown = " and ".join(f"the {part.kind} {part.name}" for part in excluded)
            raise UsageError(
                "extras-conflict",
                f"[tool.uv] conflicts in {PROJECT} does not allow {shown} together",
                hint=suggest_parts(excluded),
            )
    return frozenset(parts)


def suggest_parts(parts: Iterable[Part]) -> tuple[Advice, ...]:
    """Return the hints that each select one extra or group."""
    options = [str(part).split() for part in parts]
    typed = [word for words in options for word in words]
    return tuple(make_change(*words, without=typed) for words in options)


def _read_limits(folder: Path) -> tuple[str | None, tuple[Marker, ...]]:
    """Return uv's ``minimum-libc-version`` and ``environments`` of a folder.

    Raises:
        UsageError: The version or a marker is malformed.
    """
    known: str | None = None
    markers: tuple[Marker, ...] = ()
    for file, table in read_project_tables(folder):
        glibc = table.get("minimum-libc-version", {}).get("glibc")
        if glibc and not re.fullmatch(r"2\.\d{1,2}", glibc):
            raise UsageError(
                "config-malformed",
                f"{file}: minimum-libc-version: {glibc!r} is not a glibc version",
                hint='Write minimum-libc-version = { glibc = "2.35" }',
            )
        listed = table.get("environments", ())
        texts = [listed] if isinstance(listed, str) else listed
        with convert_content_errors(file, "config-malformed"):
            markers = markers or tuple(map(parse_standard_marker, texts))
        known = known or glibc
    return known, markers


def read_extras(folder: Path, request: Request) -> dict[str, RequirementsFile]:
    """Return the requirements in requested extras, by path of the extra."""
    names = [str(folder / extra_path(extra)) for extra in request.extras]
    no_sources = read_no_sources(folder, request.sourcing)
    return {name: read_inputs(name, folder, no_sources) for name in names}


def add_extras(request: Request, folder: Path) -> Request:
    """Add the requirements of the requested extras to a request."""
    extras = join_files(read_extras(folder, request).values())
    return replace(
        request,
        requirements=(*request.requirements, *extras.requirements),
    )


def _suggest_recorded_request(recorded: Request) -> Advice:
    """Return the hint that requests the recorded requirements."""
    listed = (*recorded.requirements, *chain(*recorded.files.values()))
    words = dict.fromkeys(one.text for one in listed)
    options: list[str] = []
    for line in recorded.sources:
        option, _, value = line.partition(" ")
        options += _SAME_OPTIONS.get(option, option), value
    return make_change("--only", *words, *options)


def _reread_files(
    recorded: Request,
    declaration: Declaration,
    known: Collection[str],
    *,
    folder: Path,
    settings: Settings,
    reporter: Reporter,
    no_sources: Collection[str],
) -> dict[str, RequirementsFile]:
    """Return the current requirements in files that earlier commands used.

    If a file is missing, the lines that a lock file recorded are used, because a
    container image may contain only the lock file.

    Args:
        recorded: The request of the lock files.
        declaration: The project's own files.
        known: The files that were already read.
        folder: The folder of the lock files.
        settings: The settings of the command.
        reporter: Reports missing files.
        no_sources: The packages without a source, or ``:all:``.

    Raises:
        UsageError: A missing file specified package indexes. Without them, its
            packages would be installed from the default index.
    """
    files = {}
    gone = []
    for name, lines in recorded.files.items():
        # Ignore exported files, because they do not contain a request.
        is_known = name in known or name in declaration.unread
        if is_known or name in PROJECT_FILES:
            continue
        try:
            files[name] = reread_file(name, lines, folder, no_sources)
        except UsageError as error:
            # Ignore a dependency group that was removed from its file.
            if error.code in {"group-unknown", "extra-unknown"}:
                files[name] = RequirementsFile()
                reporter.warn(
                    f"{error.message}; its requirements were removed from the request"
                )
                continue
            # Do not print this error: it may quote another user's file.
            files[name] = RequirementsFile.from_lines(lines)
            gone.append(name)
    if not gone or settings.only:
        return files
    fault = "cannot be read"
    if not any(is_inside(folder / split_part(name)[0], folder) for name in gone):
        fault = "is outside the repository, so only -r reads it again"
    names = f"{', '.join(gone)} {fault}"
    if recorded.sources:
        raise UsageError(
            "inputs-gone",
            f"{names}, and the lock file was resolved with {', '.join(recorded.sources)}",
            why="without these settings, packages could come from other sources",
            hint=(f"Restore {gone[0]}", _suggest_recorded_request(recorded)),
        )
    reporter.warn(
        f"{names}; its recorded requirements still apply (lock --only REQ... drops them)"
    )
    return files
