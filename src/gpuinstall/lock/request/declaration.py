"""What a lock is made from: what a folder asks for by files of its own, and requirements as the user writes them."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import check_outside, parse_toml, real_path
from gpuinstall.base.finding import Reason
from gpuinstall.base.poetry import poetry_specifiers
from gpuinstall.base.requirement import normalised, parse_requirement, requirement_names
from gpuinstall.base.text import number_of, without_logins
from gpuinstall.catalog.loader import load_catalog
from gpuinstall.lock.request.conda import parse_conda
from gpuinstall.lock.request.tools import (
    TOOL_FILES,
    address_of,
    poetry_entries,
    project_settings,
    reading,
    table_in,
    tool_settings,
)
from gpuinstall.sources.configuration import uv_constraints, uv_settings
from gpuinstall.sources.requirements_file import (
    PROJECT,
    RequirementsFile,
    read_conda,
    read_listed,
    read_requirements,
    split_group,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from gpuinstall.lock.request.tools import Table
    from gpuinstall.sources.provenance import SourceSetting

    Lines = tuple[str, ...]


DECLARING = ("requirements.txt", "environment.yml", "environment.yaml")
"""The files of a folder that say what it asks for if its pyproject.toml does not, the first that is there."""

_SETUP = "setup.py"
PROJECT_FILES = (PROJECT, _SETUP, "setup.cfg")
"""The files of a project, which are read again at every run."""

_EXPORTED_BY = {
    "Pipfile": "pipenv requirements > requirements.txt",
    "Pipfile.lock": "pipenv requirements > requirements.txt",
    "pdm.lock": "pdm export -o requirements.txt",
    "pixi.toml": "pixi workspace export conda-environment environment.yml",
}
"""Files that are not read, with the command that writes what they say into one that is."""
_UNNAMED = "the project"
"""What a project is called if only its build knows its name."""


class Declaration(NamedTuple):
    """What a folder asks for by its own files."""

    file: str = PROJECT
    listed: RequirementsFile = RequirementsFile()
    """The requirements of ``file``."""
    package: str = ""
    """The name of the project, if it is installed where it lies, as uv does."""
    package_file: str = PROJECT
    """The file that makes the folder a project."""
    unread: Mapping[str, str] = {}
    """The files of other tools that are not read, with the command that writes each into one that is."""

    @property
    def whole(self) -> RequirementsFile:
        """The requirements with the project itself."""
        return self.listed | RequirementsFile.of(Path(PROJECT), self._project_itself)

    @property
    def _project_itself(self) -> Lines:
        """The project as a requirement, unless it is among the requirements."""
        addresses = {parse_requirement(line).url for line in self.listed.requirements}
        is_listed = not addresses.isdisjoint({".", "./"})
        return ("-e .",) if self.package and not is_listed else ()

    @property
    def files(self) -> dict[str, Lines]:
        """What each file asks for, line by line; ``-c`` stands before constraints."""
        files = {self.package_file: self._project_itself}
        files[self.file] = (*self.listed.lines, *files.get(self.file, ()))
        return {name: lines for name, lines in files.items() if lines}

    def __str__(self) -> str:
        count = len(self.listed.requirements)
        parts = []
        if count or not self.package:
            parts.append(f"{self.file}: {number_of(count, 'requirement')}")
        if self.package:
            itself = f"{self.package} itself, editable"
            is_same_file = parts and self.package_file == self.file
            parts.append(itself if is_same_file else f"{self.package_file}: {itself}")
        return "; ".join(parts)


def read_declaration(
    folder: Path,
    configured: Sequence[str] | None = None,
) -> Declaration:
    """Return what a folder asks for.

    Args:
        folder: The folder.
        configured: The requirements of its settings, which come first.

    Raises:
        UsageError: if a file is malformed.
    """
    project = folder / PROJECT
    document = parse_toml(read_listed(project)) if project.is_file() else {}
    if configured:
        with _reading(project):
            listed = _from_sources(configured, table_in(document, "tool"), project)
        declared = Declaration(listed=listed)
    else:
        declared = _read_own_files(folder, document)
    settings = (*declared.listed.settings, *_tool_settings(folder))
    return declared._replace(
        listed=declared.listed._replace(settings=settings),
        unread={
            name: export
            for name, export in _EXPORTED_BY.items()
            if (folder / name).is_file()
        },
    )


def _tool_settings(folder: Path) -> Iterator[SourceSetting]:
    """Yield what the tools' own files beside a project say of sources."""
    for name in TOOL_FILES:
        path = folder / name
        if path.is_file():
            with _reading(path):
                table = parse_toml(read_listed(path, folder))
                yield from tool_settings(table, path)


