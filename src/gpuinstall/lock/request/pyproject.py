"""Read the dependencies, groups, and extras of a pyproject.toml."""

from __future__ import annotations

import json
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import check_count, parse_text_list
from gpuinstall.base.requirement import (
    Requirement,
    TextOrigin,
    negate_marker,
    normalize_name,
    parse_requirement,
    remove_duplicates,
    requirement_names,
)
from gpuinstall.base.shell import quote_word
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import CPU, known_backend
from gpuinstall.catalog.loader import load_catalog
from gpuinstall.lock.request.tools import (
    Table,
    find_entry_part,
    find_source_location,
    find_table,
    find_uv_sources,
    read_poetry_entries,
    read_poetry_groups,
    read_project_settings,
)
from gpuinstall.sources.configuration import parse_uv_constraints
from gpuinstall.sources.provenance import TORCH_SOURCE
from gpuinstall.sources.requirements_file import PROJECT, Part, RequirementsFile

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from packaging.dependency_groups import DependencyGroupResolver

_VENDORS = {"gpu": "cuda", "cuda": "cuda", "rocm": "rocm", "xpu": "xpu"}
"""The kind of backend that a word in the name of an extra selects."""


class PartContents(Value):
    """An extra or group, with its requirements and their sources."""

    part: Part
    listed: RequirementsFile

    @property
    def torch(self) -> tuple[Requirement, ...]:
        """The torch requirements of the extra or group."""
        return tuple(one for one in self.listed.requirements if one.name == "torch")

    @property
    def has_family(self) -> bool:
        """Whether the extra or group requires a torch-family package."""
        family = load_catalog().family
        return not family.isdisjoint(requirement_names(self.listed.requirements))

    @property
    def kind(self) -> str:
        """The kind of backend that the name selects; empty if none."""
        words = self.part.name.split("-")
        return next((_VENDORS[word] for word in words if word in _VENDORS), "")

    def find_backend(self, environment: Mapping[str, str]) -> str | None:
        """Return the backend that the sources select, or the one in the name.

        Args:
            environment: The marker values.
        """
        for setting in self.listed.settings:
            is_source = setting.row.key == TORCH_SOURCE and setting.backend
            if is_source and setting.applies_in(environment):
                return setting.backend
        words = self.part.name.split("-")
        return next(filter(known_backend, words), None)

    def is_for_cpu(self, environment: Mapping[str, str]) -> bool:
        """Return whether the extra or group selects the CPU build."""
        return self.find_backend(environment) == CPU.tag


def read_project_dependencies(document: Table, file: Path) -> Iterator[Requirement]:
    """Yield the dependencies of a project, or of Poetry's tables."""
    project = find_table(document, "project")
    origin = TextOrigin(str(file), "[project] dependencies")
    texts: Iterable[str]
    if "dependencies" in project:
        texts = parse_text_list(project["dependencies"], "dependencies")
    else:
        origin = TextOrigin(str(file), "[tool.poetry.dependencies]")
        texts = _read_poetry_requirements(find_table(document, "tool", "poetry"))
    yield from (parse_requirement(text, origin) for text in texts)


def find_default_groups(document: Table) -> tuple[Part, ...]:
    """Return the groups that uv installs by default."""
    uv = find_table(document, "tool", "uv")
    groups = _read_group_entries(document)
    names: Any = uv.get("default-groups")
    if names is None:
        names = [name for name in groups if normalize_name(name) == "dev"]
    elif names == "all":
        names = list(groups)
    parts = (
        Part("group", normalize_name(name))
        for name in parse_text_list(names, "default-groups")
    )
    return tuple(part for part in parts if not _is_exported(part, document))


def _is_exported(part: Part, document: Table) -> bool:
    """Return whether ``gpuinstall export uv`` wrote a group."""
    indexes = find_table(document, "tool", "uv").get("index", ())
    name = part.name.replace("torch-", "gpuinstall-")
    return part.kind == "group" and name in [row.get("name") for row in indexes]


