"""Read the dependencies, groups, and extras of a pyproject.toml."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from functools import cache, cached_property
from itertools import chain, starmap
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.base.advice import Hint, make_change
from gpuinstall.base.codec import read
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import check_count, expand_home, real_path
from gpuinstall.base.requirement import (
    Requirement,
    TextOrigin,
    negate_marker,
    normalize_name,
    parse_requirement,
    parse_standard_marker,
    quote_path,
    remove_duplicates,
    requirement_names,
)
from gpuinstall.base.shapes import parse_pyproject
from gpuinstall.base.values import Value, replace
from gpuinstall.base.vendors import BACKEND_ROWS
from gpuinstall.base.versions import known_backend
from gpuinstall.catalog.loader import load_catalog
from gpuinstall.lock.request.tools import (
    NamedSource,
    Table,
    find_entry_part,
    find_source_location,
    find_table,
    find_uv_sources,
    read_poetry_entries,
    read_poetry_groups,
    read_project_settings,
)
from gpuinstall.sources.provenance import TORCH_SOURCE
from gpuinstall.sources.requirements_file import (
    PROJECT,
    Part,
    RequirementsFile,
    read_requirements_text,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence


_KINDS = {word: row.kind for row in BACKEND_ROWS for word in (row.kind, *row.extras)}
"""The kind of backend that a word in the name of an extra selects."""


class PartContents(Value):
    """An extra or group, with its requirements and their sources."""

    part: Part
    listed: RequirementsFile
    backend: str | None = None
    """The backend of its sources on a target, or the one in its name."""

    @property
    def kind(self) -> str:
        """The kind of backend that the name selects; empty if none."""
        words = self.part.name.split("-")
        return next(filter(None, map(_KINDS.get, words)), "")

    def select_backend(self, environment: Mapping[str, str]) -> PartContents:
        """Return the extra or group with its backend on a target.

        Args:
            environment: The marker values of the target.
        """
        tags = [
            setting.backend
            for setting in self.listed.sources
            if setting.key == TORCH_SOURCE and setting.applies_in(environment)
        ]
        words = filter(known_backend, self.part.name.split("-"))
        return replace(self, backend=next(filter(None, (*tags, *words)), None))


class ProjectFile(Value):
    """A pyproject.toml with values of the expected types."""

    document: Mapping[str, Any] = {}
    path: Path = Path(PROJECT)
    no_sources: Collection[str] = ()
    """The packages that ignore ``[tool.uv.sources]``, or ``:all:``."""

    enclosing: tuple[Path, ...] = ()
    """The files of the projects that this project replaces."""

    @classmethod
    def read(
        cls, path: Path, folder: Path | None, no_sources: Collection[str] = ()
    ) -> ProjectFile:
        """Read a pyproject.toml; see ``read_document``.

        Raises:
            UsageError: The file cannot be read.
            ValueError: The file is malformed.
        """
        text = read_requirements_text(path, folder)
        return cls(parse_pyproject(text), path, no_sources)

    @property
    def project(self) -> Table:
        """The ``[project]`` table."""
        return find_table(self.document, "project")

    @property
    def uv(self) -> Table:
        """The ``[tool.uv]`` table."""
        return find_table(self.document, "tool", "uv")

    @property
    def poetry(self) -> Table:
        """The ``[tool.poetry]`` table."""
        return find_table(self.document, "tool", "poetry")

    @property
    def dynamic(self) -> Sequence[str]:
        """The keys of ``[project]`` that a build determines."""
        keys: Sequence[str] = self.project.get("dynamic", ())
        return keys

    @property
    def own_name(self) -> str:
        """The name of the project, normalized."""
        return normalize_name(self.project.get("name", ""))

    @property
    def is_package(self) -> bool:
        """Whether the project itself is installed."""
        is_built = "build-system" in self.document or "dependencies" in self.dynamic
        is_package = is_built and self.poetry.get("package-mode", True)
        return bool(self.uv.get("package", is_package))

    def dependencies(self) -> Iterator[Requirement]:
        """Yield the dependencies of the project, or of Poetry's tables."""
        key = "[project] dependencies"
        texts = self.project.get("dependencies")
        if texts is None:
            key = "[tool.poetry.dependencies]"
            texts = (
                convert_poetry_entry(name, entry)
                for name, entry in read_poetry_entries(self.poetry)
                if name != "python" and not entry.get("optional")
            )
        yield from _parse_requirements(texts, self.path, key)

    @cached_property
    def extras(self) -> dict[str, list[str]]:
        """The requirements of each extra by its normalized name."""
        extras = self.project.get("optional-dependencies", {})
        texts = {normalize_name(name): extras[name] for name in extras}
        optional = defaultdict[str, list[str]](list)
        for name, entry in read_poetry_entries(self.poetry):
            if entry.get("optional"):
                optional[name].append(convert_poetry_entry(name, entry))
        for extra, names in self.poetry.get("extras", {}).items():
            required = (optional[normalize_name(name)] for name in names)
            texts[normalize_name(extra)] = [*chain.from_iterable(required)]
        return texts

    @cached_property
    def groups(self) -> Mapping[str, Sequence[Any]]:
        """The entries of each dependency group by its normalized name."""
        groups = defaultdict[str, list[Any]](list)
        for name, entries in self.document.get("dependency-groups", {}).items():
            groups[normalize_name(name)] += entries
        if further := self.uv.get("dev-dependencies"):
            groups["dev"] += further
        # Poetry installs the other groups by default.
        of_poetry = self.poetry.get("group", {})
        for name, group in of_poetry.items():
            if group.get("optional"):
                rows = read_poetry_groups(of_poetry, [name])
                groups[normalize_name(name)] += starmap(convert_poetry_entry, rows)
        return dict(groups)

    @property
    def parts(self) -> tuple[Part, ...]:
        """The extras, and the groups in alphabetical order."""
        extras = (Part("extra", name) for name in self.extras)
        groups = (Part("group", name) for name in sorted(self.groups))
        return (*extras, *groups)

    def find_default_groups(self) -> tuple[Part, ...]:
        """Return the groups that uv installs by default."""
        names = self.uv.get("default-groups", [*{"dev"} & self.groups.keys()])
        if names == "all":
            names = [*self.groups]
        parts = (
            Part("group", normalize_name(name))
            for name in read(tuple[str, ...], names, "default-groups")
        )
        return tuple(part for part in parts if not self._is_exported(part))

    def _is_exported(self, part: Part) -> bool:
        """Return whether ``gpuinstall export uv`` wrote a group."""
        indexes = self.uv.get("index", ())
        name = part.name.replace("torch-", "gpuinstall-")
        return part.kind == "group" and name in [row.get("name") for row in indexes]

    def requirements(self, part: Part, where: str = "") -> Iterator[Requirement]:
        """Yield the requirements of an extra or a group.

        Args:
            part: The extra or group.
            where: The key that selects the extra or group; empty if the user selects
                it.

        Raises:
            UsageError: The project has no such extra or group.
        """
        texts: Iterable[str] | None = None
        if part.kind == "extra":
            key = "[project.optional-dependencies]"
            texts = self.extras.get(part.name)
            is_dynamic = "optional-dependencies" in self.dynamic
            is_built = is_dynamic or not (self.project or self.poetry)
            # Only a build lists the extras, as with setup.py.
            if texts is None and is_built:
                folder = quote_path(str(self.path.parent))
                texts = [f"-e {folder}[{part.name}]"]
        else:
            key = "[dependency-groups]"
            if part.name in self.groups:
                texts = _expand_group(self.groups, part.name, set())
        if texts is None:
            raise _create_unknown_error(self, part, where)
        yield from _parse_requirements(texts, self.path, f"{key} {part.name}")

    def expand_own_extras(
        self, requirements: Iterable[Requirement], seen: set[str]
    ) -> Iterator[Requirement]:
        """Replace the project's own extras (``thing[test]``) by requirements.

        Args:
            requirements: The requirements.
            seen: The extras expanded so far, which are skipped. New ones are added.
        """
        for requirement in requirements:
            if requirement.name != self.own_name:
                yield requirement
                continue
            for extra in requirement.extras:
                if extra not in seen:
                    seen.add(extra)
                    key = requirement.origin.key
                    required = self.requirements(Part("extra", extra), key)
                    yield from self.expand_own_extras(required, seen)

    def find_conflicts(self) -> tuple[tuple[Part, ...], ...]:
        """Return the project's parts in each set of uv's ``conflicts``."""
        sets = dict[tuple[Part, ...], None]()
        for declared in self.uv.get("conflicts", ()):
            parts = [
                find_entry_part(row)
                for row in declared
                if normalize_name(row.get("package", self.own_name)) == self.own_name
            ]
            sets[tuple(filter(None, parts))] = None
        return tuple(sets)

    def find_alternatives(self) -> tuple[tuple[PartContents, ...], ...]:
        """Return the conflicting extras and groups.

        Returns:
            Each set of ``[tool.uv] conflicts``, without extras and groups that require
            no torch-family package.
        """

        @cache
        def locate(part: Part) -> PartContents:
            return PartContents(part, self.locate(self.requirements(part), part))

        sets = filter(None, map(self.find_family_parts, self.find_conflicts()))
        return tuple(tuple(map(locate, members)) for members in sets)

    def find_family_parts(self, parts: Iterable[Part]) -> tuple[Part, ...]:
        """Return the extras and groups with torch-family packages.

        Raises:
            ValueError: Crafted groups include each other in a cycle.
        """
        found = []
        count = 0
        for part in parts:
            if self._is_exported(part):
                continue
            seen: set[str] = set()
            required = self.requirements(part, "[tool.uv] conflicts")
            lines = tuple(self.expand_own_extras(required, seen))
            count += len(seen) + len(lines)
            check_count(count, "requirements", "extras and groups")
            if not load_catalog().family.isdisjoint(requirement_names(lines)):
                found.append(part)
        return tuple(found)

    def find_virtual_project(self, requirement: Requirement) -> ProjectFile | None:
        """Return the project of a source if it is no package, or None.

        A project that is being replaced has no further requirements.
        """
        path = self.path.parent / expand_home(requirement.path or "") / PROJECT
        if not requirement.path or not isfile(path):
            return None
        known = real_path(path)
        if known in self.enclosing:
            return ProjectFile(path=path)
        try:
            member = ProjectFile.read(path, path.parent, self.no_sources)
        except (ValueError, UsageError):
            return None  # the readers of all projects report it
        is_virtual = member.uv.get("package") is False
        for one in find_uv_sources(self.uv, self.path, self.parts, ()):
            is_named = one.package == requirement.name and one.location
            if is_named and (is_virtual or one.is_virtual):
                return replace(member, enclosing=(*self.enclosing, known))
        return None

    def locate(self, written: Iterable[Requirement], *parts: Part) -> RequirementsFile:
        """Return distinct requirements with their sources in the same file.

        Args:
            written: The requirements as written.
            parts: The extras and groups that contain them.
        """
        sources = [*find_uv_sources(self.uv, self.path, parts, self.no_sources)]
        # Unsupported sources are refused with the other settings.
        addresses: dict[str, list[NamedSource]] = {}
        of_poetry = (
            NamedSource(name, find_source_location(entry))
            for name, entry in read_poetry_entries(self.poetry)
        )
        for source in (*of_poetry, *sources):
            if source.location:
                addresses.setdefault(source.package, []).append(source)
        lines = remove_duplicates(self.expand_own_extras(written, set()))
        names = {one.name for one in lines if not one.url}
        return RequirementsFile.from_lines(
            chain.from_iterable(_locate_requirement(one, addresses) for one in lines),
            read_project_settings(self.document, self.path, names, sources),
        )


