"""Read the request in a folder's files, and the user's requirements files."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from os.path import exists, isfile
from pathlib import Path

from gpuinstall.base.advice import Advice, make_change, make_command
from gpuinstall.base.environment_paths import interpreter
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import (
    expand_home,
    hide_linked_text,
    is_inside,
    leads_outside,
    parse_toml,
)
from gpuinstall.base.owners import is_adoptable
from gpuinstall.base.request import Request
from gpuinstall.base.requirement import (
    Constraint,
    Requirement,
    TextOrigin,
    parse_requirement,
    quote_path,
)
from gpuinstall.base.text import format_count
from gpuinstall.base.values import Value, replace
from gpuinstall.lock.file.target import find_locks
from gpuinstall.lock.request.pyproject import (
    PartContents,
    ProjectFile,
    add_marker,
    check_project,
    require_extras,
)
from gpuinstall.lock.request.tools import (
    POETRY_FILE,
    TOOL_FILES,
    read_index_settings,
    read_poetry_configuration,
)
from gpuinstall.sources.configuration import parse_uv_settings
from gpuinstall.sources.provenance import SourceSetting
from gpuinstall.sources.requirements_file import (
    PROJECT,
    Part,
    RequirementsFile,
    convert_content_errors,
    read_requirements,
    read_requirements_text,
    requirements_path,
    split_part,
)
from gpuinstall.sources.uv_settings import UvSetting

_DECLARING = {
    "requirements.txt": "uv pip install -r requirements.txt",
    "environment.yml": "conda env create -f environment.yml",
    "environment.yaml": "conda env create -f environment.yaml",
}
"""Files to read, in order, if pyproject.toml requests nothing.

Only the first file that is not empty is used. The value is the command that installs
an exported file.
"""

_SETUP = "setup.py"
PROJECT_FILES = (PROJECT, _SETUP, "setup.cfg")
"""The project files that every run reads."""

_EXPORTED_BY = {
    "Pipfile": "pipenv requirements > requirements.txt",
    "Pipfile.lock": "pipenv requirements > requirements.txt",
    "pdm.lock": "pdm export -o requirements.txt",
    "pixi.toml": "pixi workspace export conda-environment environment.yml",
}
"""Unsupported files, each with the command that exports it."""
_EXPORT = "# From pylock."
"""The start of a file that ``gpuinstall export`` wrote."""


class SelectedParts(Value):
    """The extras and groups that the user selects and omits."""

    typed: frozenset[Part] = frozenset()
    """The extras and groups in this command's options."""

    recorded: frozenset[Part] = frozenset()
    """The extras and groups of earlier commands."""

    omitted: frozenset[str] = frozenset()
    """The groups that this command omits."""

    no_groups: tuple[str, ...] = ()
    """The groups that this command or an earlier one omits, or ``:all:``."""

    @classmethod
    def from_files(
        cls, typed: Request, recorded: Request, files: Iterable[str]
    ) -> SelectedParts:
        """Combine the options of this command with the request of the locks.

        Args:
            typed: The request of this command.
            recorded: The request of the locks.
            files: The files, extras, and groups of this command, by path.
        """
        parts = find_parts(files)
        earlier = (one for one in recorded.no_groups if Part("group", one) not in parts)
        names = tuple(dict.fromkeys((*typed.no_groups, *earlier)))
        omitted = frozenset(typed.no_groups) - {":all:"}
        return cls(parts, find_parts(recorded.files), omitted, names)

    def find_replaced(self, conflicts: Collection[Collection[Part]]) -> frozenset[Part]:
        """Return the recorded parts that this command omits or replaces.

        Args:
            conflicts: The sets of conflicting extras and groups.
        """
        omitted = {Part("group", name) for name in self.no_groups}
        others = (_find_others(members, self.typed) for members in conflicts)
        return self.recorded & omitted.union(*others)

    def find_outranked(
        self, conflicts: Collection[Collection[Part]]
    ) -> frozenset[Part]:
        """Return the parts that conflict with selected ones.

        Args:
            conflicts: The sets of conflicting extras and groups.
        """
        selected = self.typed | (self.recorded - self.find_replaced(conflicts))
        return frozenset().union(*(_find_others(one, selected) for one in conflicts))


NO_PARTS = SelectedParts()


