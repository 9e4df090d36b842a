"""Read projects in folders: static requirements and build files."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from os.path import isfile
from pathlib import Path
from typing import IO, Any

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import (
    DOCUMENT_BYTES,
    expand_home,
    file_sha256,
    hide_linked_text,
    is_inside,
    read_raw,
    real_path,
)
from gpuinstall.base.location import SourceKind, is_wheel, parse_source
from gpuinstall.base.requirement import (
    COMMAND_LINE,
    Requirement,
    TextOrigin,
    find_path,
    parse_requirement,
    quote_path,
)
from gpuinstall.base.text import shorten
from gpuinstall.base.values import replace
from gpuinstall.lock.request.declaration import (
    PROJECT_FILES,
    read_whole_project,
)
from gpuinstall.lock.request.pyproject import ProjectFile
from gpuinstall.sources.provenance import (
    BY_ADDRESS,
    Effect,
    SourceSetting,
)
from gpuinstall.sources.requirements_file import (
    PROJECT,
    Part,
    RequirementsFile,
    convert_content_errors,
    join_files,
    read_requirements_text,
)

_IN_ARCHIVE = re.compile(
    rf"([^/]+/)?({PROJECT}|PKG-INFO|[^/]+\.egg-info/requires\.txt)"
    r"|[^/]+\.dist-info/METADATA"
)
_LIST_NAME = re.compile(r"[\w./-]+\.(?:txt|in)\b")
_MAX_MEMBERS = 50_000
"""Maximum number of members in an archive. The sdist of torch has 15,000."""
_MAX_BYTES = 1_000_000_000
"""Maximum number of bytes to unpack. A crafted archive may be endless."""


_NESTED = {Effect.LOCATED, Effect.PACKAGE_INDEX}
"""Effects of sources that uv reads in nested projects."""

DYNAMIC_VERSION = "0+unknown"
"""The version of a project until its build backend determines it."""


def read_folder_project(
    requirement: Requirement, folder: Path
) -> tuple[dict[str, Any], list[Requirement]] | None:
    """Return the requirements of a project, separate from the project itself.

    Args:
        requirement: The requirement with a path, such as ``-e ./paper[train]``.
        folder: The base of relative paths.

    Returns:
        A row of uv's ``dependency-metadata`` without dependencies, and the
        requirements of the project and its extras. None if reading them needs a build.
    """
    if requirement.path is None:
        return None
    project = read_static_project(folder / expand_home(requirement.path))
    if project is None or not project.own_name:
        return None
    if not project.extras.keys() >= set(requirement.extras):
        return None
    name = project.own_name
    version = str(project.project.get("version", DYNAMIC_VERSION))
    row = {"name": name, "version": version, "requires-dist": []}
    parts = [Part("extra", extra) for extra in requirement.extras]
    of_extras = chain.from_iterable(map(project.requirements, parts))
    requirements = [*project.dependencies(), *of_extras]
    # An extra that includes other extras requires the project itself.
    if any(requirement.name == name for requirement in requirements):
        return None
    return row, requirements


def read_nested_settings(
    requirements: Iterable[Requirement], folder: Path, no_sources: Collection[str]
) -> Iterator[SourceSetting]:
    """Yield the sources that uv reads in requested and nested projects.

    Args:
        requirements: The requirements, including paths of projects.
        folder: The base of relative paths.
        no_sources: The packages without a source, or ``:all:``.
    """
    for place, listed in _find_projects(requirements, folder, set(), no_sources):
        for setting in listed.sources:
            if setting.effect in _NESTED:
                value = setting.value
                path = find_path(value)
                if setting.key == BY_ADDRESS and path is not None:
                    value = quote_path(str(place / expand_home(path)))
                yield replace(setting, value=value)


def find_nested_requirements(
    requirements: Iterable[Requirement], folder: Path, no_sources: Collection[str]
) -> Iterator[Requirement]:
    """Yield the absolute paths that requested and nested projects require.

    Packages with another URL or path are omitted, so they keep it.
    """
    located = {one.name for one in requirements if one.url and one.has_name}
    for place, listed in _find_projects(requirements, folder, set(), no_sources):
        for requirement in listed.requirements:
            path = requirement.path
            if path and requirement.name not in located:
                absolute = quote_path(str(place / expand_home(path)))
                yield requirement.with_url(absolute)


def _find_projects(
    requirements: Iterable[Requirement],
    folder: Path,
    seen: set[tuple[Path, tuple[str, ...]]],
    no_sources: Collection[str] = (),
) -> Iterator[tuple[Path, RequirementsFile]]:
    """Yield requested and nested projects and archives with their contents.

    Args:
        requirements: The requirements, including paths.
        folder: The base of relative paths.
        seen: The projects and extras read so far. New ones are added.
        no_sources: The packages without a source, or ``:all:``.
    """
    for requirement in requirements:
        if not requirement.url:
            continue
        source = parse_source(requirement.url, folder)
        place = Path(source.location.path)
        key = (place, requirement.extras)
        # uv reads a commit of a repository, not its files.
        is_read = source.location.is_local and source.kind is not SourceKind.REPOSITORY
        if not is_read or key in seen:
            continue
        seen.add(key)
        is_selected = requirement.origin != COMMAND_LINE
        is_outside = is_selected and not is_inside(place, folder)
        with hide_linked_text(place, is_outside=is_outside):
            files = _read_project_files(place, requirement.extras, no_sources)
            listed = join_files(files)
            nested = [*_find_projects(listed.requirements, place, seen, no_sources)]
        yield place, listed
        yield from nested


def _read_project_files(
    place: Path, extras: Iterable[str], no_sources: Collection[str]
) -> Iterator[RequirementsFile]:
    """Yield the requirements in the files of a project or an archive."""
    if isfile(place):
        for path, text in _read_archive(place):
            if path.name == PROJECT:
                yield read_whole_project(text, path, extras, no_sources)
                continue
            with convert_content_errors(path):
                yield RequirementsFile.from_lines(_parse_metadata(text, path))
    elif isfile(place / PROJECT):
        path = place / PROJECT
        text = read_requirements_text(path, place)
        yield read_whole_project(text, path, extras, no_sources)


def _parse_metadata(text: str, path: Path) -> Iterator[Requirement]:
    """Yield requirements with a URL in a package's METADATA files.

    Raises:
        ValueError: uv would expand a variable in a URL.
    """
    lines = text.splitlines()
    if path.suffix != ".txt":
        # Slow to import.
        from gpuinstall.wheels.wheel_reader import parse_metadata

        lines = parse_metadata(text).get_all("Requires-Dist", [])
    for line in lines:
        written = " ".join(line.split())
        if not re.match(r"[^\[#].*@", written):
            continue
        if re.search(r"\$\{\w+\}", written):
            raise ValueError(f"uv would expand the variable in {shorten(written)!r}")
        yield parse_requirement(written, TextOrigin(str(path)))


def _read_archive(place: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files of an archive from which uv reads requirements.

    Raises:
        UsageError: The archive has too many members to unpack.
    """
    # Imported here, because a sync does not need them.
    import tarfile
    import zipfile

    is_too_long = False
    # uv reports an unreadable archive.
    with suppress(Exception):
        # Like uv, use the file name: a file can be valid in both formats.
        if is_wheel(place.name) or place.suffix == ".zip":
            with zipfile.ZipFile(place) as archive:
                members = archive.infolist()
                # Nothing unpacks a wheel before its installation.
                is_too_long = len(members) > _MAX_MEMBERS and not is_wheel(place.name)
                for entry in members:
                    if _IN_ARCHIVE.fullmatch(posixpath.normpath(entry.filename)):
                        yield place / entry.filename, _read_text(archive.open(entry))
        else:
            with tarfile.open(place) as files:
                for count, member in enumerate(files):
                    is_too_long = count == _MAX_MEMBERS
                    if is_too_long or member.offset + member.size > _MAX_BYTES:
                        break
                    is_read = _IN_ARCHIVE.fullmatch(posixpath.normpath(member.name))
                    file = is_read and files.extractfile(member)
                    if file:
                        yield place / member.name, _read_text(file)
    if is_too_long:
        message = f"{place} has more than {_MAX_MEMBERS} files"
        why = "unpacking it could take many minutes"
        raise UsageError("archive-too-large", message, why=why)


