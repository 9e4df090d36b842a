"""Read settings of uv, Poetry, and other tools that select sources."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import (
    expand_home,
    leads_outside,
    parse_toml,
)
from gpuinstall.base.location import LINKS_FRAGMENT, links_url
from gpuinstall.base.requirement import (
    Constraint,
    TextOrigin,
    is_url,
    marker_holds,
    normalize_name,
    parse_standard_marker,
    quote_path,
)
from gpuinstall.base.shapes import LOCK, check_shape, parse_pyproject
from gpuinstall.base.text import remove_logins
from gpuinstall.base.values import Value, replace
from gpuinstall.catalog.loader import load_catalog
from gpuinstall.sources.configuration import (
    MASKED,
    format_index_url,
    read_project_tables,
)
from gpuinstall.sources.provenance import (
    TORCH_SOURCE,
    Effect,
    SourceSetting,
    create_setting,
)
from gpuinstall.sources.requirements_file import (
    PROJECT,
    Part,
    convert_content_errors,
    create_list_settings,
    read_requirements_text,
)
from gpuinstall.sources.uv_settings import UvSetting

if TYPE_CHECKING:
    from packaging.markers import Marker
    from packaging.version import Version

Table = Mapping[str, Any]


class NamedSource(Value):
    """Source of a package in the settings of uv or Poetry."""

    package: str
    location: str | None
    """The URL or path. None: an index."""
    index: str = ""
    """The URL of the index. Empty: the file defines no such index."""
    marker: str = ""
    is_editable: bool = False
    is_virtual: bool = False
    """Whether only the requirements of the project are installed."""


POETRY_FILE = "poetry.toml"
TOOL_FILES = {
    POETRY_FILE: (),
    "pdm.toml": ("pypi",),
    "hatch.toml": ("envs",),
    "pixi.toml": ("pypi-options",),
    "Pipfile": ("source",),
}
"""Other tools' files, with the keys of their indexes."""

_INDEX_KEYS = (
    "tool.pdm.source",
    "tool.rye.sources",
    "tool.pixi.pypi-options",
    "tool.hatch.envs",
)
"""Keys of other tools' indexes in pyproject.toml, except Poetry's."""

_FALLBACKS = ("supplemental", "explicit")
"""Poetry's priorities for sources that it does not search by default."""

_INDEX_VARIABLE = r"(PIP|UV)_((DEFAULT_|EXTRA_)?INDEX(_URL)?|FIND_LINKS)"

TEAM_LOCKS = ("uv.lock", "poetry.lock")

_REFERENCES = ("branch", "tag", "rev")
"""uv's keys for a reference in a Git repository."""


def find_table(document: Table, *names: str) -> Table:
    """Return a nested table by its names, or an empty one if missing."""
    for name in names:
        document = document.get(name, {})
    return document


def find_source_location(source: Table) -> str | None:
    """Return the URL or path of a package's source, or None for an index.

    Args:
        source: An entry of ``[tool.uv.sources]``, or of Poetry's dependencies.
    """
    inside = (
        f"#subdirectory={source['subdirectory']}" if "subdirectory" in source else ""
    )
    if "git" in source:
        repository = source["git"].removeprefix("git+")
        reference = ""
        for kind in _REFERENCES:
            if kind in source:
                reference = f"@{source[kind]}"
        return f"git+{repository}{reference}{inside}"
    if "url" in source:
        return f"{source['url']}{inside}"
    # Poetry uses "file".
    path = source.get("path", source.get("file"))
    return None if path is None else quote_path(str(path))


def read_project_settings(
    document: Table,
    file: Path,
    packages: Collection[str],
    sources: Iterable[NamedSource],
) -> Iterator[SourceSetting | UvSetting]:
    """Yield the sources in ``[tool]``, except uv's own indexes.

    Args:
        document: The pyproject.toml.
        file: Its path.
        packages: The packages that the project requires.
        sources: The sources in uv's table.
    """
    yield from _read_uv_sources(sources, file, packages)
    yield from read_index_settings(document, _INDEX_KEYS, file)
    yield from _read_poetry_settings(find_table(document, "tool", "poetry"), file)