def require_extras(
    project: ProjectFile, extras: Iterable[str]
) -> tuple[list[Requirement], list[Part]]:
    """Return the dependencies of a project and of its known extras."""
    names = project.extras.keys() & set(extras)
    parts = [Part("extra", name) for name in sorted(names)]
    of_extras = chain.from_iterable(map(project.requirements, parts))
    return [*project.dependencies(), *of_extras], parts


def _parse_requirements(
    texts: Iterable[str], file: Path, key: str
) -> Iterator[Requirement]:
    origin = TextOrigin(str(file), key)
    for text in texts:
        # Hatch replaces {root:uri} by the URL of the folder.
        located = re.sub(r"\{root((?::parent)*):uri\}", _locate_root, text)
        yield parse_requirement(located, origin)


def _create_unknown_error(project: ProjectFile, part: Part, where: str) -> UsageError:
    """Return the error of an unknown extra or group."""
    same = [one for one in project.parts if one.name == part.name]
    options = same or [one for one in project.parts if one.kind == part.kind]
    hint: tuple[Hint, ...] = (make_change(without=str(part).split()),)
    if options:
        hint = (f"Use {' or '.join(sorted(map(str, options)))}", *hint)
    message = f"{project.path} has no {part.kind} named {part.name}"
    if where:
        message += f", which {where} selects"
    return UsageError(f"{part.kind}-unknown", message, hint=hint)