class ProjectParts(Value):
    """The extras and dependency groups of a pyproject.toml."""

    document: Table
    file: Path

    @property
    def own_name(self) -> str:
        """The name of the project, normalized."""
        return normalize_name(find_table(self.document, "project").get("name", ""))

    @cached_property
    def extras(self) -> dict[str, list[str]]:
        """The requirements of each extra by its normalized name."""
        extras = find_table(self.document, "project", "optional-dependencies")
        texts = {
            normalize_name(name): parse_text_list(extras[name], name) for name in extras
        }
        poetry = find_table(self.document, "tool", "poetry")
        optional: dict[str, list[str]] = {}
        for name, entry in read_poetry_entries(poetry):
            if entry.get("optional"):
                written = convert_poetry_entry(name, entry)
                optional.setdefault(name, []).append(written)
        for extra, names in find_table(poetry, "extras").items():
            listed = map(normalize_name, parse_text_list(names, extra))
            required = chain.from_iterable(optional.get(name, ()) for name in listed)
            texts[normalize_name(extra)] = [*required]
        return texts

    @cached_property
    def groups(self) -> DependencyGroupResolver:
        """The dependency groups."""
        from packaging.dependency_groups import DependencyGroupResolver

        return DependencyGroupResolver(_read_group_entries(self.document))

    @cached_property
    def group_names(self) -> frozenset[str]:
        """The normalized names of the groups."""
        return frozenset(map(normalize_name, _read_group_entries(self.document)))

    def requirements(self, part: Part, where: str = "") -> Iterator[Requirement]:
        """Yield the requirements of an extra or a group.

        Args:
            part: The extra or group.
            where: The key that selects the extra or group; empty if the user selects
                it.

        Raises:
            UsageError: The project has no such extra or group.
        """
        if part.kind == "extra":
            key = "[project.optional-dependencies]"
            texts: Iterable[str] | None = self.extras.get(part.name)
        else:
            key = "[dependency-groups]"
            texts = self._group_requirements(part.name)
        if texts is None:
            raise self._unknown_part_error(part, where)
        origin = TextOrigin(str(self.file), f"{key} {part.name}")
        yield from (parse_requirement(text, origin) for text in texts)

    def _group_requirements(self, name: str) -> list[str] | None:
        """Return the requirements of a group, or None if it does not exist."""
        from packaging.errors import ExceptionGroup

        if name not in self.group_names:
            return None
        try:
            return [*_expand_group(self.groups, name, set())]
        except ExceptionGroup as error:
            reasons = (" ".join(str(one).split()) for one in error.exceptions)
            raise ValueError(
                f"[dependency-groups] {name}: {'; '.join(reasons)}"
            ) from None

    def _unknown_part_error(self, part: Part, where: str) -> UsageError:
        """Return the error of an unknown extra or group."""
        hint = None
        other = Part("group", part.name)
        names: Collection[str] = self.group_names
        if part.kind == "group":
            other = Part("extra", part.name)
            names = self.extras
        dynamic = find_table(self.document, "project").get("dynamic", ())
        if part.name in names:
            hint = f"Use {other}"
        elif "optional-dependencies" in dynamic:
            hint = f"gpuinstall install -e {quote_word(f'.[{part.name}]')}"
        message = f"{self.file} has no {part.kind} named {part.name}"
        if where:
            message += f", which {where} selects"
        return UsageError(f"{part.kind}-unknown", message, hint=hint)

    def expand_own_extras(
        self, requirements: Iterable[Requirement], seen: set[str]
    ) -> Iterator[Requirement]:
        """Replace the project's own extras (``thing[test]``) by requirements.

        Args:
            requirements: The requirements.
            seen: The extras expanded so far, which are skipped. New ones are added.
        """
        own_name = self.own_name
        for requirement in requirements:
            if requirement.name != own_name:
                yield requirement
                continue
            for extra in requirement.extras:
                if extra not in seen:
                    seen.add(extra)
                    key = requirement.origin.key
                    required = self.requirements(Part("extra", extra), key)
                    yield from self.expand_own_extras(required, seen)

    def find_alternatives(self) -> tuple[tuple[PartContents, ...], ...]:
        """Return the conflicting extras and groups.

        Returns:
            Each set of ``[tool.uv] conflicts``, without extras and groups that require
            no torch-family package.
        """
        sets = dict[tuple[Part, ...], None]()
        uv = find_table(self.document, "tool", "uv")
        for declared in uv.get("conflicts", ()):
            parts = [
                find_entry_part(row)
                for row in declared
                if normalize_name(row.get("package", self.own_name)) == self.own_name
            ]
            sets[tuple(filter(None, parts))] = None
        located = cache(self._add_sources)
        alternatives = []
        for one in sets:
            members = self._find_parts_with_family(one)
            if members:
                alternatives.append(tuple(map(located, members)))
        return tuple(alternatives)

    def _add_sources(self, contents: PartContents) -> PartContents:
        part = contents.part
        listed = locate_requirements(
            self.requirements(part), self.document, self.file, part
        )
        return replace(contents, listed=listed)

    def find_parts_with_torch(
        self, excluded: Collection[Part]
    ) -> tuple[PartContents, ...]:
        """Return the extras and groups with torch-family packages.

        Args:
            excluded: Extras and groups to omit.
        """
        parts = [
            *(Part("extra", name) for name in self.extras),
            *(Part("group", name) for name in sorted(self.group_names)),
        ]
        return self._find_parts_with_family(
            part for part in parts if part not in excluded
        )

    def _find_parts_with_family(
        self, parts: Iterable[Part]
    ) -> tuple[PartContents, ...]:
        """Return the extras and groups with torch-family packages.

        Raises:
            ValueError: Crafted groups include each other in a cycle.
        """
        found = []
        count = 0
        for part in parts:
            if _is_exported(part, self.document):
                continue
            seen: set[str] = set()
            required = self.requirements(part, "[tool.uv] conflicts")
            lines = tuple(self.expand_own_extras(required, seen))
            count += len(seen) + len(lines)
            check_count(count, "requirements", "extras and groups")
            contents = PartContents(
                part, RequirementsFile.from_lines(remove_duplicates(lines))
            )
            if contents.has_family:
                found.append(contents)
        return tuple(found)