def _read_poetry_settings(
    poetry: Table, file: Path
) -> Iterator[SourceSetting | UvSetting]:
    """Yield the sources and pre-releases in Poetry's tables.

    A fallback source that no package selects is marked, because it can be ignored:
    without it, a package can only be missing.
    """
    entries = [*read_poetry_entries(poetry, with_optional=True)]
    for name, entry in entries:
        if entry.get("allow-prereleases"):
            yield UvSetting("prerelease-package", {name: "allow"}, file)
    selected = {entry.get("source") for _, entry in entries}
    indexes = {}
    for row in poetry.get("source", ()):
        is_needed = row.get("priority") not in _FALLBACKS or row.get("name") in selected
        effect = Effect.KNOWN_INDEX if is_needed else Effect.FALLBACK
        if "url" in row:
            indexes[row.get("name")] = row["url"]
            yield create_setting(effect, "tool.poetry.source", row["url"], file)
    for package, dependency in read_poetry_entries(poetry):
        address = find_source_location(dependency)
        is_family = package in load_catalog().family
        if address and not is_family:
            key = "git, url, path of a package"
            yield create_setting(Effect.ADDRESS, key, address, file, package=package)
        elif is_family and dependency.get("source") in indexes:
            from gpuinstall.base.poetry import create_poetry_marker

            yield create_setting(
                Effect.TORCH,
                "source of torch",
                indexes[dependency["source"]],
                file,
                package=package,
                marker=create_poetry_marker(dependency),
            )


def _read_uv_sources(
    sources: Iterable[NamedSource], file: Path, packages: Collection[str]
) -> Iterator[SourceSetting]:
    """Yield the settings for the package sources in uv's table of a file."""
    # Include unrequired packages, because the user can request them later.
    for source in sources:
        package = source.package
        key = "sources"
        effect = Effect.ADDRESS
        value = source.location or ""
        if package in load_catalog().family:
            key = TORCH_SOURCE
            effect = Effect.TORCH
            value = source.index.removesuffix(LINKS_FRAGMENT)
        elif source.index:
            effect = Effect.PACKAGE_INDEX
            value = source.index
        # Otherwise, the command fails if a dependency requires the package.
        elif not value and package in packages:
            raise UsageError(
                "source-setting",
                f"{file}: [tool.uv.sources] {package} is not a member of the workspace",
                why="ignoring the source could install a different package",
                hint="Instead, list the packages to install: [tool.gpuinstall] requirements = […]",
            )
        yield create_setting(
            effect, key, value, file, package=package, marker=source.marker
        )


def find_uv_sources(
    uv: Table,
    file: Path,
    parts: Collection[Part],
    no_sources: Collection[str],
) -> Iterator[NamedSource]:
    """Yield each source of a package in uv's table of a file.

    The sources of the workspace root apply to its members. ``no-sources`` does not
    apply to torch-family packages.

    Args:
        uv: The table.
        file: Its file.
        parts: The extras and groups to read. Sources for any other do not apply.
        no_sources: The packages without a source, or ``:all:``.
    """
    folder = file.absolute().parent
    workspace = _read_workspace(folder)
    indexes = _find_indexes(workspace.uv, workspace.root / PROJECT)
    indexes |= _find_indexes(uv, file)
    sources = {
        normalize_name(name): (root, source)
        for root, table in ((workspace.root, workspace.uv), (folder, uv))
        for name, source in table.get("sources", {}).items()
    }
    for package, (root, source) in sources.items():
        is_family = package in load_catalog().family
        if not is_family and (package in no_sources or ":all:" in no_sources):
            continue
        for row in source if isinstance(source, list) else [source]:
            part = find_entry_part(row)
            if part and part not in parts:
                continue
            location = find_source_location(row)
            is_member = row.get("workspace") is True and package in workspace.members
            if is_member:
                member = workspace.members[package]
                location = quote_path(os.path.relpath(member, folder))
            elif "path" in row and root != folder:
                path = root / expand_home(row["path"])
                location = quote_path(os.path.relpath(path, folder))
            yield NamedSource(
                package,
                location,
                indexes.get(row.get("index"), ""),
                row.get("marker", ""),
                bool(row.get("editable", is_member)),
                row.get("package") is False,
            )


