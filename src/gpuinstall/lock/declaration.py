"""What a lock is made from: what a folder asks for by files of its own, a project's own lock, requirements as named."""

from __future__ import annotations

import hashlib
import json
import os
import re
from contextlib import suppress
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from packaging.errors import ExceptionGroup

from gpuinstall.catalog.loader import load_catalog
from gpuinstall.errors import UsageError
from gpuinstall.files import check_outside, parse_ini, parse_json, parse_toml
from gpuinstall.finding import Reason
from gpuinstall.lock.conda import parse_conda
from gpuinstall.lock.project_sources import (
    PIPENV_ADDRESSES,
    configured_sources,
    easy_install,
    hatch_variables,
    pdm_configuration,
    pipenv_sources,
    pixi_sources,
    poetry_entries,
    project_settings,
)
from gpuinstall.plan.companions import PAIRED
from gpuinstall.plan.requirement import normalised, parse_requirement, requirement_names
from gpuinstall.poetry import poetry_specifiers
from gpuinstall.provenance import TEAM_LOCK, SourceSetting, source_setting
from gpuinstall.requirements_file import (
    PROJECT,
    RequirementsFile,
    check_count,
    read_conda,
    read_listed,
    read_requirements,
    split_group,
)
from gpuinstall.shell import joined
from gpuinstall.text import some

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from packaging.requirements import Requirement


DECLARING = ("requirements.txt", "environment.yml", "environment.yaml")
"""The files of a folder that say what it asks for where its pyproject.toml does not, the first that is there."""

SETUP, SETUP_CONFIG = "setup.py", "setup.cfg"
PIXI, PIPFILE, PIPENV_LOCK = "pixi.toml", "Pipfile", "Pipfile.lock"
PROJECT_FILES = (PROJECT, SETUP, SETUP_CONFIG)
"""The files of a project, which are read again at every run."""

EXPORTED_BY = {
    PIPFILE: "pipenv requirements > requirements.txt",
    PIXI: "pixi workspace export conda-environment environment.yml",
}
"""Files whose requests are not read, with the command that writes them into one that is."""

_REQUEST_FILES = ("requirements*.txt", "environment*.yml", "environment*.yaml")
"""How people call files of requirements, which a folder may have many of."""

UNNAMED = "the project"
"""What a project is called whose name only its build knows."""

_ITSELF = "-e ."


class Declaration(NamedTuple):
    """What a folder asks for by its own files."""

    file: str = PROJECT
    listed: RequirementsFile = RequirementsFile()
    """The requirements of ``file``."""
    groups: tuple[str, ...] = ()
    """The dependency groups of a project that are among them."""
    package: str = ""
    """The name of the project, if it is installed where it lies, as uv does."""
    package_file: str = PROJECT
    """The file that makes the folder a project."""
    other_files: tuple[str, ...] = ()
    """Further files of requirements in the folder, which do not count."""
    unread: tuple[str, ...] = ()
    """The files of other tools that the folder has instead, of which only the sources count."""

    @property
    def whole(self) -> RequirementsFile:
        """What it asks for with the project itself."""
        lines = self.listed.requirements
        has_itself = any(
            parse_requirement(line).url in {".", "./"} for line in lines if "." in line
        )
        itself = (_ITSELF,) if self.package and not has_itself else ()
        return self.listed._replace(requirements=(*lines, *itself))

    @property
    def files(self) -> dict[str, tuple[str, ...]]:
        """What each file asks for, line by line; ``-c`` stands before constraints."""
        files = {self.file: lines_in(self.listed)}
        if itself := self.whole.requirements[len(self.listed.requirements) :]:
            files[self.package_file] = (*files.get(self.package_file, ()), *itself)
        return {name: lines for name, lines in files.items() if lines}

    @property
    def beside_project(self) -> Declaration:
        """What it asks for beside the project, if that is requested by hand: it brings its own requirements."""
        return Declaration() if self.file in PROJECT_FILES else self._replace(package="")

    def uncounted(self, requested: Collection[str]) -> str:
        """Say which files of requirements do not count and are not ``requested`` either, and what adds one."""
        files = [name for name in self.other_files if name not in requested]
        if not files:
            return ""
        verb, example = ("does", joined([files[0]])) if len(files) == 1 else ("do", "FILE")
        return f"; {some(files)} {verb} not count (-r {example} adds it)"

    def __str__(self) -> str:
        count, parts = len(self.listed.requirements), list[str]()
        if count or not self.package:
            groups = (
                f" and group{'s' * (len(self.groups) > 1)} {', '.join(self.groups)}"
                if self.groups
                else ""
            )
            parts.append(f"{self.file}: {count} requirement{'s' * (count != 1)}{groups}")
        if self.package:
            file = "" if parts and self.package_file == self.file else f"{self.package_file}: "
            parts.append(f"{file}{self.package} itself, editable")
        return "; ".join(parts)


