"""What a lock is made from: what a folder asks for by files of its own, and requirements as the user writes them."""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from packaging.errors import ExceptionGroup

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import check_outside, parse_ini, parse_toml
from gpuinstall.base.finding import Reason
from gpuinstall.base.poetry import poetry_specifiers
from gpuinstall.base.requirement import normalised, parse_requirement, requirement_names
from gpuinstall.base.shell import joined
from gpuinstall.base.text import some
from gpuinstall.catalog.loader import load_catalog
from gpuinstall.lock.conda import parse_conda
from gpuinstall.lock.project_sources import (
    MALFORMED_TABLE,
    TOOL_FILES,
    poetry_entries,
    project_settings,
    table_in,
    tool_settings,
)
from gpuinstall.plan.companions import PAIRED
from gpuinstall.sources.configuration import uv_settings
from gpuinstall.sources.provenance import SourceSetting, source_setting
from gpuinstall.sources.requirements_file import (
    PROJECT,
    RequirementsFile,
    read_conda,
    read_listed,
    read_requirements,
    split_group,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from gpuinstall.lock.project_sources import Table

    Lines = tuple[str, ...]


DECLARING = ("requirements.txt", "environment.yml", "environment.yaml")
"""The files of a folder that say what it asks for if its pyproject.toml does not, the first that is there."""

SETUP = "setup.py"
SETUP_CONFIG = "setup.cfg"
PROJECT_FILES = (PROJECT, SETUP, SETUP_CONFIG)
"""The files of a project, which are read again at every run."""

EXPORTED_BY = {
    "Pipfile": "pipenv requirements > requirements.txt",
    "pixi.toml": "pixi workspace export conda-environment environment.yml",
}
"""Files whose requests are not read, with the command that writes them into one that is."""
_UNREAD_LOCKS = {
    "pdm.lock": "pdm export -o requirements.txt",
    "Pipfile.lock": "pipenv requirements > requirements.txt",
}
"""Locks whose versions are not read, with such a command."""

_REQUEST_FILES = ("requirements*.txt", "environment*.yml", "environment*.yaml")
"""How users call files of requirements, which a folder may have many of."""

_UNNAMED = "the project"
"""What a project is called if only its build knows its name."""

_ITSELF = "-e ."
_MADE_AGAIN = frozenset({"inputs-changed", "other-request", "versions-differ"})
"""The reasons for which a plain ``lock`` makes a lock again, near to the versions that it has."""


class Declaration(NamedTuple):
    """What a folder asks for by its own files."""

    file: str = PROJECT
    listed: RequirementsFile = RequirementsFile()
    """The requirements of ``file``."""
    groups: Lines = ()
    """The dependency groups of a project that are among them."""
    package: str = ""
    """The name of the project, if it is installed where it lies, as uv does."""
    package_file: str = PROJECT
    """The file that makes the folder a project."""
    other_files: Lines = ()
    """Further files of requirements in the folder, which do not count."""
    unread: Mapping[str, str] = {}
    """The files of other tools that are not read, with the command that writes each into one that is."""

    @property
    def whole(self) -> RequirementsFile:
        """The requirements with the project itself."""
        requirements = (*self.listed.requirements, *self._project_itself)
        return self.listed._replace(requirements=requirements)

    @property
    def _project_itself(self) -> Lines:
        """The project as a requirement, unless it is among the requirements."""
        if not self.package:
            return ()
        for line in self.listed.requirements:
            if "." not in line:
                continue
            if parse_requirement(line).url in {".", "./"}:
                return ()
        return (_ITSELF,)

    @property
    def files(self) -> dict[str, Lines]:
        """What each file asks for, line by line; ``-c`` stands before constraints."""
        files = {self.file: lines_in(self.listed)}
        itself = self._project_itself
        if itself:
            lines = files.get(self.package_file, ())
            files[self.package_file] = (*lines, *itself)
        return {name: lines for name, lines in files.items() if lines}

    @property
    def beside_project(self) -> Declaration:
        """What it asks for beside the project, if the user requests that: it comes with its own requirements."""
        if self.file in PROJECT_FILES:
            return Declaration()
        return self._replace(package="")

    def uncounted(self, requested: Collection[str]) -> str:
        """Return which files of requirements do not count and are not ``requested`` either, and what adds one."""
        files = [name for name in self.other_files if name not in requested]
        if not files:
            return ""
        if len(files) > 1:
            return f"; {some(files)} do not count (-r FILE adds it)"
        return f"; {files[0]} does not count (-r {joined(files)} adds it)"

    def __str__(self) -> str:
        parts = []
        count = len(self.listed.requirements)
        if count or not self.package:
            text = f"{self.file}: {count} requirement{'s' * (count != 1)}"
            if self.groups:
                text += f" and group{'s' * (len(self.groups) > 1)} {', '.join(self.groups)}"
            parts.append(text)
        if self.package:
            has_file = bool(parts) and self.package_file == self.file
            file = "" if has_file else f"{self.package_file}: "
            parts.append(f"{file}{self.package} itself, editable")
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
    if configured:
        tool = table_in(_project_document(folder / PROJECT), "tool")
        declared = Declaration(listed=_from_sources(configured, tool, folder / PROJECT))
    else:
        declared = _read_own_files(folder)
    others = set[str]()
    for pattern in _REQUEST_FILES:
        others.update(file.name for file in folder.glob(pattern) if file.is_file())
    exports = _UNREAD_LOCKS
    if not (declared.package or declared.listed.requirements):
        exports = _UNREAD_LOCKS | EXPORTED_BY
    unread = {name: export for name, export in exports.items() if (folder / name).is_file()}
    return declared._replace(
        listed=declared.listed | RequirementsFile(settings=tuple(_tool_settings(folder))),
        other_files=tuple(sorted(others - {declared.file})),
        unread=unread,
    )


def _tool_settings(folder: Path) -> Iterator[SourceSetting]:
    """Yield what the tools' own files beside a project say of sources."""
    for name, tool in TOOL_FILES.items():
        path = folder / name
        if not path.is_file():
            continue
        text = read_listed(path, folder)
        try:
            document = parse_toml(text) if path.suffix != ".cfg" else _parse_setup(text)
            yield from tool_settings(tool, document, path)
        except MALFORMED_TABLE as error:
            raise UsageError("requirements-malformed", f"{path} is malformed: {error}") from None


def _parse_setup(text: str) -> Table:
    """Return the sections of a ``setup.cfg``; none of one that only other tools read."""
    with suppress(ValueError):
        options = parse_ini(text)
        return {name: dict(options[name]) for name in options.sections()}
    return {}


def _project_document(project: Path) -> Table:
    """Return a ``pyproject.toml``, that of a member of uv's workspace with the sources of its root; empty without one."""
    if not project.is_file():
        return {}
    document = parse_toml(read_listed(project))
    return _with_workspace(document, project.absolute().parent)


def _with_workspace(document: Table, folder: Path) -> Table:
    """Return a member's document with the sources of its workspace, which count if it has none of that name."""
    for root in folder.parents:
        project = root / PROJECT
        if not project.is_file():
            continue
        shared = table_in(parse_toml(read_listed(project)), "tool", "uv")
        if "workspace" not in shared:
            continue
        place = folder.relative_to(root).as_posix()
        members = shared["workspace"].get("members", [])
        if not any(fnmatch(place, pattern.rstrip("/")) for pattern in members):
            return document
        check_outside(project, folder / PROJECT)
        uv = table_in(document, "tool", "uv")
        sources = dict(shared.get("sources", {}))
        for name, source in sources.items():
            if isinstance(source, dict) and "path" in source:
                path = os.path.relpath(root / source["path"], folder)
                sources[name] = {**source, "path": path}
        both = {
            **uv,
            "sources": sources | uv.get("sources", {}),
            "index": [*uv.get("index", []), *shared.get("index", [])],
        }
        return {**document, "tool": {**table_in(document, "tool"), "uv": both}}
    return document


def _read_own_files(folder: Path) -> Declaration:
    """Return what the project asks for; if it lists no requirements itself, those of the first file beside it."""
    project = folder / PROJECT
    pyproject = _project_document(project)
    # Without a project nothing is parsed, and a plan need not load what parses it.
    declared = parse_project(pyproject, project) if pyproject else Declaration()
    if not declared.package and _is_setup_package(folder, pyproject):
        declared = declared._replace(package=_UNNAMED, package_file=SETUP)
    if declared.listed.requirements:
        return declared
    for name in DECLARING:
        path = folder / name
        if path.is_file() and read_listed(path, folder):
            # What the project says of sources counts for it too.
            listed = declared.listed | read_inputs(str(path))
            return declared._replace(file=name, listed=listed)
    return declared._replace(file=declared.package_file)


def _is_setup_package(folder: Path, pyproject: Table) -> bool:
    """Whether the folder is a package by its ``setup.py`` alone, and ``[tool.uv]`` does not deny it."""
    tool = pyproject.get("tool", {})
    if "project" in pyproject or tool.get("poetry"):
        return False
    return (folder / SETUP).is_file() and bool(table_in(tool, "uv").get("package", True))


def read_inputs(name: str) -> RequirementsFile:
    """Return what a file of requirements, in whatever form, or a dependency group asks for.

    Raises:
        UsageError: if it is malformed.
    """
    file, group = split_group(name)
    path = Path(file)
    if path.name in EXPORTED_BY:
        message = f"{path} is not read as a request"
        raise UsageError("requirements-unread", message, hint=EXPORTED_BY[path.name])
    if path.suffix in {".yml", ".yaml"}:
        return _with_wheels_of_conda(read_conda(path))
    is_lock = re.fullmatch(r"pylock\.(.+\.)?toml", path.name)
    if path.name != PROJECT and not is_lock:
        return read_requirements(path)
    text = read_listed(path)
    try:
        document = parse_toml(text)
        if is_lock:
            return _read_lock(document, path)
        project = _with_workspace(document, path.absolute().parent)
        return _read_project(project, path, group)
    except MALFORMED_TABLE as error:
        why = _in_words(error)
    if group:
        message = f"{path} has no usable dependency group {group!r}: {why}"
        raise UsageError("group-unknown", message)
    raise UsageError("requirements-malformed", f"{path} is malformed: {why}")


def _in_words(error: Exception) -> str:
    errors = error.exceptions if isinstance(error, ExceptionGroup) else [error]
    return " ".join("; ".join(map(str, errors)).split())


def _read_project(document: Table, path: Path, group: str) -> RequirementsFile:
    """Return the dependencies of a ``pyproject.toml``, or of one of its groups; paths start from where it lies."""
    project = document.get("project", {})
    if group:
        # As the project's own dependencies: what [tool] says of sources counts for them too.
        project = {**project, "dependencies": _in_groups(document, [group])}
    listed = parse_project({**document, "project": project, "dependency-groups": {}}, path).listed
    folder = path.absolute().parent
    if folder == Path.cwd():  # uv's settings in the working folder are configuration
        return listed
    requirements = [_from_folder(path.parent, text) for text in listed.requirements]
    further = (*_tool_settings(folder), *uv_settings(table_in(document, "tool", "uv"), path))
    return listed._replace(requirements=tuple(requirements), settings=(*listed.settings, *further))


def _from_folder(folder: Path, text: str) -> str:
    """Write a requirement of a path that starts from ``folder`` so that it starts from the working folder."""
    requirement = parse_requirement(text)
    path = requirement.url
    if not path or requirement.is_remote or path.startswith("~"):
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
    try:
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
            is_built = "build-system" in pyproject or "dependencies" in project.get("dynamic", ())
            is_package = is_built and poetry.get("package-mode", True)
    except (*MALFORMED_TABLE, UsageError) as error:
        message = "pyproject.toml: the project's dependencies or groups are malformed"
        raise UsageError("config-malformed", message, why=_in_words(error)) from None
    name = ""
    if is_package:
        name = str(project.get("name") or poetry.get("name") or _UNNAMED)
    return Declaration(listed=listed, groups=tuple(selected), package=name)


def _in_groups(pyproject: Table, names: Iterable[str]) -> list[str]:
    """Return what dependency groups require."""
    from packaging.dependency_groups import resolve_dependency_groups

    return list(resolve_dependency_groups(pyproject.get("dependency-groups", {}), *names))


def _expanded(requirements: Iterable[str], project: Table, seen: set[str]) -> Iterator[str]:
    """Yield requirements with what the project's own extras (``thing[test]``) require, but for those in ``seen``."""
    own_name = normalised(project.get("name", ""))
    for text in requirements:
        requirement = parse_requirement(text)
        if requirement.name != own_name:
            yield requirement.text
            continue
        extras = [extra for extra in requirement.extra_names if extra not in seen]
        seen.update(extras)
        for extra in extras:
            yield from _expanded(project["optional-dependencies"][extra], project, seen)


def _from_sources(requirements: Iterable[str], tool: Table, file: Path) -> RequirementsFile:
    """Return requirements, each once, with what ``[tool]`` of the same file says of their sources."""
    uv = table_in(tool, "uv")
    sources: dict[str, Any] = {}
    for key, entry in poetry_entries(table_in(tool, "poetry")):
        if _address(entry):
            sources[normalised(key)] = entry
    for key, source in uv.get("sources", {}).items():
        sources[normalised(key)] = source
    lines = []
    names = set()
    for text in dict.fromkeys(requirements):
        requirement = parse_requirement(text)
        if not requirement.url:
            names.add(requirement.name)
        lines.append(_from_source(text, sources.get(requirement.name)))
    return RequirementsFile(
        tuple(lines),
        tuple(map(str, uv.get("constraint-dependencies", ()))),
        tuple(project_settings(tool, file, names)),
    )


def _from_source(text: str, source: Any) -> str:
    """Write a requirement with the address that a tool gives it; the family has sources of its own."""
    # A list is of sources by marker. What cannot be obeyed is refused with the other settings of sources.
    if not isinstance(source, dict):
        return text
    requirement = parse_requirement(text)
    address = _address(source)
    if requirement.url or address is None or requirement.name in load_catalog().family:
        return text
    editable = "-e " if source.get("editable") else ""
    located = f"{editable}{requirement.name}{requirement.extras} @ {address}"
    return _with_marker(located, requirement.marker)


def _address(source: Table) -> str | None:
    """Return the address of a source: a repository with its reference, a file, a folder; None for an index."""
    inside = f"#subdirectory={source['subdirectory']}" if "subdirectory" in source else ""
    if "git" in source:
        repository = source["git"].removeprefix("git+")
        reference = ""
        for kind in ("branch", "tag", "rev"):
            if kind in source:
                reference = f"@{source[kind]}"
        return f"git+{repository}{reference}{inside}"
    if "url" in source:
        return f"{source['url']}{inside}"
    path = source.get("path", source.get("file"))  # a file as Poetry writes it
    return None if path is None else str(path)


def _poetry_requirements(poetry: Table) -> Iterator[str]:
    """Yield what Poetry's own tables ask for, which came before ``[project]``, with the groups that it installs."""
    for name, entry in poetry_entries(poetry):
        if name == "python" or entry.get("optional"):
            continue
        place = ",".join(poetry_specifiers(entry.get("version", "")))
        address = _address(entry)
        if address:
            place = f" @ {address}"
        conditions = [
            re.sub(r"^([<>=!~]+)(.+)$", r"python_version \1 '\2'", bound)
            for bound in poetry_specifiers(entry.get("python", ""))
        ]
        if "markers" in entry:
            conditions.append(f"({entry['markers']})")
        extras = f"[{','.join(entry['extras'])}]" if "extras" in entry else ""
        yield _with_marker(f"{name}{extras}{place}", " and ".join(conditions))


def _with_marker(requirement: str, marker: object) -> str:
    return f"{requirement} ; {marker}" if marker else requirement


def _read_lock(document: Table, path: Path) -> RequirementsFile:
    """Return the packages of a PEP 751 lock in their versions, but for what comes with torch's build.

    The hashes are settings; those of the family do not count, for its build is chosen.
    """
    requirements = []
    settings = list[SourceSetting]()
    for package in document.get("packages", ()):
        name = normalised(package["name"])
        version = package.get("version", "").partition("+")[0]
        is_tied = load_catalog().is_tied(name)
        if version and (name in PAIRED or not is_tied):
            requirements.append(_with_marker(f"{name}=={version}", package.get("marker")))
        if name in PAIRED or is_tied:
            continue
        files = list(package.get("wheels", ()))
        files += [package[kind] for kind in ("sdist", "archive") if kind in package]
        for file in files:
            sha256 = file.get("hashes", {}).get("sha256")
            if sha256:
                setting = source_setting(
                    "PEP 751", "hashes of packages", f"sha256:{sha256}", path, package=name
                )
                settings.append(setting)
    return RequirementsFile(tuple(requirements), settings=tuple(settings))


def locks_in(folder: Path) -> list[Path]:
    """Return the locks in a folder, by name."""
    locks = [
        *folder.glob("pylock.*.toml"),
        *folder.glob("pylock.toml"),
    ]
    return sorted(locks)


def canonical(requirements: Iterable[str]) -> Lines:
    """Return requirements in one spelling, each once, in the order of naming.

    Raises:
        UsageError: if one is malformed.
    """
    spellings = []
    for requirement in map(parse_requirement, requirements):
        text = requirement.text
        if not requirement.url:
            text = re.sub(r"^[\w.-]+", requirement.name, text)
        spellings.append(text)
    return tuple(dict.fromkeys(spellings))


def is_requirement(text: object) -> bool:
    """Whether something is a requirement."""
    with suppress(UsageError):
        return isinstance(text, str) and bool(parse_requirement(text))
    return False


def digest(inputs: Iterable[str]) -> str:
    """Return the digest of requirements, in any order."""
    import hashlib  # loads OpenSSL, which a plan does without

    text = json.dumps(sorted(inputs))
    return hashlib.sha256(text.encode()).hexdigest()


def are_same(
    requirements: Iterable[str],
    others: Iterable[str],
) -> bool:
    """Whether two lists of requirements are the same, in any order and spelling."""
    return set(canonical(requirements)) == set(canonical(others))


def has_place(name: str, folder: Path) -> bool:
    """Whether a requirements file can be found again from ``folder``: a pipe, or one on another drive, cannot."""
    file, _ = split_group(name)
    path = Path(file)
    return path.is_file() and path.absolute().drive == folder.drive


def lines_of(
    files: Mapping[str, RequirementsFile],
    folder: Path,
) -> dict[str, Lines]:
    """Return what requirements files and groups ask for, by their paths from ``folder``."""
    lines = {}
    for name in sorted(files):
        path = Path(os.path.relpath(name, folder))
        lines[path.as_posix()] = lines_in(files[name])
    return lines


def lines_in(file: RequirementsFile) -> Lines:
    """Return what a file asks for, line by line; ``-c`` stands before constraints."""
    constraints = [f"-c {text}" for text in canonical(file.constraints)]
    return (*canonical(file.requirements), *constraints)


def parse_lines(lines: Lines) -> RequirementsFile:
    """Return the file that has these lines: the opposite of ``lines_in``."""
    constraints = [line.removeprefix("-c ") for line in lines if line.startswith("-c ")]
    requirements = [line for line in lines if not line.startswith("-c ")]
    return RequirementsFile(tuple(requirements), tuple(constraints))


def changed_inputs(
    files: Mapping[str, Lines],
    folder: Path,
) -> Iterator[Reason]:
    """Yield which of the files that were recorded are gone, or ask for something else today."""
    for name, before in files.items():
        if name in PROJECT_FILES:  # which every run reads
            continue
        file, _ = split_group(name)
        if not (folder / file).is_file():
            yield Reason("inputs-gone", f"it was made from {name}, which no longer exists")
            continue
        with suppress(UsageError):
            today = lines_in(read_inputs(str(folder / name)))
            if set(today) == set(before):
                continue
        yield Reason("inputs-changed", f"{name} has changed since it was made")


def command_again(
    codes: Collection[str],
    files: Iterable[str],
    requirements: Iterable[str],
) -> str:
    """Return the command after which the locks of a folder are fresh.

    Args:
        codes: Those of the reasons why one is not.
        files: The files that they were made from.
        requirements: The requirements that they were made from.
    """
    if "inputs-gone" in codes:
        return f"gpuinstall lock --only {joined(requirements)}   # or put the file back"
    words = ["gpuinstall", "lock"]
    if not _MADE_AGAIN.issuperset(codes):
        words.append("--upgrade")
    for name in files:
        if name not in PROJECT_FILES:
            words += ["-r", name]
    return joined(words)