def _find_indexes(uv: Table, file: Path) -> dict[str, str]:
    """Return the URLs of the named indexes in uv's table of a file."""
    indexes = {}
    # Sources may refer to an index that a uv.toml replaces.
    for row in uv.get("index", uv.get(f"{MASKED}index", ())):
        index = format_index_url(row, file)
        if row.get("format") == "flat":
            index = links_url(index)
        indexes[row.get("name", "")] = index
    return indexes


def find_entry_part(row: Table) -> Part | None:
    """Return the extra or group of an entry in uv's tables."""
    for kind in ("extra", "group"):
        if kind in row:
            return Part(kind, normalize_name(row[kind]))
    return None


class _Workspace(Value):
    """The workspace of a project."""

    root: Path
    uv: Table
    """uv's table of the root."""
    members: Mapping[str, Path]
    """The folder of each member by its normalized name."""


def _read_workspace(folder: Path) -> _Workspace:
    """Read the workspace of a project's folder.

    Raises:
        UsageError: The file of a member cannot be read or is malformed.
        ValueError: A pattern of members leads outside the repository.
    """
    root, uv, places = _find_workspace(folder)
    members = {_read_name(root / place, root): root / place for place in places}
    return _Workspace(root, uv, members)


def _find_workspace(folder: Path) -> tuple[Path, Table, Collection[str]]:
    """Return a workspace's root, uv's table of it, and the projects' paths.

    Without a workspace, the table and the paths are empty.
    """
    for file, uv in read_project_tables(folder):
        if "workspace" in uv:
            from gpuinstall.sources.workspace import find_workspace_members

            root = file.parent
            return root, uv, (".", *find_workspace_members(uv["workspace"], root))
    return folder, {}, ()


def _read_name(project: Path, root: Path) -> str:
    """Return the normalized name of a project in a workspace."""
    limit = project if leads_outside(os.path.relpath(project, root)) else root
    # uv reads all members, and quotes a malformed file.
    table = _read_table(project / PROJECT, limit, "project")
    return normalize_name(table.get("name", ""))


def _read_table(path: Path, folder: Path, *names: str) -> Table:
    """Read a table of a pyproject.toml; see ``read_document``."""
    with convert_content_errors(path):
        document = parse_pyproject(read_requirements_text(path, folder))
        return find_table(document, *names)


def read_index_settings(
    document: Table, keys: Iterable[str], file: Path
) -> Iterator[SourceSetting]:
    """Yield the URLs of other tools' indexes for a comparison with uv's.

    Args:
        document: The document.
        keys: The keys of the indexes.
        file: Its path.
    """
    for key in keys:
        # Hatch's environments set variables of pip and uv.
        names = _INDEX_VARIABLE if key.endswith("envs") else ".*"
        for address in _find_urls(find_table(document, *key.split(".")), names):
            yield create_setting(Effect.KNOWN_INDEX, key, address, file)


def _find_urls(value: object, names: str, name: str = "") -> Iterator[str]:
    """Yield the URLs in tables and lists, also as uv's ``NAME=URL``.

    Args:
        value: The table, list, or text.
        names: The pattern of the keys whose values are indexes.
        name: The key of the value.
    """
    match value:
        case dict():
            for key, one in value.items():
                yield from _find_urls(one, names, key)
        case list():
            for one in value:
                yield from _find_urls(one, names, name)
        case str() if re.fullmatch(names, name):
            yield from re.findall(r"(?:^|[\s=])(\w+://\S+)", value)


def read_poetry_configuration(document: Table, file: Path) -> Iterator[UvSetting]:
    """Yield the settings of a ``poetry.toml`` that select builds."""
    installer = document.get("installer", {})
    for key, name in (("no-build", "only-binary"), ("no-binary", "no-binary")):
        value = installer.get(name, document.get(f"installer.{name}"))
        if value:
            names = ":all:" if value is True else value
            yield from create_list_settings(key, names, file)


