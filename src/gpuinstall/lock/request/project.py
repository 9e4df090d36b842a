"""Read projects in folders: static requirements and build files."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from os.path import isfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

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
from gpuinstall.base.location import (
    Location,
    PackageSource,
    SourceKind,
    is_wheel,
    parse_source,
)
from gpuinstall.base.requirement import (
    COMMAND_LINE,
    Requirement,
    TextOrigin,
    parse_requirement,
    quote_path,
)
from gpuinstall.base.shapes import parse_pyproject
from gpuinstall.base.text import shorten
from gpuinstall.base.values import Value, replace
from gpuinstall.lock.request.declaration import PROJECT_FILES
from gpuinstall.lock.request.pyproject import ProjectFile, require_extras
from gpuinstall.sources.provenance import (
    BY_ADDRESS,
    Effect,
    SourceSetting,
)
from gpuinstall.sources.requirements_file import (
    PROJECT,
    RequirementsFile,
    convert_content_errors,
    join_files,
    read_requirements_text,
)

if TYPE_CHECKING:
    from gpuinstall.wheels.ranges import Ranges

ArchiveTexts = Iterable[tuple[str, str]]
"""Names and contents of the files from which uv reads requirements."""


class RemoteArchives(Value):
    """Archives on servers, read for one environment."""

    read: Callable[[PackageSource], ArchiveTexts]
    environment: Mapping[str, str]
    """The values of ``marker_environment``."""


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
    extras = set(requirement.extras)
    if project is None or not (project.own_name and project.extras.keys() >= extras):
        return None
    name = project.own_name
    version = str(project.project.get("version", DYNAMIC_VERSION))
    row = {"name": name, "version": version, "requires-dist": []}
    requirements, _ = require_extras(project, requirement.extras)
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
                if setting.key == BY_ADDRESS and setting.path:
                    located = setting.locate(place)
                    yield replace(located, value=quote_path(str(located.path)))
                else:
                    yield setting


def find_nested_requirements(
    requirements: Collection[Requirement],
    folder: Path,
    no_sources: Collection[str],
    remote: RemoteArchives | None = None,
) -> Iterator[Requirement]:
    """Yield the absolute paths that requested and nested projects require.

    Packages with another URL or path are omitted, so they keep it.

    Raises:
        UsageError: uv would expand a variable in a URL of a project or an archive.
    """
    located = {one.name for one in requirements if one.url and one.has_name}
    projects = _find_projects(requirements, folder, set(), no_sources, remote)
    for place, listed in projects:
        for requirement in listed.requirements:
            path = requirement.path
            if path and requirement.name not in located:
                absolute = quote_path(str(place / expand_home(path)))
                yield requirement.with_url(absolute)


def _find_projects(
    requirements: Iterable[Requirement],
    folder: Path,
    seen: set[tuple[Location, tuple[str, ...]]],
    no_sources: Collection[str] = (),
    remote: RemoteArchives | None = None,
) -> Iterator[tuple[Path, RequirementsFile]]:
    """Yield requested and nested projects and archives with their contents.

    Args:
        requirements: The requirements, including paths.
        folder: The base of relative paths.
        seen: The projects and extras read so far. New ones are added.
        no_sources: The packages without a source, or ``:all:``.
        remote: The archives on servers. None: only local ones are read.
    """
    for requirement in requirements:
        if not requirement.url:
            continue
        source = parse_source(requirement.url, folder)
        is_local = source.location.is_local
        server = None if is_local else remote
        place = Path(source.location.path if is_local else source.filename)
        key = (source.location, requirement.extras)
        # uv reads a commit of a repository, not its files.
        is_read = (is_local or server) and source.kind is not SourceKind.REPOSITORY
        if not is_read or key in seen:
            continue
        seen.add(key)
        texts = _read_texts(source, place, server)
        is_selected = is_local and requirement.origin != COMMAND_LINE
        is_outside = is_selected and not is_inside(place, folder)
        with hide_linked_text(place, is_outside=is_outside):
            extras = requirement.extras
            listed = join_files(_parse_files(texts, place, extras, no_sources))
            further = listed.requirements
            if server:
                listed = RequirementsFile()
                further = tuple(
                    one
                    for one in further
                    if one.path is None and one.applies_in(server.environment, extras)
                )
            nested = [*_find_projects(further, place, seen, no_sources, remote)]
        yield place, listed
        yield from nested


def _read_texts(
    source: PackageSource, place: Path, remote: RemoteArchives | None
) -> ArchiveTexts:
    """Return the files of a project or an archive."""
    if remote:
        return remote.read(source)
    if isfile(place):
        return read_archive(place)
    if isfile(place / PROJECT):
        return [(PROJECT, read_requirements_text(place / PROJECT, place))]
    return ()


def _parse_files(
    texts: ArchiveTexts, place: Path, extras: Iterable[str], no_sources: Collection[str]
) -> Iterator[RequirementsFile]:
    """Yield the requirements in the files of a project or an archive.

    A pyproject.toml also has requirements of the extras and of the build.
    """
    for name, text in texts:
        path = place / name
        with convert_content_errors(path):
            if path.name != PROJECT:
                yield RequirementsFile.from_lines(_parse_metadata(text, path))
                continue
            project = ProjectFile(parse_pyproject(text), path, no_sources)
            required, parts = require_extras(project, extras)
            tools = project.document.get("build-system", {}).get("requires", [])
            origin = TextOrigin(str(path), "[build-system] requires")
            required += (parse_requirement(one, origin) for one in tools)
            yield project.locate(required, *parts)


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


def read_wheel(ranges: Ranges) -> ArchiveTexts:
    """Yield the METADATA of a wheel.

    Raises:
        WheelError: A file in the wheel is too large or damaged.
    """
    from gpuinstall.wheels.ranges import WheelError
    from gpuinstall.wheels.wheel_reader import WheelReader

    try:
        wheel = WheelReader(ranges)
    except WheelError:
        # uv reports an unreadable wheel.
        return
    for member in filter(_is_in_archive, wheel.members):
        yield member, wheel.read(member).decode(errors="replace")


def read_archive(file: Path) -> ArchiveTexts:
    """Yield the files of an archive from which uv reads requirements.

    As in uv, the file name determines the format.

    Raises:
        UsageError: The archive has too many members to unpack.
        WheelError: A file in the wheel is too large or damaged.
    """
    # Imported here, because a sync does not need them.
    import tarfile
    import zipfile

    from gpuinstall.wheels.ranges import FileRanges

    if is_wheel(file.name):
        yield from read_wheel(FileRanges(file))
        return
    is_too_long = False
    # uv reports an unreadable archive.
    with suppress(Exception):
        if file.suffix == ".zip":
            with zipfile.ZipFile(file) as archive:
                entries = archive.infolist()
                is_too_long = len(entries) > _MAX_MEMBERS
                for entry in entries:
                    if _is_in_archive(entry.filename):
                        yield entry.filename, _read_text(archive.open(entry))
        else:
            with tarfile.open(file) as files:
                for count, member in enumerate(files):
                    is_too_long = count == _MAX_MEMBERS
                    if is_too_long or member.offset + member.size > _MAX_BYTES:
                        break
                    content = _is_in_archive(member.name) and files.extractfile(member)
                    if content:
                        yield member.name, _read_text(content)
    if is_too_long:
        message = f"{file} has more than {_MAX_MEMBERS} files"
        why = "unpacking it could take many minutes"
        raise UsageError("archive-too-large", message, why=why)


def _is_in_archive(member: str) -> bool:
    """Return whether uv may read requirements from a member of an archive."""
    return _IN_ARCHIVE.fullmatch(posixpath.normpath(member)) is not None


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
    is_static = is_listed and dynamic.isdisjoint(file.dynamic)
    return file if is_static else None