def read_declaration(folder: Path, configured: Sequence[str] | None = None) -> Declaration:
    """Read what a folder asks for; ``configured`` are the requirements of its settings, which come first.

    Raise UsageError for a file that is malformed.
    """
    declared = _read_configured(folder, configured) if configured else _read_own_files(folder)
    declared = declared._replace(
        listed=declared.listed | RequirementsFile(settings=_read_beside(folder))
    )
    named = {
        path.name for pattern in _REQUEST_FILES for path in folder.glob(pattern) if path.is_file()
    }
    has_request = declared.package or declared.listed.requirements
    unread = [] if has_request else [name for name in EXPORTED_BY if (folder / name).is_file()]
    return declared._replace(
        other_files=tuple(sorted(named - {declared.file})), unread=tuple(unread)
    )


def _read_beside(folder: Path) -> tuple[SourceSetting, ...]:
    """Read what the tools' own files beside a project say of sources."""
    settings = list[SourceSetting]()
    family = load_catalog().family
    readers: dict[str, Callable[[Mapping[str, Any], Path], Iterable[SourceSetting]]] = {
        "pdm.toml": pdm_configuration,
        "hatch.toml": hatch_variables,
        PIXI: partial(pixi_sources, family=family),
        PIPFILE: partial(pipenv_sources, family=family),
    }
    for name, read in readers.items():
        path = folder / name
        if not path.is_file():
            continue
        try:
            settings += read(parse_toml(read_listed(path, folder)), path)
        except (ValueError, TypeError, AttributeError, LookupError) as error:
            raise UsageError("requirements-malformed", f"{path} is malformed: {error}") from None
    if (folder / PIPENV_LOCK).is_file():
        settings += read_team_settings(folder / PIPENV_LOCK)
    setup = folder / SETUP_CONFIG
    if setup.is_file():
        with suppress(ValueError):  # it may be of other tools alone
            settings += easy_install(parse_ini(read_listed(setup, folder)), setup)
    return tuple(settings)


def _read_configured(folder: Path, requirements: Sequence[str]) -> Declaration:
    """Return the requirements of ``[tool.gpuinstall]`` with what the same file says of their sources."""
    from packaging.requirements import Requirement

    project, family = folder / PROJECT, load_catalog().family
    tool = _project_document(project).get("tool", {})
    by_name = {
        parse_requirement(text).name for text in requirements if not parse_requirement(text).url
    }
    sources = {
        normalised(name): source for name, source in tool.get("uv", {}).get("sources", {}).items()
    }
    lines = [
        _from_source(Requirement(text), sources.get(parse_requirement(text).name), family)
        if parse_requirement(text).name in sources and not parse_requirement(text).url
        else text
        for text in requirements
    ]
    settings = tuple(project_settings(tool, project, by_name, family))
    return Declaration(listed=RequirementsFile(tuple(lines), settings=settings))


def _project_document(project: Path) -> Mapping[str, Any]:
    """Read a ``pyproject.toml``, that of a member of uv's workspace with the sources of its root; empty without one."""
    if not project.is_file():
        return {}
    document = parse_toml(read_listed(project))
    return _with_workspace(document, project.absolute().parent)