def read_poetry_entries(
    poetry: Table, *, with_optional: bool = False
) -> Iterator[tuple[str, Table]]:
    """Yield each dependency of Poetry's default groups.

    Args:
        poetry: Poetry's table.
        with_optional: Whether to include optional groups.
    """
    groups = poetry.get("group", {})
    default = [
        name for name in groups if with_optional or not groups[name].get("optional")
    ]
    yield from read_poetry_rows(poetry.get("dependencies", {}))
    yield from read_poetry_groups(groups, default)
    yield from read_poetry_rows(poetry.get("dev-dependencies", {}))


def read_poetry_groups(
    groups: Table, names: Iterable[str]
) -> Iterator[tuple[str, Table]]:
    """Yield each dependency of groups and of their included groups.

    Args:
        groups: The groups in Poetry's table.
        names: The names of the groups to read, each once.

    Raises:
        ValueError: An included group does not exist.
    """
    known = {normalize_name(name): group for name, group in groups.items()}
    pending = [*map(normalize_name, names)]
    # Included groups extend the list.
    for name in pending:
        group = known.pop(name, {})
        yield from read_poetry_rows(group.get("dependencies", {}))
        for included in map(normalize_name, group.get("include-groups", ())):
            if included not in map(normalize_name, groups):
                key = f"[tool.poetry.group.{name}] include-groups"
                raise ValueError(f"{key}: group {included} does not exist")
            pending.append(included)


def read_poetry_rows(table: Table) -> Iterator[tuple[str, Table]]:
    """Yield the dependencies in a Poetry table, each row separately."""
    for name, written in table.items():
        for row in written if isinstance(written, list) else [written]:
            entry = row if isinstance(row, dict) else {"version": row}
            yield normalize_name(name), entry


def find_project_lock(folder: Path) -> Path | None:
    """Return the uv.lock of a folder's workspace, its poetry.lock, or None."""
    root, _, places = _find_workspace(folder)
    is_member = os.path.relpath(folder, root) in places
    folders = (root if is_member else folder, folder)
    paths = (place / name for place, name in zip(folders, TEAM_LOCKS, strict=True))
    return next(filter(Path.is_file, paths), None)


class LockedPackage(Value):
    """A package of a uv.lock or poetry.lock."""

    name: str
    version: Version | None
    """None for a package from a folder."""
    conditions: tuple[tuple[str, Marker | str], ...]
    """Poetry's groups, or an empty name, each with a marker."""
    settings: tuple[SourceSetting, ...]
    """The files and the source of the package."""


class ProjectLock(Value):
    """The packages of a uv.lock or poetry.lock."""

    path: Path
    packages: Sequence[LockedPackage]
    optional_groups: frozenset[str] = frozenset()
    """The groups that Poetry installs only on request."""

    def select_packages(
        self, parts: Collection[Part]
    ) -> Iterator[tuple[LockedPackage, list[Marker | str]]]:
        """Yield packages with their markers, without omitted Poetry groups.

        Args:
            parts: The requested extras and groups.
        """
        omitted = self.optional_groups - {one.name for one in parts}
        for package in self.packages:
            kept = [one for group, one in package.conditions if group not in omitted]
            if kept:
                yield package, kept


def read_project_lock(folder: Path) -> ProjectLock | None:
    """Read the uv.lock or poetry.lock of a folder, if it has one.

    Raises:
        UsageError: The lock is malformed.
    """
    path = find_project_lock(folder)
    if path is None:
        return None
    with convert_content_errors(path, "team-lock-malformed", f"Repair {path}"):
        document = parse_toml(read_requirements_text(path, path.parent))
        check_shape(document, LOCK)
        packages = [_parse_package(row, path) for row in document.get("package", ())]
    return ProjectLock(path, packages, _read_optional_groups(folder / PROJECT))


def _parse_package(row: Table, path: Path) -> LockedPackage:
    """Parse a package, whose name becomes a line of a file for uv."""
    from packaging.utils import canonicalize_name
    from packaging.version import Version

    name = canonicalize_name(row["name"], validate=True)
    version = Version(row["version"]) if row.get("version") else None
    written = row.get("resolution-markers") or row.get("markers") or ""
    if isinstance(written, dict):
        # Poetry writes the marker of each group that has one.
        groups = row.get("groups", written)
        pairs = [(group, written.get(group, "")) for group in groups]
    else:
        texts = [written] if isinstance(written, str) else written
        pairs = [*product(row.get("groups") or [""], texts)]
    conditions = [
        (normalize_name(group), text and parse_standard_marker(text))
        for group, text in pairs
    ]
    settings = _read_package_settings(row, path, name, version)
    return LockedPackage(name, version, tuple(conditions), tuple(settings))


