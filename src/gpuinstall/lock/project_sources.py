"""What the tools of a project say of sources, in pyproject.toml, in files of their own and in a script's block."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from packaging.errors import ExceptionGroup

from gpuinstall.base.requirement import normalised
from gpuinstall.catalog.loader import load_catalog
from gpuinstall.sources.configuration import index_key
from gpuinstall.sources.provenance import SourceSetting, source_setting

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
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

_ADDRESSES = ("git", "url", "path", "file")
"""What tools call the address of a package."""

_OFF = {"", "0", "no", "off", "false", "first-index"}


class Place(NamedTuple):
    """Where the files of a tool write a setting."""

    tool: str
    key: str
    """The setting in the table of provenance."""
    path: str
    """An expression for the names of the tables and of the key, with a blank between; ``package`` is what it is about."""


_PIXI = "(.+ )?pypi-options"
_OF_PIXI = r"(.+ )?pypi-dependencies (?P<package>\S+)"
_PLACES = (
    Place("Poetry", "sources", "source url"),
    Place("PDM", "sources", "source url|pypi( .+)? url"),
    Place("PDM", "overrides", "resolution overrides (?P<package>.+)"),
    Place("Rye", "sources", "sources url"),
    Place("pixi", "sources", f"{_PIXI} (index-url|extra-index-urls|find-links (url|path))"),
    Place("pixi", "sources", f"{_OF_PIXI} index"),
    Place("pixi", "git, url, path of a package", f"{_OF_PIXI} (git|url|path)"),
    Place("pixi", "no-build", f"{_PIXI} no-build"),
    Place("pixi", "no-binary", f"{_PIXI} no-binary"),
    Place("pixi", "index-strategy", f"{_PIXI} index-strategy"),
    Place("pixi", "dependency-overrides", rf"{_PIXI} dependency-overrides (?P<package>\S+).*"),
    Place("pixi", "exclude-newer", "workspace (pypi-)?exclude-newer"),
    Place("Pipenv", "sources", "source url"),
    Place(
        "Pipenv",
        "git, file, path of a package",
        r"(?!(source|requires|scripts|pipenv) )\S+ (?P<package>\S+) (git|hg|svn|bzr|file|path)",
    ),
    Place(
        "Hatch",
        "sources",
        "(.+ )?env-vars (PIP_(EXTRA_)?INDEX_URL|UV_((DEFAULT_|EXTRA_)?INDEX(_URL)?)|(PIP|UV)_FIND_LINKS)",
    ),
    Place(
        "Hatch",
        "env-vars",
        "(.+ )?env-vars ((PIP|UV)_(NO_INDEX|NO_BINARY|NO_BINARY_PACKAGE|REQUIRE_HASHES)|PIP_ONLY_BINARY|"
        "UV_(NO_BUILD|NO_BUILD_PACKAGE|EXCLUDE_NEWER|INDEX_STRATEGY|NO_SOURCES|OVERRIDE|CONSTRAINT))",
    ),
    Place("setuptools", "sources", "easy_install (index.url|find.links)"),
    Place("setuptools", "dependency_links", "options dependency.links"),
)
"""What tools other than pip, uv and conda say of sources, wherever their files say it."""

TOOL_FILES = {
    "pdm.toml": "PDM",
    "hatch.toml": "Hatch",
    "pixi.toml": "pixi",
    "Pipfile": "Pipenv",
    "setup.cfg": "setuptools",
}
"""The tools' own files beside a project."""


def table_in(document: Table, *names: str) -> Table:
    """Return a table inside others, by their names; empty if one is missing."""
    for name in names:
        document = document.get(name, {})
    return document