def _read_group_entries(document: Table) -> dict[str, list[Any]]:
    """Return the entries of each dependency group."""
    groups = dict(find_table(document, "dependency-groups"))
    further = find_table(document, "tool", "uv").get("dev-dependencies")
    if further:
        parse_text_list(further, "dev-dependencies")
        groups["dev"] = [*groups.get("dev", ()), *further]
    # Poetry installs the other groups by default.
    of_poetry = find_table(document, "tool", "poetry", "group")
    spellings = {normalize_name(name): name for name in groups}
    for name, group in of_poetry.items():
        if group.get("optional"):
            rows = read_poetry_groups(of_poetry, [name])
            texts = [convert_poetry_entry(one, entry) for one, entry in rows]
            same = spellings.get(normalize_name(name), name)
            groups[same] = [*groups.get(same, ()), *texts]
    return groups


def _expand_group(
    resolver: DependencyGroupResolver, group: str, seen: set[str]
) -> Iterator[str]:
    """Yield the requirements of a group and of its included groups.

    packaging expands a group once per inclusion, so a crafted file may take
    forever.

    Args:
        resolver: The groups.
        group: The name of the group.
        seen: The groups read so far, which are skipped. New ones are added.
    """
    from packaging.requirements import Requirement as StandardRequirement

    name = normalize_name(group)
    if name in seen:
        return
    seen.add(name)
    for item in resolver.lookup(name):
        if isinstance(item, StandardRequirement):
            yield str(item)
        else:
            yield from _expand_group(resolver, item.include_group, seen)


def locate_requirements(
    written: Iterable[Requirement],
    document: Table,
    file: Path,
    *parts: Part,
) -> RequirementsFile:
    """Return distinct requirements with their sources in the same file.

    Args:
        written: The requirements as written.
        document: The file that contains them.
        file: Its path.
        parts: The extras and groups that contain them.
    """
    tool = find_table(document, "tool")
    uv = find_table(tool, "uv")
    sources = [
        *read_poetry_entries(find_table(tool, "poetry")),
        *find_uv_sources(uv, file, parts),
    ]
    # Unsupported sources are refused with the other settings.
    addresses: dict[str, list[Table]] = {}
    for name, source in sources:
        if find_source_location(source):
            addresses.setdefault(name, []).append(source)
    lines = remove_duplicates(
        ProjectParts(document, file).expand_own_extras(written, set())
    )
    names = {one.name for one in lines if not one.url}
    return RequirementsFile.from_lines(
        (
            *chain.from_iterable(_locate_requirement(one, addresses) for one in lines),
            *parse_uv_constraints(uv, file),
        ),
        read_project_settings(tool, file, names, parts),
    )


def _locate_requirement(
    requirement: Requirement, sources: Mapping[str, Sequence[Table]]
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
    own = str(requirement.marker or "")
    others = [own]
    for source in sources[name]:
        marker = source.get("marker", "")
        editable = "-e " if source.get("editable") else ""
        located = f"{editable}{requirement.full_name} @ {find_source_location(source)}"
        text = _add_marker(located, join_markers(own, marker))
        yield parse_requirement(text, requirement.origin)
        if not marker:
            return
        others.append(negate_marker(marker))
    unlocated = f"{requirement.full_name}{requirement.specifier or ''}"
    text = _add_marker(unlocated, join_markers(*others))
    yield parse_requirement(text, requirement.origin)


def join_markers(*markers: str) -> str:
    """Return a marker that is true if all of these are true."""
    return " and ".join(f"({marker})" for marker in markers if marker)


def _read_poetry_requirements(poetry: Table) -> Iterator[str]:
    """Yield the requirements of Poetry's tables and default groups."""
    for name, entry in read_poetry_entries(poetry):
        if name != "python" and not entry.get("optional"):
            yield convert_poetry_entry(name, entry)


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
    extras = ""
    if "extras" in entry:
        extras = f"[{','.join(parse_text_list(entry['extras'], 'extras'))}]"
    return _add_marker(f"{name}{extras}{place}", marker)


def _add_marker(requirement: str, marker: object) -> str:
    return f"{requirement} ; {marker}" if marker else requirement