def _reading(path: Path) -> AbstractContextManager[None]:
    return reading(f"{path} is malformed", "requirements-malformed")


def _read_own_files(folder: Path, pyproject: Table) -> Declaration:
    """Return what the project asks for; if it lists no requirements itself, those of the first file beside it."""
    # Without a project nothing is parsed, and a plan need not load what parses it.
    declared = (
        parse_project(_with_dev(pyproject), folder / PROJECT)
        if pyproject
        else Declaration()
    )
    tool = table_in(pyproject, "tool")
    is_declared = declared.package or "project" in pyproject or tool.get("poetry")
    is_package = table_in(tool, "uv").get("package", True)
    if not is_declared and is_package and (folder / _SETUP).is_file():
        declared = declared._replace(package=_UNNAMED, package_file=_SETUP)
    if declared.listed.requirements:
        return declared
    for name in DECLARING:
        path = folder / name
        if path.is_file() and read_listed(path, folder):
            # What the project says of sources counts for it too.
            return declared._replace(
                file=name, listed=declared.listed | read_inputs(str(path))
            )
    return declared._replace(file=declared.package_file)


def read_inputs(name: str) -> RequirementsFile:
    """Return what a file of requirements, in whatever form, or a dependency group asks for.

    Raises:
        UsageError: if it is malformed.
    """
    file, group = split_group(name)
    path = Path(file)
    _check_form(path)
    if path.suffix in {".yml", ".yaml"}:
        return _with_wheels_of_conda(read_conda(path))
    if path.name != PROJECT:
        return read_requirements(path)
    text = read_listed(path)
    with _reading(path):
        document = parse_toml(text)
    what = f"{path} has no usable dependency group {group!r}"
    with reading(what, "group-unknown") if group else _reading(path):
        return _read_project(document, path, group)


def read_limits(name: str) -> RequirementsFile:
    """Return what a file of constraints allows; it requests nothing.

    Raises:
        UsageError: if it is malformed.
    """
    path = Path(name)
    _check_form(path)
    file = read_requirements(path)
    limits = file.requirements + file.constraints
    return file._replace(requirements=(), constraints=limits)


def _check_form(path: Path) -> None:
    """Raise UsageError for a file that is not read as a list of requirements."""
    export = _EXPORTED_BY.get(path.name)
    if export:
        message = f"{path} is not read as a request"
        raise UsageError("requirements-unread", message, hint=export)


def _read_project(
    document: Table,
    path: Path,
    group: str,
) -> RequirementsFile:
    """Return the dependencies of a ``pyproject.toml``, or of one of its groups; paths start from where it lies."""
    project = document.get("project", {})
    if group:
        # As the project's own dependencies: what [tool] says of sources counts for them too.
        project = {**project, "dependencies": _in_groups(_with_dev(document), [group])}
    listed = parse_project(
        {**document, "project": project, "dependency-groups": {}}, path
    ).listed
    folder = path.absolute().parent
    if folder == Path.cwd():  # uv's settings in the working folder are configuration
        return listed
    requirements = [_from_folder(path.parent, text) for text in listed.requirements]
    further = (
        *_tool_settings(folder),
        *uv_settings(table_in(document, "tool", "uv"), path),
    )
    return listed._replace(
        requirements=tuple(requirements), settings=(*listed.settings, *further)
    )


def read_whole_project(path: Path, extras: Iterable[str]) -> RequirementsFile:
    """Return what a project requires with extras, and what its build does.

    Raises:
        UsageError: It is malformed.
    """
    text = read_listed(path)
    with _reading(path):
        document = parse_toml(text)
        project = table_in(document, "project")
        known = sorted(project.get("optional-dependencies", {}).keys() & extras)
        required = [
            *project.get("dependencies", ()),
            *table_in(document, "build-system").get("requires", ()),
            *(f"{project['name']}[{extra}]" for extra in known),
        ]
        if "dependencies" not in project:
            required += _poetry_requirements(table_in(document, "tool", "poetry"))
        whole = {**project, "dependencies": required}
        listed = {**document, "project": whole, "dependency-groups": {}}
        return parse_project(listed, path).listed