def find_locked_versions(
    lock: ProjectLock | None,
    markers: Mapping[str, str],
    parts: Collection[Part],
) -> tuple[Constraint, ...]:
    """Return the versions in a uv.lock or poetry.lock for a machine.

    Torch-family versions have no local label. Libraries of a locked torch are omitted.

    Args:
        lock: The ``uv.lock`` or ``poetry.lock``, if any.
        markers: The marker values, which select from several versions of a package.
        parts: The selected extras and groups, which also select versions.
    """
    if lock is None:
        return ()
    catalog = load_catalog()
    extras = [one.name for one in parts if one.kind == "extra"]
    groups = [one.name for one in parts if one.kind == "group"]
    versions = {}
    # Use the last version whose marker is true, because uv's forks are disjoint.
    for package, kept in lock.select_packages(parts):
        version = package.version
        if version and any(marker_holds(one, markers, extras, groups) for one in kept):
            is_family = package.name in catalog.family
            versions[package.name] = version.public if is_family else str(version)
    tied = set(filter(catalog.is_tied, versions)) - catalog.family
    omitted = tied if "torch" in versions else set()
    origin = TextOrigin(str(lock.path))
    return tuple(
        Constraint.of(name, f"=={versions[name]}").at(origin)
        for name in sorted(versions.keys() - omitted)
    )


def _read_optional_groups(file: Path) -> frozenset[str]:
    """Return the names of Poetry's optional groups in a pyproject.toml."""
    keys = "tool", "poetry", "group"
    groups = _read_table(file, file.parent, *keys) if isfile(file) else {}
    optional = (name for name in groups if groups[name].get("optional"))
    return frozenset(map(normalize_name, optional))


def _read_package_settings(
    row: Table, path: Path, name: str, version: Version | None
) -> Iterator[SourceSetting]:
    # Slow to import.
    from gpuinstall.catalog.extensions import load_extensions

    setting = partial(create_setting, file=path)
    if load_catalog().is_tied(name) or name in load_extensions().rows:
        yield setting(Effect.TORCH, "files of torch", "")
        return
    files = [*row.get("files", ()), *row.get("wheels", ()), row.get("sdist") or {}]
    known = {file.get("hash", "") for file in files}
    hashes = {text for text in known if text.startswith("sha256:")}
    if hashes and version:
        release = f"{name}=={version}"
        key = "hashes of packages at their versions"
        yield setting(Effect.HASH, key, " ".join(sorted(hashes)), package=release)
    source = row.get("source", {})
    index = source.get("url" if source.get("type") == "legacy" else "registry")
    if index:
        if not is_url(index):
            index = os.path.normpath(path.absolute().parent / index)
        yield setting(Effect.KNOWN_INDEX, "package index", index, package=name)
    elif {"git", "url", "path", "directory", "editable"} & source.keys():
        yield setting(Effect.ADDRESS, "git, url, path of a package", "", package=name)
    row = _read_commit(source)
    if row and version:
        package = f"{name}=={version}"
        key = "commit of a package"
        pinned = setting(Effect.COMMIT, key, row["commit-id"], package=package)
        yield replace(pinned, options=row)


def _read_commit(source: Table) -> dict[str, str]:
    """Return the ``vcs`` table of a source in Git, or an empty one."""
    address, _, commit = remove_logins(source.get("git", "")).partition("#")
    repository, _, query = address.partition("?")
    reference = "".join(text for kind, text in parse_qsl(query) if kind in _REFERENCES)
    if source.get("type") == "git":
        repository = remove_logins(source.get("url", ""))
        commit = source.get("resolved_reference", "")
        # Poetry writes HEAD for the default branch.
        reference = source.get("reference", "")
        reference = "" if reference == "HEAD" else reference
    if not re.fullmatch("[0-9a-f]{40}", commit):
        return {}
    row = {"type": "git", "url": repository, "commit-id": commit}
    return row | ({"requested-revision": reference} if reference else {})