def _expand_group(
    groups: Mapping[str, Sequence[Any]], name: str, seen: set[str]
) -> Iterator[str]:
    """Yield the requirements of a group and of its included groups.

    Args:
        groups: The groups by normalized name.
        name: The name of the group.
        seen: The groups read so far, which are skipped. New ones are added.

    Raises:
        ValueError: An included group does not exist.
    """
    seen.add(name)
    for item in groups[name]:
        if isinstance(item, str):
            yield item
            continue
        included = normalize_name(item["include-group"])
        if included not in groups:
            key = f"[dependency-groups] {name}"
            raise ValueError(f"{key}: group {included} does not exist")
        if included not in seen:
            yield from _expand_group(groups, included, seen)


def _locate_requirement(
    requirement: Requirement, sources: Mapping[str, Sequence[NamedSource]]
) -> Iterator[Requirement]:
    """Yield a requirement with each URL or path in its sources.

    A torch-family package keeps its own source.

    Args:
        requirement: The requirement.
        sources: The sources of each package with a URL or path, and perhaps a marker.

    Raises:
        UsageError: No marker can express that none of the sources applies.
    """
    name = requirement.name
    is_family = name in load_catalog().family
    if requirement.url or is_family or name not in sources:
        yield requirement
        return
    unlocated = requirement
    for source in sources[name]:
        editable = "-e " if source.is_editable else ""
        text = f"{editable}{requirement.full_name} @ {source.location}"
        located = parse_requirement(text, requirement.origin)
        yield add_marker(replace(located, marker=requirement.marker), source.marker)
        if not source.marker:
            return
        unlocated = add_marker(unlocated, negate_marker(source.marker))
    yield unlocated