def _from_folder(folder: Path, text: str) -> str:
    """Write a requirement of a path that starts from ``folder`` so that it starts from the working folder."""
    path = parse_requirement(text).path
    if not path or path.startswith("~"):
        return text
    return text.replace(f" @ {path}", f" @ {os.path.normpath(folder / path)}", 1)


def _with_wheels_of_conda(listed: RequirementsFile) -> RequirementsFile:
    """Add the packages of conda that have wheels; what the pip part asks for stands for them."""
    names = requirement_names(listed.requirements)
    wheels = parse_conda(listed.conda).requirements
    others = [text for text in wheels if parse_requirement(text).name not in names]
    return listed._replace(requirements=(*others, *listed.requirements))


def parse_project(
    pyproject: Table,
    file: Path = Path(PROJECT),
) -> Declaration:
    """Return the dependencies of ``[project]`` and of the groups that uv installs unasked (``default-groups``, or dev).

    Those that uv takes from an address are asked for by that address.

    Raises:
        UsageError: if they are malformed.
    """
    tool = table_in(pyproject, "tool")
    uv = table_in(tool, "uv")
    poetry = table_in(tool, "poetry")
    project = table_in(pyproject, "project")
    what = "pyproject.toml: the project's dependencies or groups are malformed"
    with reading(what, "config-malformed"):
        groups = pyproject.get("dependency-groups", {})
        selected = uv.get("default-groups")
        if selected is None:
            selected = [name for name in groups if normalised(name) == "dev"]
        elif selected == "all":
            selected = groups
        written = list(project.get("dependencies", ()))
        written += _in_groups(pyproject, selected)
        if "dependencies" not in project:
            written += _poetry_requirements(poetry)
        listed = _from_sources(_expanded(written, project, set()), tool, file)
        is_package = uv.get("package")
        if is_package is None:
            is_dynamic = "dependencies" in project.get("dynamic", ())
            is_built = "build-system" in pyproject or is_dynamic
            is_package = is_built and poetry.get("package-mode", True)
    name = project.get("name") or poetry.get("name") or _UNNAMED
    return Declaration(listed=listed, package=str(name) if is_package else "")


def _with_dev(pyproject: Table) -> Table:
    """Return a project with the group dev as uv has it: ``dev-dependencies`` of its table are in it."""
    further = table_in(pyproject, "tool", "uv").get("dev-dependencies")
    if not further:
        return pyproject
    groups = table_in(pyproject, "dependency-groups")
    what = "pyproject.toml: dev-dependencies is malformed"
    with reading(what, "config-malformed"):
        return {
            **pyproject,
            "dependency-groups": {**groups, "dev": [*groups.get("dev", ()), *further]},
        }


def _in_groups(pyproject: Table, names: Iterable[str]) -> list[str]:
    """Return what dependency groups require."""
    from packaging.dependency_groups import resolve_dependency_groups

    return list(
        resolve_dependency_groups(pyproject.get("dependency-groups", {}), *names)
    )


def _expanded(
    requirements: Iterable[str],
    project: Table,
    seen: set[str],
) -> Iterator[str]:
    """Yield requirements with what the project's own extras (``thing[test]``) require, but for those in ``seen``."""
    own_name = normalised(project.get("name", ""))
    for text in requirements:
        requirement = parse_requirement(text)
        if requirement.name != own_name:
            yield text
            continue
        extras = [extra for extra in requirement.extra_names if extra not in seen]
        seen.update(extras)
        for extra in extras:
            yield from _expanded(project["optional-dependencies"][extra], project, seen)


def _from_sources(
    requirements: Iterable[str],
    tool: Table,
    file: Path,
) -> RequirementsFile:
    """Return requirements, each once, with what ``[tool]`` of the same file says of their sources."""
    uv = table_in(tool, "uv")
    sources = [
        *poetry_entries(table_in(tool, "poetry")),
        *uv.get("sources", {}).items(),
    ]
    # A list is of sources by marker. What cannot be obeyed is refused with the other settings of sources.
    addresses = {
        normalised(name): source
        for name, source in sources
        if isinstance(source, dict) and address_of(source)
    }
    written = dict.fromkeys(requirements)
    names = {one.name for one in map(parse_requirement, written) if not one.url}
    return RequirementsFile.of(
        file,
        [_from_source(text, addresses) for text in written],
        uv_constraints(uv),
        project_settings(tool, file, names),
    )


