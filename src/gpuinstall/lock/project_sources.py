"""What the tools of a project say of sources, in pyproject.toml, in files and locks of their own and in a script's block."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from packaging.errors import ExceptionGroup

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import parse_toml
from gpuinstall.base.requirement import normalised
from gpuinstall.catalog.loader import load_catalog
from gpuinstall.sources.configuration import index_key
from gpuinstall.sources.provenance import TEAM_LOCK, SourceSetting, source_setting
from gpuinstall.sources.requirements_file import read_listed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    Table = Mapping[str, Any]


MALFORMED_TABLE = (
    ExceptionGroup,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
)
"""What reading a table of another form than the expected one raises."""

TOOL_FILES = {
    "pdm.toml": "PDM",
    "hatch.toml": "Hatch",
    "pixi.toml": "pixi",
    "Pipfile": "Pipenv",
    "setup.cfg": "setuptools",
}
"""The tools' own files beside a project."""

_TOOLS = ("Poetry", "PDM", "Rye", "pixi", "Hatch")
"""The tools other than uv that have a table in ``[tool]``."""

_INDEX = re.compile(
    r"(sources?|pypi( .+)?) url"
    r"|(.+ )?(pypi-options|easy_install) (index.url|extra-index-urls|find.links( (url|path))?)"
    r"|(.+ )?pypi-dependencies \S+ index"
    r"|(.+ )?env-vars (PIP|UV)_((DEFAULT_|EXTRA_)?INDEX(_URL)?|FIND_LINKS)"
)
"""Where these tools write an index: the names of the tables and of the key, with a blank between."""

_ADDRESSES = ("git", "url", "path", "file")
"""What tools call the address of a package."""

_LOCKS = ("uv.lock", "poetry.lock")


def table_in(document: Table, *names: str) -> Table:
    """Return a table inside others, by their names; empty if one is missing."""
    for name in names:
        document = document.get(name, {})
    return document


def project_settings(
    tool: Table,
    file: Path,
    packages: Collection[str],
) -> Iterator[SourceSetting]:
    """Yield what ``[tool]`` says of sources; uv's own indexes are read with its other configuration.

    Args:
        tool: The table.
        file: Where it stands.
        packages: What the project requires.
    """
    for key, value, package in _uv_sources(table_in(tool, "uv"), packages):
        yield source_setting("uv", key, value, file, package=package)
    for name in _TOOLS:
        yield from tool_settings(name, table_in(tool, name.lower()), file)
    for name in table_in(tool, "pdm", "resolution", "overrides"):
        yield source_setting("PDM", "overrides", "", file, package=normalised(name))
    for name, dependency in poetry_entries(table_in(tool, "poetry")):
        address = _address_in(dependency)
        if address and not _is_of_torch(normalised(name)):
            key = "git, url, path of a package"
            yield source_setting("Poetry", key, address, file, package=normalised(name))


def tool_settings(tool: str, document: Table, file: Path) -> Iterator[SourceSetting]:
    """Yield the indexes that the table or the file of a tool names, each with its line."""
    for names, value in _leaves(document):
        words = value.split() if _INDEX.fullmatch(names) else ()
        for word in words:
            address = re.sub(r"^[\w.-]+=", "", word)  # uv takes NAME=ADDRESS
            if "://" not in address:
                address = str(file.parent.absolute() / address)
            yield source_setting(
                tool, "sources", address, file, line=_line_of(word, file)
            )


def _line_of(word: str, file: Path) -> int | None:
    """Return the number of the first line that has a word; None if the file cannot be read."""
    with suppress(OSError):
        for number, line in enumerate(
            file.read_text(encoding="utf-8").splitlines(), start=1
        ):
            if word in line:
                return number
    return None


def _leaves(value: object, *names: str) -> Iterator[tuple[str, str]]:
    """Yield every value in tables and lists, with the names of the tables around it."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, *names, name)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner, *names)
    else:
        yield " ".join(names), str(value)


def poetry_entries(poetry: Table) -> Iterator[tuple[str, Table]]:
    """Yield each dependency of Poetry's tables that is installed unasked, with every table that it has."""
    groups = [
        group for group in poetry.get("group", {}).values() if not group.get("optional")
    ]
    for part in (poetry, {"dependencies": poetry.get("dev-dependencies", {})}, *groups):
        for name, written in part.get("dependencies", {}).items():
            for row in written if isinstance(written, list) else [written]:
                yield name, row if isinstance(row, dict) else {"version": row}