def _with_workspace(document: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """Return a member's document with the sources of its workspace, which count where it has none of that name."""
    for root in folder.parents:
        if not (root / PROJECT).is_file():
            continue
        shared = parse_toml(read_listed(root / PROJECT)).get("tool", {}).get("uv", {})
        if "workspace" not in shared:
            continue
        place = folder.relative_to(root).as_posix()
        if not any(
            fnmatch(place, pattern.rstrip("/"))
            for pattern in shared["workspace"].get("members", [])
        ):
            return document
        check_outside(root / PROJECT, folder / PROJECT)
        tool = document.get("tool", {})
        own = tool.get("uv", {})
        sources = dict(shared.get("sources", {}))
        for name, source in sources.items():
            if isinstance(source, dict) and "path" in source:
                sources[name] = {**source, "path": os.path.relpath(root / source["path"], folder)}
        sources |= own.get("sources", {})
        indexes = [*own.get("index", []), *shared.get("index", [])]
        return {**document, "tool": {**tool, "uv": {**own, "sources": sources, "index": indexes}}}
    return document


def _read_own_files(folder: Path) -> Declaration:
    """Read the project, and where it lists no requirements itself the first file that does, beside it."""
    project = folder / PROJECT
    pyproject = _project_document(project)
    # Without a project nothing is parsed, and a plan need not load what parses it.
    declared = (
        parse_project(pyproject, load_catalog().family, project) if pyproject else Declaration()
    )
    has_tables = "project" in pyproject or pyproject.get("tool", {}).get("poetry")
    if (
        not has_tables
        and not declared.package
        and (folder / SETUP).is_file()
        and _may_be_package(pyproject)
    ):
        declared = declared._replace(package=UNNAMED, package_file=SETUP)
    if declared.listed.requirements:
        return declared
    if not declared.package and (folder / SETUP_CONFIG).is_file():
        with suppress(UsageError):  # it may be of other tools alone
            listed = read_inputs(str(folder / SETUP_CONFIG))
            if listed.requirements:
                return Declaration(SETUP_CONFIG, listed)
    for name in DECLARING:
        if (folder / name).is_file() and read_listed(folder / name, folder):
            # What the project says of sources counts for it too.
            return declared._replace(
                file=name, listed=declared.listed | read_inputs(str(folder / name))
            )
    return declared._replace(file=declared.package_file)


def _may_be_package(pyproject: Mapping[str, Any]) -> bool:
    """Whether ``[tool.uv]`` leaves it to the files of the folder if its project is installed."""
    return bool(pyproject.get("tool", {}).get("uv", {}).get("package", True))


def read_inputs(name: str) -> RequirementsFile:
    """Read a file of requirements in whatever form, or a dependency group; raise UsageError where it is malformed."""
    file, group = split_group(name)
    path, is_lock = Path(file), re.fullmatch(r"pylock\.(.+\.)?toml", Path(file).name)
    if path.name in EXPORTED_BY:
        message = f"{path} is not read as a request"
        raise UsageError("requirements-unread", message, hint=EXPORTED_BY[path.name])
    if path.suffix in {".yml", ".yaml"}:
        return _with_wheels_of_conda(read_conda(path))
    if path.name not in {PROJECT, "setup.cfg"} and not is_lock:
        return read_requirements(path)
    text = read_listed(path)
    try:
        if group:
            document = _with_workspace(parse_toml(text), path.absolute().parent)
            members = list(_in_groups(document.get("dependency-groups", {}), [group]))
            # As the project's own dependencies: what [tool] says of sources counts for them too.
            project = {**document.get("project", {}), "dependencies": members}
            return _read_project({**document, "project": project}, path)
        if is_lock:
            packages = parse_toml(text).get("packages", ())
            requirements = tuple(_as_locked(packages))
            return RequirementsFile(requirements, settings=tuple(_locked_files(packages, path)))
        if path.name == PROJECT:
            return _read_project(_with_workspace(parse_toml(text), path.absolute().parent), path)
        options = parse_ini(text)
        listed = options.get("options", "install_requires", fallback="").splitlines()
        links = options.get("options", "dependency_links", fallback="").split()
        settings = [source_setting("setuptools", "dependency_links", link, path) for link in links]
        settings += easy_install(options, path)
        # "file: requirements.txt" leads to another file, which is read for itself.
        lines = tuple(
            line for one in listed if (line := one.strip()) and not line.startswith("file:")
        )
        return RequirementsFile(lines, settings=tuple(settings))
    except (
        ExceptionGroup,
        ValueError,
        TypeError,
        AttributeError,
        LookupError,
        RecursionError,
    ) as error:
        why = (
            "; ".join(map(str, error.exceptions))
            if isinstance(error, ExceptionGroup)
            else str(error)
        )
        lacking = (
            f"{path} has no usable dependency group {group!r}" if group else f"{path} is malformed"
        )
        code = "group-unknown" if group else "requirements-malformed"
        raise UsageError(code, f"{lacking}: {' '.join(why.split())}") from None


def _read_project(document: Mapping[str, Any], path: Path) -> RequirementsFile:
    """Read the dependencies of a ``pyproject.toml``, without those of its groups; paths start from where it lies."""
    table = {**document, "dependency-groups": {}}
    listed = parse_project(table, load_catalog().family, path).listed
    if (
        path.absolute().parent == Path.cwd()
    ):  # uv's settings in the working folder are configuration
        return listed
    listed |= RequirementsFile(settings=_read_beside(path.absolute().parent))
    listed = listed._replace(
        requirements=tuple(_from_folder(path.parent, text) for text in listed.requirements)
    )
    uv = document.get("tool", {}).get("uv", {})
    return listed._replace(settings=(*listed.settings, *configured_sources(uv, path)))


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
    others = tuple(text for text in wheels if parse_requirement(text).name not in names)
    return listed._replace(requirements=(*others, *listed.requirements))


def parse_project(
    pyproject: Mapping[str, Any], family: Collection[str], file: Path = Path(PROJECT)
) -> Declaration:
    """The dependencies of ``[project]`` and of the groups that uv installs unasked (``default-groups``, or dev).

    Those that uv takes from an address are asked for by that address. Raise UsageError where they are malformed, or one
    that is not of the ``family`` has another source of its own.
    """
    from packaging.requirements import Requirement

    tool = pyproject.get("tool", {})
    project, own, poetry = pyproject.get("project", {}), tool.get("uv", {}), tool.get("poetry", {})
    try:
        groups = pyproject.get("dependency-groups", {})
        wanted = own.get("default-groups", [name for name in groups if normalised(name) == "dev"])
        wanted = tuple(groups) if wanted == "all" else tuple(wanted)
        listed = [*project.get("dependencies", ()), *_in_groups(groups, wanted)]
        listed += [] if "dependencies" in project else _by_poetry(poetry)
        check_count(len(listed), PROJECT)
        dependencies = tuple(dict.fromkeys(_expanded(map(Requirement, listed), project)))
        is_built = "build-system" in pyproject or "dependencies" in project.get("dynamic", ())
        is_package = own.get("package", is_built and poetry.get("package-mode", True))
        name = str(project.get("name") or poetry.get("name") or UNNAMED) if is_package else ""
        constraints = tuple(map(str, own.get("constraint-dependencies", ())))
        names = {normalised(one.name) for one in dependencies}
        settings = tuple(project_settings(tool, file, names, family))
    except (
        ExceptionGroup,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        message = "pyproject.toml: the project's dependencies or groups are malformed"
        raise UsageError("config-malformed", message, why=str(error)) from None
    written = {name: entry for name, entry in poetry_entries(poetry) if _address(entry)}
    written |= own.get("sources", {})
    sources = {normalised(name): source for name, source in written.items()}
    located = tuple(
        _from_source(one, sources.get(normalised(one.name)), family) for one in dependencies
    )
    declared = RequirementsFile(located, constraints, settings=settings)
    return Declaration(listed=declared, groups=wanted, package=name)


def _by_poetry(poetry: Mapping[str, Any]) -> Iterator[str]:
    """What Poetry's own tables ask for, which came before ``[project]``, with the groups that it installs unasked."""
    for name, entry in poetry_entries(poetry):
        if name == "python" or entry.get("optional"):
            continue
        extras = f"[{','.join(entry['extras'])}]" if "extras" in entry else ""
        address, bounds = _address(entry), poetry_specifiers(entry.get("python", ""))
        place = (
            f" @ {address}" if address else ",".join(poetry_specifiers(entry.get("version", "")))
        )
        pythons = (
            re.sub(r"^([<>=!~]+)(.+)$", r"python_version \1 '\2'", bound) for bound in bounds
        )
        conditions = " and ".join(
            (*pythons, *([f"({entry['markers']})"] if "markers" in entry else []))
        )
        yield f"{name}{extras}{place}" + (f" ; {conditions}" if conditions else "")


def _as_locked(packages: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Ask for the packages of a lock in their versions, but for what comes with torch's build."""
    for package in packages:
        name, version = package["name"], package.get("version", "").partition("+")[0]
        if version and (name in PAIRED or not load_catalog().is_tied(name)):
            yield f"{name}=={version}" + (
                f" ; {package['marker']}" if package.get("marker") else ""
            )


def _in_groups(groups: Mapping[str, Any], names: Iterable[str]) -> Iterator[str]:
    """Yield what dependency groups require, with the groups that they include, each once.

    packaging's own function repeats a group as often as it is included: of 27 groups that include
    each other twice it makes 2^27 requirements.
    """
    from packaging.dependency_groups import DependencyGroupInclude, DependencyGroupResolver

    resolver = DependencyGroupResolver(groups)
    waiting: list[Requirement | DependencyGroupInclude] = [
        DependencyGroupInclude(name) for name in names
    ]
    waiting.reverse()
    seen = set[str]()
    while waiting:
        item = waiting.pop()
        if not isinstance(item, DependencyGroupInclude):
            yield str(item)
            continue
        name = normalised(item.include_group)
        if name not in seen:
            seen.add(name)
            waiting += resolver.lookup(name)[::-1]


def _locked_files(packages: Iterable[Mapping[str, Any]], path: Path) -> Iterator[SourceSetting]:
    """Yield the hashes of the packages that a lock is asked for, but for those of the family: its build is chosen."""
    for package in packages:
        name, entries = package["name"], [*package.get("wheels", ())]
        entries += [package[kind] for kind in ("sdist", "archive") if kind in package]
        if load_catalog().is_tied(name) or name in PAIRED:
            continue
        for sha256 in {entry.get("hashes", {}).get("sha256") for entry in entries} - {None}:
            yield source_setting(
                "PEP 751", "hashes of packages", f"sha256:{sha256}", path, package=normalised(name)
            )


def _expanded(
    requirements: Iterable[Requirement], project: Mapping[str, Any]
) -> Iterator[Requirement]:
    """Yield requirements with what the project's own extras (``thing[test]``) require, each once."""
    from packaging.requirements import Requirement

    own_name = normalised(project.get("name", ""))
    waiting = list(reversed([*requirements]))
    seen = set[str]()
    while waiting:
        requirement = waiting.pop()
        if normalised(requirement.name) != own_name:
            yield requirement
            continue
        for extra in sorted(requirement.extras - seen, reverse=True):
            seen.add(extra)
            required = [Requirement(text) for text in project["optional-dependencies"][extra]]
            waiting += reversed(required)


def _from_source(requirement: Requirement, source: object, family: Collection[str]) -> str:
    """Write a requirement with the address that ``[tool.uv.sources]`` gives it; the family has sources of its own."""
    if source is None or requirement.url or normalised(requirement.name) in family:
        return str(requirement)
    address = _address(source) if isinstance(source, dict) else None
    if (
        address is None
    ):  # an index; what cannot be obeyed is refused with the other settings of sources
        return str(requirement)
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    marker = f" ; {requirement.marker}" if requirement.marker else ""
    editable = "-e " if isinstance(source, dict) and source.get("editable") else ""
    return f"{editable}{requirement.name}{extras} @ {address}{marker}"


def _address(source: Mapping[str, Any]) -> str | None:
    """The address of a source: a repository with its reference, a file, a folder; None for an index or a workspace."""
    inside = f"#subdirectory={source['subdirectory']}" if "subdirectory" in source else ""
    if "git" in source:
        reference = next(
            (f"@{source[key]}" for key in ("rev", "tag", "branch") if key in source), ""
        )
        return f"git+{source['git'].removeprefix('git+')}{reference}{inside}"
    if "url" in source:
        return f"{source['url']}{inside}"
    path = source.get("path", source.get("file"))  # a file as Poetry writes it
    return None if path is None else str(path)


TEAM_LOCKS = ("uv.lock", "poetry.lock", "pdm.lock")


def team_lock_in(folder: Path) -> Path | None:
    """The lock that the tool of a project keeps; None where there is none."""
    return next((folder / name for name in TEAM_LOCKS if (folder / name).is_file()), None)


def read_team_lock(path: Path, markers: Mapping[str, str]) -> tuple[str, ...]:
    """Read the versions that it holds, as ``name==version``, for the machine and the Python of ``markers``.

    Those of torch's companions are without their labels; the libraries of its build are left out. Raise UsageError
    where it is malformed.
    """
    from packaging.markers import Marker
    from packaging.utils import canonicalize_name
    from packaging.version import Version

    catalog, held = load_catalog(), dict[str, str]()
    try:
        for row in parse_toml(read_listed(path, path.parent)).get("package", ()):
            # Parsed, for it becomes a line of a file for uv; a folder has no version.
            name = canonicalize_name(row["name"], validate=True)
            version = str(Version(row["version"])) if row.get("version") else ""
            # The markers of which one has to hold: uv's list of them, PDM's text, Poetry's text or table by group.
            written = row.get("resolution-markers") or row.get("markers") or row.get("marker") or ()
            tabled = written.values() if isinstance(written, dict) else written
            conditions = [written] if isinstance(written, str) else list(tabled)
            is_here = not conditions or any(
                Marker(text).evaluate(dict(markers)) for text in conditions
            )
            if version and is_here and (name in catalog.family or not catalog.is_tied(name)):
                held[name] = version.partition("+")[0] if name in catalog.family else version
    except _MALFORMED as error:
        raise _malformed_team_lock(path, error) from None
    return tuple(f"{name}=={version}" for name, version in sorted(held.items()))


def read_team_settings(path: Path) -> tuple[SourceSetting, ...]:
    """Read what it says of the files and the sources of packages; raise UsageError where it is malformed."""
    try:
        text = read_listed(path, path.parent)
        rows = (
            _pipenv_rows(parse_json(text))
            if path.name == PIPENV_LOCK
            else _team_rows(parse_toml(text))
        )
        return tuple(setting for row in rows for setting in _locked_package(row, path))
    except _MALFORMED as error:
        raise _malformed_team_lock(path, error) from None


def _team_rows(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the packages of a lock with their files."""
    # Poetry wrote the files of all packages there before its version 1.3.
    files = document.get("metadata", {}).get("files", {})
    for row in document.get("package", ()):
        yield {"files": files.get(row["name"], ()), **row}


def _pipenv_rows(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the packages of a ``Pipfile.lock`` as other tools write them."""
    sources = document.get("_meta", {}).get("sources", [])
    addresses = {source["name"]: source["url"] for source in sources}
    for group, packages in document.items():
        if group == "_meta":
            continue
        for name, entry in packages.items():
            is_by_address = bool(entry.keys() & {*PIPENV_ADDRESSES})
            index = (
                addresses[entry["index"]]
                if "index" in entry
                else sources[0]["url"]
                if sources
                else None
            )
            source = {"url": ""} if is_by_address else {"registry": index}
            files = [{"hash": text} for text in entry.get("hashes", ())]
            version = {"version": entry["version"].removeprefix("==")} if "version" in entry else {}
            yield {"name": name, **version, "files": files, "source": source}


_REPAIR = "Repair it\nthe same with --no-project   # without the folder's requirements"
_MALFORMED = (ValueError, TypeError, LookupError, AttributeError, RecursionError)


def _malformed_team_lock(path: Path, error: Exception) -> UsageError:
    message = f"{path.name} is malformed: {' '.join(str(error).split())}"
    return UsageError("team-lock-malformed", message, hint=_REPAIR)


def _locked_package(row: Mapping[str, Any], path: Path) -> Iterator[SourceSetting]:
    from packaging.version import Version

    from gpuinstall.extensions.rows import load_extensions  # which takes long to load

    name, catalog = normalised(row["name"]), load_catalog()
    if name in catalog.family or catalog.is_tied(name) or name in load_extensions().rows:
        yield source_setting(TEAM_LOCK, "files of torch", "", path)
        return
    files = [*row["files"], *row.get("wheels", ()), *filter(None, [row.get("sdist")])]
    hashes = {file["hash"] for file in files if file.get("hash", "").startswith("sha256:")}
    if hashes and "version" in row:
        package = f"{name}=={Version(row['version'])}"
        key = "hashes of packages at their versions"
        yield source_setting(TEAM_LOCK, key, " ".join(sorted(hashes)), path, package=package)
    source = row.get("source", row)  # PDM writes an address beside the name
    index = source["url"] if source.get("type") == "legacy" else source.get("registry")
    if index:
        place = index if "://" in index else os.path.normpath(path.absolute().parent / index)
        yield source_setting(TEAM_LOCK, "index of a package", place, path, package=name)
    elif {"git", "url", "path", "directory", "editable"} & source.keys():
        yield source_setting(TEAM_LOCK, "git, url, path of a package", "", path, package=name)


_MADE_AGAIN = frozenset({"inputs-changed", "other-request", "versions-differ"})
"""The reasons for which a plain ``lock`` makes a lock again, within the versions that it holds."""


def locks_in(folder: Path) -> list[Path]:
    """The locks in a folder, by name."""
    return sorted([*folder.glob("pylock.*.toml"), *folder.glob("pylock.toml")])


def plain(requirements: Iterable[str]) -> tuple[str, ...]:
    """Requirements in one spelling and order; raise UsageError for a malformed one."""
    return tuple(sorted(spelled(requirements)))


def spelled(requirements: Iterable[str]) -> tuple[str, ...]:
    """Return requirements in one spelling, each once, in the order of naming.

    Raise UsageError for a malformed one, or for more than anybody would write.
    """
    requirements = tuple(requirements)
    check_count(len(requirements), "the request")
    parsed = map(parse_requirement, requirements)
    return tuple(
        dict.fromkeys(
            one.text if one.url else re.sub(r"^[\w.-]+", one.name, one.text) for one in parsed
        )
    )


def is_requirement(text: object) -> bool:
    """Say whether something is a requirement."""
    with suppress(UsageError):
        return isinstance(text, str) and bool(parse_requirement(text))
    return False


def digest(inputs: Iterable[str]) -> str:
    """The digest of requirements, in any order."""
    return hashlib.sha256(json.dumps(sorted(inputs)).encode()).hexdigest()


def has_place(name: str, folder: Path) -> bool:
    """Say whether a requirements file can be found again from ``folder``: a pipe, or one on another drive, cannot."""
    path = Path(split_group(name)[0])
    return path.is_file() and path.absolute().drive == folder.drive


def lines_of(files: Mapping[str, RequirementsFile], folder: Path) -> dict[str, tuple[str, ...]]:
    """What requirements files and groups ask for, by their paths from ``folder``; ``-c`` stands before constraints."""
    return {
        Path(os.path.relpath(name, folder)).as_posix(): lines_in(files[name])
        for name in sorted(files)
    }


def changed_inputs(files: Mapping[str, tuple[str, ...]], folder: Path) -> Iterator[Reason]:
    """Say which of the files that were recorded are gone, or ask for something else today.

    The project is read at every run.
    """
    for name, before in (
        (name, before) for name, before in files.items() if name not in PROJECT_FILES
    ):
        if not (folder / split_group(name)[0]).is_file():
            yield Reason("inputs-gone", f"it was made from {name}, which no longer exists")
            continue
        with suppress(UsageError):
            if {*lines_in(read_inputs(str(folder / name)))} == {*before}:
                continue
        yield Reason("inputs-changed", f"{name} has changed since it was made")


def command_again(codes: Collection[str], files: Iterable[str], requirements: Iterable[str]) -> str:
    """The command after which the locks of a folder are fresh, by the codes of the reasons why one is not.

    ``files`` and ``requirements`` are what they were made from.
    """
    if "inputs-gone" in codes:
        return f"gpuinstall lock --only {joined(requirements)}   # or put the file back"
    upgrade = [] if _MADE_AGAIN.issuperset(codes) else ["--upgrade"]
    read = [word for name in files if name not in PROJECT_FILES for word in ("-r", name)]
    return joined(["gpuinstall", "lock", *upgrade, *read])


def lines_in(file: RequirementsFile) -> tuple[str, ...]:
    """What a file asks for, line by line; ``-c`` stands before constraints."""
    return (*spelled(file.requirements), *(f"-c {text}" for text in spelled(file.constraints)))