def _from_source(text: str, sources: Mapping[str, Table]) -> str:
    """Write a requirement with the address that a tool gives it; the family has sources of its own."""
    requirement = parse_requirement(text)
    source = sources.get(requirement.name)
    if without_logins(text) != text:
        # Its login is read with its address.
        return text
    if source is None or requirement.url or requirement.name in load_catalog().family:
        return requirement.text
    editable = "-e " if source.get("editable") else ""
    name = f"{requirement.name}{requirement.extras}"
    located = f"{editable}{name} @ {address_of(source)}"
    return _with_marker(located, requirement.marker)


def _poetry_requirements(poetry: Table) -> Iterator[str]:
    """Yield what Poetry's own tables ask for, which came before ``[project]``, with the groups that it installs."""
    for name, entry in poetry_entries(poetry):
        if name == "python" or entry.get("optional"):
            continue
        place = ",".join(poetry_specifiers(entry.get("version", "")))
        address = address_of(entry)
        if address:
            place = f" @ {address}"
        conditions = []
        for bound in poetry_specifiers(entry.get("python", "")):
            # python_version has no patch release: as such, 3.11.9 is 3.11, and older than 3.11.2.
            python = "python_full_version" if bound.count(".") > 1 else "python_version"
            conditions.append(re.sub("^([<>=!~]+)(.+)$", rf"{python} \1 '\2'", bound))
        if "markers" in entry:
            conditions.append(f"({entry['markers']})")
        extras = f"[{','.join(entry['extras'])}]" if "extras" in entry else ""
        yield _with_marker(f"{name}{extras}{place}", " and ".join(conditions))


def _with_marker(requirement: str, marker: object) -> str:
    return f"{requirement} ; {marker}" if marker else requirement


def locks_in(folder: Path) -> list[Path]:
    """Return the locks in a folder, by name."""
    locks = [
        *folder.glob("pylock.*.toml"),
        *folder.glob("pylock.toml"),
    ]
    return sorted(locks)


def has_place(name: str, folder: Path) -> bool:
    """Whether a requirements file can be found again from ``folder``: a pipe, or one on another drive, cannot."""
    path = Path(split_group(name)[0])
    return path.is_file() and path.absolute().drive == folder.drive


def lines_of(
    files: Mapping[str, RequirementsFile],
    folder: Path,
) -> dict[str, Lines]:
    """Return what requirements files and groups ask for, by their paths from ``folder``."""
    return {
        Path(os.path.relpath(name, folder)).as_posix(): files[name].lines
        for name in sorted(files)
    }


def read_again(
    name: str,
    lines: Lines,
    folder: Path,
) -> RequirementsFile:
    """Return what a file of requirements or of constraints asks for today.

    Args:
        name: Its path from ``folder``.
        lines: What it asked for: where these are constraints alone, it was read for nothing else.
        folder: The folder of the lock that names it, which may be a stranger's.

    Raises:
        UsageError: if it cannot be read, or is not one that the folder may name.
    """
    path = folder / split_group(name)[0]
    if not path.is_file():
        raise UsageError("requirements-unreadable", f"{name} is not a file")
    if not real_path(path).is_relative_to(real_path(folder)):
        check_outside(path, folder)
    are_limits = bool(lines) and all(line.startswith("-c ") for line in lines)
    read = read_limits if are_limits else read_inputs
    return read(str(folder / name))


def is_settings(name: str, lines: Lines) -> bool:
    """Whether a file is one of a project's own, or of uv's settings, which every run reads anew."""
    are_limits = all(line.startswith("-c ") for line in lines)
    kind = Path(name).name
    return name in PROJECT_FILES or (are_limits and kind in {"uv.toml", PROJECT})


def changed_inputs(files: Mapping[str, Lines], folder: Path) -> Iterator[Reason]:
    """Yield which of the files that a lock was made from ask for something else today.

    One that is gone is no other request: a lock may be shipped without it.
    """
    for name, before in files.items():
        # The project's own files are read by every run.
        is_there = (folder / split_group(name)[0]).is_file()
        if is_settings(name, before) or not is_there:
            continue
        with suppress(UsageError):
            if set(read_again(name, before, folder).lines) == set(before):
                continue
        yield Reason("inputs-changed", f"{name} has changed since it was made")