def _uv_sources(uv: Table, packages: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Yield key, value and package of what uv's table says of the sources of single packages."""
    indexes = {}
    for row in uv.get("index", []):
        if "name" in row and index_key(row) in {"index", "index (default)"}:
            indexes[row["name"]] = row["url"]
    for name, written in uv.get("sources", {}).items():
        package = normalised(name)
        source = written if isinstance(written, dict) else {}
        address = _address_in(source)
        # Also the index of a package that nothing requires: it may be requested by hand.
        index = indexes.get(source.get("index"))
        if _is_of_torch(package):
            yield "sources of torch", "", package
        elif index and not {"marker", "extra"} & source.keys():
            yield "sources (index)", index, package
        elif address:
            yield "sources (git, url, path)", address, package
        elif package in packages:
            yield "sources (workspace)", "", package


def _address_in(table: Table) -> str:
    """Return the address that a table gives a package; empty without any."""
    return next((str(table[key]) for key in _ADDRESSES if key in table), "")


def _is_of_torch(package: str) -> bool:
    """Whether a package comes with torch's build, whose source is chosen with it."""
    return package in load_catalog().family


def team_lock_in(folder: Path) -> Path | None:
    """Return the lock that the tool of a project keeps; None if there is none."""
    for name in _LOCKS:
        path = folder / name
        if path.is_file():
            return path
    return None


def read_team_lock(
    path: Path,
    markers: Mapping[str, str],
) -> tuple[str, ...]:
    """Return the versions that a team's lock has for the machine and the Python of ``markers``, as ``name==version``.

    Those of torch's companions are without their labels; the libraries of its build are left out.

    Raises:
        UsageError: if it is malformed.
    """
    from packaging.utils import canonicalize_name
    from packaging.version import Version

    catalog = load_catalog()
    versions = {}
    try:
        document = parse_toml(read_listed(path, path.parent))
        for row in document.get("package", ()):
            # Parsed, for it becomes a line of a file for uv.
            name = canonicalize_name(row["name"], validate=True)
            if not row.get("version"):  # a folder has none
                continue
            if not _is_for(row, markers):
                continue
            version = Version(row["version"])
            if name in catalog.family:
                versions[name] = version.public
            elif not catalog.is_tied(name):
                versions[name] = str(version)
    except MALFORMED_TABLE as error:
        raise _malformed(path, error) from None
    rows = sorted(versions.items())
    return tuple(f"{name}=={version}" for name, version in rows)


def _is_for(
    row: Table,
    markers: Mapping[str, str],
) -> bool:
    """Whether one of the markers of a package holds: uv's list of them, Poetry's text or table by group."""
    from packaging.markers import Marker

    written = row.get("resolution-markers") or row.get("markers")
    if not written:
        return True
    if isinstance(written, str):
        written = [written]
    elif isinstance(written, dict):
        written = written.values()
    return any(Marker(text).evaluate(dict(markers)) for text in written)


def read_team_settings(path: Path) -> tuple[SourceSetting, ...]:
    """Return what a team's lock says of the files and the sources of packages.

    Raises:
        UsageError: if it is malformed.
    """
    try:
        settings = list[SourceSetting]()
        for row in parse_toml(read_listed(path, path.parent)).get("package", ()):
            settings += _package_settings(row, path)
    except MALFORMED_TABLE as error:
        raise _malformed(path, error) from None
    return tuple(settings)


def _malformed(path: Path, error: Exception) -> UsageError:
    message = f"{path.name} is malformed: {' '.join(str(error).split())}"
    return UsageError("team-lock-malformed", message, hint="Repair it")


def _package_settings(row: Table, path: Path) -> Iterator[SourceSetting]:
    from packaging.version import Version

    from gpuinstall.catalog.extensions import (
        load_extensions,
    )  # which takes long to load

    name = normalised(row["name"])
    setting = partial(source_setting, TEAM_LOCK, file=path)
    if load_catalog().is_tied(name) or name in load_extensions().rows:
        yield setting("files of torch", "")
        return
    files = [*row.get("files", ()), *row.get("wheels", ()), row.get("sdist") or {}]
    hashes = {
        file["hash"] for file in files if file.get("hash", "").startswith("sha256:")
    }
    if hashes and "version" in row:
        release = f"{name}=={Version(row['version'])}"
        key = "hashes of packages at their versions"
        yield setting(key, " ".join(sorted(hashes)), package=release)
    source = row.get("source", {})
    index = source["url"] if source.get("type") == "legacy" else source.get("registry")
    if index:
        if "://" not in index:
            index = os.path.normpath(path.absolute().parent / index)
        yield setting("index of a package", index, package=name)
    elif {"git", "url", "path", "directory", "editable"} & source.keys():
        yield setting("git, url, path of a package", "", package=name)