def _read_text(file: IO[bytes]) -> str:
    return file.read(DOCUMENT_BYTES).decode(errors="replace")


def compute_build_files_digest(
    requirements: Iterable[Requirement], folder: Path
) -> str:
    """Return the digest of the build files of requested and nested projects.

    The digest includes archives and the requirements files that a build file mentions.
    The result is empty if there are no such files.

    For a static project in ``folder``, it includes only the name and extras, because
    the lock has its requirements.
    """
    contents = []
    for place, _ in _find_projects(requirements, folder, set()):
        project = read_static_project(place) if place == real_path(folder) else None
        if project:
            table = project.project
            counting = table.get("name"), table.get("optional-dependencies")
            contents.append(repr(counting).encode())
            continue
        with suppress(OSError):
            if isfile(place):
                contents.append(f"{place.name} {file_sha256(place)}".encode())
        names = [*PROJECT_FILES]
        for name in names:
            with suppress(OSError):
                # Normalize line endings, because Git may convert them.
                text = read_raw(place / name, place).replace(b"\r\n", b"\n")
                contents.append(f"{place.name} {name}\n".encode() + text)
                # setup.py or setuptools may read requirements from these files.
                if name in PROJECT_FILES:
                    names += _LIST_NAME.findall(text.decode(errors="replace"))
    return hashlib.sha256(b"\n".join(contents)).hexdigest() if contents else ""


def find_built_requirements(
    requirements: Iterable[Requirement], folder: Path
) -> Iterator[Requirement]:
    """Yield path requirements whose dependencies only a build can list."""
    for requirement in requirements:
        path = requirement.path
        if path and read_static_project(folder / expand_home(path)) is None:
            yield requirement


def read_static_project(folder: Path) -> ProjectFile | None:
    """Read the pyproject.toml in a folder.

    Returns:
        The file, or None if it has no ``[project]`` table or requires a build.
    """
    try:
        file = ProjectFile.read(folder / PROJECT, folder)
    except (UsageError, ValueError):
        return None
    if "project" not in file.document:
        return None
    dynamic = {"dependencies", "optional-dependencies", "requires-python"}
    # Poetry's own tables can have the dependencies instead.
    is_listed = "dependencies" in file.project or not file.poetry
    is_static = is_listed and dynamic.isdisjoint(file.project.get("dynamic", ()))
    return file if is_static else None