def project_settings(
    tool: Table,
    file: Path,
    packages: Collection[str],
) -> list[SourceSetting]:
    """Return what ``[tool]`` says of sources; uv's own indexes are read with its other configuration.

    Args:
        tool: The table.
        file: Where it stands.
        packages: What the project requires.
    """
    settings = [
        source_setting("uv", key, value, file, package=package)
        for key, value, package in _uv_sources(table_in(tool, "uv"), packages)
    ]
    for name in ("Poetry", "PDM", "Rye", "pixi", "Hatch"):
        settings += tool_settings(name, table_in(tool, name.lower()), file)
    for name, dependency in poetry_entries(table_in(tool, "poetry")):
        address = _first_of(dependency, _ADDRESSES)
        if address and not _is_of_torch(normalised(name)):
            key = "git, url, path of a package"
            settings.append(source_setting("Poetry", key, address, file, package=normalised(name)))
    return settings


def tool_settings(tool: str, document: Table, file: Path) -> Iterator[SourceSetting]:
    """Yield what the table or the file of a tool says of sources; an address with its line.

    What it says of PyTorch's packages is passed over, and so are Poetry's and Pipenv's indexes that serve only those
    who name them, if nothing does.
    """
    if tool in {"Poetry", "Pipenv"}:
        document = {**document, "source": _sources_in_use(tool, document)}
    leaves = list(_leaves(document))
    for place in _PLACES:
        if place.tool != tool:
            continue
        for names, value in leaves:
            found = re.fullmatch(place.path, names)
            if found is None or value.lower() in _OFF:
                continue
            package = normalised(found.groupdict().get("package") or "")
            if package and _is_of_torch(package):
                continue
            words = value.split() if place.key == "sources" else [value]
            for word in words:
                yield _tool_setting(place, word, file, package)


def _tool_setting(place: Place, word: str, file: Path, package: str) -> SourceSetting:
    """Return the setting that one word of a value is."""
    value = ":all:" if word == "True" else word
    line = None
    if place.key == "sources":
        value = re.sub(r"^[\w.-]+=", "", value)  # uv takes NAME=ADDRESS
        if "://" not in value:
            value = str(file.parent.absolute() / value)
        line = _line_of(word, file)
    return source_setting(place.tool, place.key, value, file, line=line, package=package)


def _line_of(word: str, file: Path) -> int | None:
    """Return the number of the first line that has a word; None if the file cannot be read."""
    with suppress(OSError):
        lines = file.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(lines, start=1):
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


def _sources_in_use(tool: str, document: Table) -> list[Table]:
    """Return the indexes of Poetry and Pipenv that packages may come from: the general ones, and those that are named."""
    named = set()
    for names, value in _leaves({**document, "source": ()}):
        *_, package, key = ("", *names.split(" "))
        if key in {"source", "index"} and not _is_of_torch(normalised(package)):
            named.add(value.lower())
    serves_all = table_in(document, "pipenv").get("install_search_all_sources")
    in_use = []
    for number, source in enumerate(document.get("source", [])):
        if tool == "Poetry":
            serves_few = source.get("priority") == "explicit"
        else:
            serves_few = number > 0 and not serves_all
        if not serves_few or source["name"].lower() in named:
            in_use.append(source)
    return in_use


def poetry_entries(poetry: Table) -> Iterator[tuple[str, Table]]:
    """Yield each dependency of Poetry's tables that is installed unasked, with every table that it has."""
    tables = [poetry.get("dependencies", {}), poetry.get("dev-dependencies", {})]
    groups = poetry.get("group", {})
    installed = [group for group in groups.values() if not group.get("optional")]
    tables += [group.get("dependencies", {}) for group in installed]
    for table in tables:
        for name, written in table.items():
            rows = written if isinstance(written, list) else [written]
            for row in rows:
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
        address = _first_of(source, _ADDRESSES)
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


def _first_of(table: Table, keys: Iterable[str]) -> str:
    """Return the value of the first of the keys that is there; empty without any."""
    return next((str(table[key]) for key in keys if key in table), "")


def _is_of_torch(package: str) -> bool:
    """Whether a package comes with torch's build, whose source is chosen with it."""
    return package in load_catalog().family