def find_parts(names: Iterable[str]) -> frozenset[Part]:
    """Return the extras and groups of pyproject.toml among files."""
    parts = map(split_part, names)
    return frozenset(part for file, part in parts if part and file == PROJECT)


def _find_others(members: Collection[Part], selected: Collection[Part]) -> set[Part]:
    """Return the members of a conflict that a selected member excludes."""
    others = {one for one in members if one not in selected}
    return others if len(others) < len(members) else set()


class Declaration(Value):
    """The request that the files in a folder declare."""

    file: str = PROJECT
    listed: RequirementsFile = RequirementsFile()
    """The requirements that ``file`` lists."""
    project_file: str = ""
    """The file that makes the folder a package; empty if there is none."""
    unread: Mapping[str, str] = {}
    """The unsupported files, each with the command that exports it."""
    default_parts: tuple[Part, ...] = ()
    """The dependency groups that ``listed`` includes."""
    outranked: tuple[Part, ...] = ()
    """The default groups that conflict with a selected extra or group."""
    no_groups: tuple[str, ...] = ()
    """The default groups that the user omits, or ``:all:``."""
    replaced: frozenset[Part] = frozenset()
    """The recorded extras and groups that this command omits or replaces."""
    conflicts: tuple[tuple[Part, ...], ...] = ()
    """The sets of conflicting extras and groups."""
    alternatives: tuple[tuple[PartContents, ...], ...] = ()
    """Sets of conflicting extras and groups. One of each set is selected."""
    omitted: tuple[Part, ...] = ()
    """Other extras and groups that require torch-family packages."""

    @property
    def files(self) -> dict[str, RequirementsFile]:
        """The requirements by file, including the project itself."""
        files = {self.file: self.listed}
        addresses = {requirement.url for requirement in self.listed.requirements}
        if self.project_file and addresses.isdisjoint({".", "./"}):
            origin = TextOrigin(self.project_file)
            itself = RequirementsFile.from_lines([parse_requirement("-e .", origin)])
            listed = files.get(self.project_file, RequirementsFile())
            files[self.project_file] = listed | itself
        return files

    def __str__(self) -> str:
        count = len(self.listed.requirements)
        itself = f"{self.project_file}: the project itself"
        if self.project_file and not count:
            return itself
        text = f"{self.file}: {format_count(count, 'requirement')}"
        return f"{text}; {itself}" if self.project_file else text


def read_declaration(
    folder: Path,
    configured: Sequence[Requirement] = (),
    no_sources: Collection[str] = (),
    selected: SelectedParts = NO_PARTS,
) -> Declaration:
    """Return the request of a folder's project or first requirements file.

    Args:
        folder: The folder with the files.
        configured: The requirements in its settings, which replace the project's.
        no_sources: The packages without a source, or ``:all:``.
        selected: The extras and groups that the user selects and omits.

    Raises:
        UsageError: A file is malformed.
    """
    project = ProjectFile(path=folder / PROJECT)
    declared = Declaration()
    # Without a project, the parser need not be loaded.
    if isfile(project.path):
        with convert_content_errors(project.path):
            project = ProjectFile.read(project.path, folder, no_sources)
            check_project(project)
            if configured:
                declared = Declaration(listed=project.locate(configured))
            else:
                declared = declare_project(project, selected)
    if not configured:
        declared = _add_requirements_file(declared, project, folder)
    unread = {
        name: export for name, export in _EXPORTED_BY.items() if isfile(folder / name)
    }
    tools = RequirementsFile.from_lines((), _read_tool_settings(folder))
    return replace(
        declared,
        no_groups=selected.no_groups,
        listed=declared.listed | tools,
        unread=unread | {**declared.unread},
    )


def _read_members(project: ProjectFile) -> RequirementsFile:
    """Return all members of a workspace if its root has no project, as uv."""
    members = RequirementsFile()
    workspace = project.uv.get("workspace")
    if "project" in project.document or not workspace:
        return members
    from gpuinstall.sources.workspace import find_workspace_members

    root = project.path.parent
    origin = TextOrigin(str(project.path), "[tool.uv.workspace] members")
    for path in find_workspace_members(workspace, root):
        folder = root / path
        member = ProjectFile.read(folder / PROJECT, folder, project.no_sources)
        if member.is_package:
            itself = parse_requirement(f"-e {quote_path(f'./{path}')}", origin)
            members |= RequirementsFile.from_lines([itself])
        else:
            members |= _relocate_requirements(member.dependencies(), member)
    return members