def check_project(file: ProjectFile) -> None:
    """Raise ValueError if uv rejects the project or a group name."""
    project = file.project
    if not project:
        return
    from packaging.version import Version

    for key in file.dynamic:
        if key in project:
            raise ValueError(f"[project] has {key}, and lists it in dynamic")
    if "version" in project:
        Version(project["version"])
    elif "version" not in file.dynamic:
        raise ValueError("[project] has no version")
    _check_names([project.get("name", "")])
    _check_names(project.get("optional-dependencies", ()))
    _check_names(file.document.get("dependency-groups", ()))


def _check_names(names: Iterable[str]) -> None:
    """Raise ValueError for an invalid name, or two spellings of one name."""
    from packaging.utils import canonicalize_name

    seen = set[str]()
    for name in names:
        normalized = canonicalize_name(name, validate=True)
        if normalized in seen:
            raise ValueError(f"{name} is defined twice")
        seen.add(normalized)


def add_marker(requirement: Requirement, text: str) -> Requirement:
    """Return a requirement that applies only if a marker is true, too."""
    if not text:
        return requirement
    marker = parse_standard_marker(text)
    if requirement.marker:
        marker = requirement.marker & marker
    return replace(requirement, marker=marker, written="")


def _locate_root(match: re.Match[str]) -> str:
    count = match[1].count(":")
    return f"file:{'/'.join(['..'] * count) or '.'}"


def convert_poetry_entry(name: str, entry: Table) -> str:
    """Return one entry of Poetry's dependencies as a standard requirement.

    Raises:
        UsageError: A value is malformed. The message includes the key and the text.
    """
    from gpuinstall.base.poetry import convert_poetry_specifier, create_poetry_marker

    address = find_source_location(entry)
    try:
        place = (
            f" @ {address}"
            if address
            else convert_poetry_specifier(entry.get("version", ""))
        )
        marker = create_poetry_marker(entry)
    # InvalidSpecifier is a ValueError.
    except ValueError as error:
        raise UsageError(
            "config-malformed",
            f"{PROJECT}: [tool.poetry] {name} = {json.dumps(entry)}: {error}",
        ) from None
    extras = f"[{','.join(entry['extras'])}]" if "extras" in entry else ""
    condition = f" ; {marker}" if marker else ""
    return f"{name}{extras}{place}{condition}"