def _add_requirements_file(
    declared: Declaration, project: ProjectFile, folder: Path
) -> Declaration:
    """Add setup.py, or the first file with requirements, to a request.

    Args:
        declared: The request of pyproject.toml.
        project: The folder's pyproject.toml; empty if there is none.
        folder: The folder with the files.
    """
    has_project = "project" in project.document or project.poetry
    is_declared = declared.project_file or has_project
    is_package = project.uv.get("package", True)
    if not is_declared and is_package and isfile(folder / _SETUP):
        declared = replace(declared, project_file=_SETUP)
    if declared.listed.requirements:
        return declared
    unread = dict[str, str]()
    for name, command in _DECLARING.items():
        path = folder / name
        text = read_requirements_text(path, folder) if exists(path) else ""
        if text.startswith(_EXPORT):
            unread[name] = command
        # An empty file requests nothing, so read the next one.
        elif text:
            # The project's sources also apply to this file.
            listed = declared.listed | read_inputs(str(path), folder)
            return replace(declared, file=name, listed=listed, unread=unread)
    return replace(declared, unread=unread)


def _read_tool_settings(folder: Path) -> Iterator[SourceSetting | UvSetting]:
    """Yield the settings in other tools' files in a project's folder."""
    for name, keys in TOOL_FILES.items():
        path = folder / name
        if isfile(path):
            with convert_content_errors(path):
                document = parse_toml(read_requirements_text(path, folder))
                yield from read_index_settings(document, keys, path)
                if name == POETRY_FILE:
                    yield from read_poetry_configuration(document, path)


def find_build_files(folder: Path) -> list[str]:
    """Return the files whose changes make uv rebuild a project."""
    files = [*PROJECT_FILES]
    with suppress(ValueError, UsageError):
        project = ProjectFile.read(folder / PROJECT, folder)
        for key in project.uv.get("cache-keys", ()):
            pattern = key if isinstance(key, str) else key.get("file", "")
            if not leads_outside(pattern):
                from gpuinstall.sources.workspace import expand_pattern

                found = filter(isfile, expand_pattern(pattern, folder))
                files += [os.path.relpath(path, folder) for path in found]
    return files


def read_inputs(
    name: str, folder: Path | None = None, no_sources: Collection[str] = ()
) -> RequirementsFile:
    """Read a requirements file of any format, or an extra or group.

    Args:
        name: The file, which can include the name of an extra or group.
        folder: The folder that selects the file. None: the user selects it.
        no_sources: The packages without a source, or ``:all:``.

    Raises:
        UsageError: The file is malformed.
    """
    file, part = split_part(name)
    path = requirements_path(file)
    kind = "a lock file, not a requirements file"
    advice = make_sync_command(path)
    if path.suffix == ".py" and "# /// script" in read_requirements_text(path, folder):
        kind = "a script with inline metadata"
        advice = Advice("uv", ("run", str(path)))
    if advice:
        raise UsageError("requirements-malformed", f"{path} is {kind}", hint=advice)
    if path.suffix in {".yml", ".yaml"}:
        # Few folders have such a file, so load its reader only if needed.
        from gpuinstall.lock.request.conda import read_conda

        with hide_linked_text(path):
            return read_conda(path, folder)
    if path.name != PROJECT:
        return read_requirements(path, folder)
    with convert_content_errors(path):
        project = ProjectFile(path=path)
        if isfile(path) or not isfile(path.with_name(_SETUP)):
            project = ProjectFile.read(path, folder, no_sources)
        if part is None:
            return _relocate_requirements(project.dependencies(), project)
        return _relocate_requirements(project.requirements(part), project, part)


def make_sync_command(path: Path) -> Advice | None:
    """Return the command that installs a lock file, if it is one."""
    lock = re.fullmatch(r"pylock(?:\.([^.]+))?\.toml", path.name)
    if lock is None:
        return None
    target = ("--target", lock[1]) if lock[1] else ()
    place = str(path.parent) if path.parent != Path() else ""
    return make_command("sync", *target, place=place)


def read_constraints(name: str, folder: Path | None = None) -> RequirementsFile:
    """Read a constraints file.

    Args:
        name: The path of the file. As with pip, files that it includes with ``-r`` are
            constraints, too.
        folder: The folder that selects the file. None: the user selects it.

    Raises:
        UsageError: The file is malformed.
    """
    return read_requirements(requirements_path(name), folder).as_constraints()


def _locate_requirements(
    written: Iterable[Requirement], project: ProjectFile, *parts: Part
) -> RequirementsFile:
    """Return requirements with their sources.

    As with uv, the requirements of a project replace it if it is no package.
    """
    listed = project.locate(written, *parts)
    requirements = []
    others = RequirementsFile()
    for one in listed.requirements:
        member = project.find_virtual_project(one)
        if member is None:
            requirements.append(one)
            continue
        place = member.path.absolute().parent
        is_outside = not is_inside(place, project.path.absolute().parent)
        with (
            hide_linked_text(place, is_outside=is_outside),
            convert_content_errors(member.path),
        ):
            required, extras = require_extras(member, one.extras)
            nested = _relocate_requirements(required, member, *extras)
        marked = [
            add_marker(each, str(one.marker or "")) for each in nested.requirements
        ]
        others |= replace(nested, requirements=tuple(marked))
    return replace(listed, requirements=tuple(requirements)) | others


def _relocate_requirements(
    written: Iterable[Requirement], project: ProjectFile, *parts: Part
) -> RequirementsFile:
    """Return requirements with paths relative to the working folder.

    Args:
        written: The requirements as written.
        project: The pyproject.toml that contains them.
        parts: The extras and groups that contain them.
    """
    listed = _locate_requirements(written, project, *parts)
    path = project.path
    folder = path.absolute().parent
    if folder == Path.cwd():  # these settings of uv are read as configuration
        return listed

    def relocate(requirement: Requirement) -> Requirement:
        place = requirement.path
        if not (place and requirement.has_name) or expand_home(place).is_absolute():
            return requirement
        located = os.path.normpath(path.parent / place)
        return requirement.with_url(quote_path(located))

    further = (
        *_read_tool_settings(folder),
        *parse_uv_settings(project.uv, path),
    )
    return replace(
        listed,
        requirements=tuple(map(relocate, listed.requirements)),
        settings=listed.settings + further,
    )


def declare_project(
    project: ProjectFile, selected: SelectedParts = NO_PARTS
) -> Declaration:
    """Return the dependencies of ``[project]`` and of the default groups.

    Packages with a URL or path in uv's sources have that location.

    Args:
        project: The pyproject.toml.
        selected: The extras and groups that the user selects and omits.

    Raises:
        UsageError: The dependencies are malformed.
    """
    with convert_content_errors(project.path, "config-malformed"):
        _check_omitted_groups(selected.omitted, project)
        conflicts = project.find_conflicts()
        defaults = [
            part
            for part in project.find_default_groups()
            if {part.name, ":all:"}.isdisjoint(selected.no_groups)
        ]
        outranked = selected.find_outranked(conflicts)
        parts = tuple(part for part in defaults if part not in outranked)
        key = "[tool.uv] default-groups"
        groups = (project.requirements(part, key) for part in parts)
        written = chain(project.dependencies(), *groups)
        alternatives = project.find_alternatives()
        decided = [one.part for one in chain(*alternatives)]
        others = [one for one in project.parts if one not in {*parts, *decided}]
        omitted = project.find_family_parts(others)
        listed = _locate_requirements(written, project, *parts)
        listed |= _read_members(project)
    return Declaration(
        listed=listed,
        project_file=PROJECT if project.is_package else "",
        default_parts=parts,
        outranked=tuple(part for part in defaults if part in outranked),
        replaced=selected.find_replaced(conflicts),
        conflicts=conflicts,
        alternatives=alternatives,
        omitted=omitted,
    )


def _check_omitted_groups(names: Iterable[str], project: ProjectFile) -> None:
    """Raise UsageError if the project has no group of such a name."""
    for name in names:
        if name not in project.groups:
            groups = [f"--no-group {group}" for group in sorted(project.groups)]
            known = [f"Use {' or '.join(groups)}"] if groups else []
            raise UsageError(
                "group-unknown",
                f"{project.path} has no group named {name}",
                hint=(*known, make_change(without=("--no-group", name))),
            )


def find_project_folder(start: Path) -> Path:
    """Return ``start`` or its nearest parent folder that is a project.

    Args:
        start: The working folder.
    """
    if has_lock_or_request(start):
        return start
    for folder in _find_trusted_parents(start):
        if any(map(_has_request, (folder / PROJECT, *_find_folder_locks(folder)))):
            return folder
    return start


def find_parent_environment(start: Path) -> Path | None:
    """Return the nearest working ``.venv`` in a parent without a request.

    Args:
        start: The working folder.
    """
    if has_lock_or_request(start) or find_project_folder(start) != start:
        return None
    for folder in _find_trusted_parents(start):
        venv = folder / ".venv"
        if isfile(venv / "pyvenv.cfg") and isfile(interpreter(venv)):
            return venv
    return None


def _find_trusted_parents(start: Path) -> Iterator[Path]:
    """Yield parents up to a repository, the home folder, or another owner."""
    home = Path.home()
    if exists(start / ".git"):
        return
    for folder in start.parents:
        # On Windows, any user can create folders in the root of a drive.
        has_rule = sys.platform != "win32" or folder.is_relative_to(home)
        is_home = home.is_relative_to(folder)
        if is_home or not (has_rule and is_adoptable(folder, start)):
            return
        yield folder
        if exists(folder / ".git"):
            return


def _find_folder_locks(folder: Path) -> list[Path]:
    """Return the lock files in a folder that is not an environment."""
    return [] if isfile(folder / "pyvenv.cfg") else find_locks(folder)


def _has_request(path: Path) -> bool:
    """Return whether a file has dependencies or ``[tool.gpuinstall]``."""
    # Treat an unreadable file in a parent folder as if it requested nothing.
    with suppress(ValueError, UsageError):
        file = ProjectFile.read(path, path.parent)
        keys = ("dependencies", "optional-dependencies", "group")
        has_dependencies = any(
            table.get(key) for table in (file.project, file.poetry) for key in keys
        )
        is_configured = "gpuinstall" in file.document.get("tool", {})
        return is_configured or has_dependencies or "dependencies" in file.dynamic
    return False


def has_lock_or_request(folder: Path) -> bool:
    """Return whether a folder has a lock, environment, or request."""
    names = (*PROJECT_FILES, *_DECLARING, *_EXPORTED_BY, ".venv")
    return bool(_find_folder_locks(folder)) or any(
        exists(folder / name) for name in names
    )


def group_files_by_path(
    files: Mapping[str, RequirementsFile],
    folder: Path,
) -> dict[str, RequirementsFile]:
    """Return requirements files and groups by their paths from ``folder``.

    The key "" contains the files that later commands cannot find, such as pipes and
    files on another drive.

    Raises:
        UsageError: Such a file selects sources, which later commands could not apply.
    """
    placed: dict[str, RequirementsFile] = {}
    for name, listed in sorted(files.items()):
        file, _ = split_part(name)
        path = Path(file)
        place = ""
        # With shell redirection, /dev/stdin is a regular file, but may change.
        is_stream = name.startswith(("/dev/stdin", "/dev/fd/")) or not isfile(path)
        if not is_stream and path.absolute().drive == folder.drive:
            place = Path(os.path.relpath(name, folder)).as_posix()
        elif any(setting.is_recorded for setting in listed.settings):
            raise UsageError(
                "source-setting",
                f"{name} sets package sources, but is not a regular file",
                hint="Save it as a regular file, because later commands read it again",
            )
        known = placed.get(place, RequirementsFile())
        placed[place] = known | listed
    return placed


def reread_file(
    name: str,
    lines: Sequence[Requirement],
    folder: Path,
    no_sources: Collection[str],
) -> RequirementsFile:
    """Read a requirements or constraints file of a lock again.

    Args:
        name: The path of the file from ``folder``.
        lines: The recorded lines. A constraints file has only constraints.
        folder: The folder of the lock, which may belong to another user.
        no_sources: The packages without a source, or ``:all:``.

    Raises:
        UsageError: The file cannot be read, or the folder may not refer to it.
    """
    path = folder / split_part(name)[0]
    # A lock could select any file of the user.
    if not (isfile(path) and is_inside(path, folder)):
        message = f"{name} is not a file in the repository of the lock"
        raise UsageError("requirements-unreadable", message)
    are_limits = bool(lines) and all(isinstance(line, Constraint) for line in lines)
    if are_limits:
        return read_constraints(str(path), folder)
    return read_inputs(str(folder / name), folder, no_sources)
