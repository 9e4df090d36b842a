"""What the tools of a project say of sources, in pyproject.toml, in files of their own and in a script's block."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from packaging.errors import ExceptionGroup

from gpuinstall.base.requirement import normalised
from gpuinstall.catalog.loader import load_catalog
from gpuinstall.sources.provenance import (
    SourceSetting,
    index_key,
    is_known,
    is_of_pytorch,
    source_setting,
    uv_indexes,
    uv_settings,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from configparser import RawConfigParser
    from pathlib import Path

    Table = Mapping[str, Any]
    Entries = Iterator["Entry"]


MALFORMED_TABLE = (
    ExceptionGroup,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
)
"""What reading a table of another form than the expected one raises."""

PIPENV_ADDRESSES = (
    "git",
    "hg",
    "svn",
    "bzr",
    "file",
    "path",
)
_PIPENV_TABLES = frozenset(
    {
        "source",
        "requires",
        "scripts",
        "pipenv",
    }
)
"""The tables of a Pipfile that hold no packages."""

_ADDRESSES = ("git", "url", "path", "file")
"""What the other tools call the address of a package."""

_VARIABLE_KEYS = {"uv default-index": "index (default)", "uv index": "index"}
"""The keys of uv's variables, if their names differ."""
_SEVERAL_ADDRESSES = {"index", "extra-index-url", "--extra-index-url"}
"""The keys of variables that may hold several addresses."""
_OFF = {"", "0", "no", "off", "false"}


class Entry(NamedTuple):
    """What a tool's table says of sources, before it is said in which file it stands."""

    tool: str
    key: str
    value: str = ""
    package: str = ""
    """The package that it is about; empty for all."""

    def setting(self, file: Path) -> SourceSetting:
        """Return it as it stands in ``file``, from which paths of links start."""
        value = self.value
        if re.search("find[-_]links", self.key) and "://" not in value:
            value = str(file.parent.absolute() / value)
        return source_setting(
            tool=self.tool,
            key=self.key,
            value=value,
            file=file,
            package=self.package,
        )


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
    entries = [
        *_uv_sources(table_in(tool, "uv"), packages),
        *_poetry_sources(table_in(tool, "poetry")),
        *_pdm_sources(table_in(tool, "pdm")),
        *_rye_sources(table_in(tool, "rye")),
        *_pixi_sources(table_in(tool, "pixi")),
        *_hatch_variables(table_in(tool, "hatch")),
    ]
    return [entry.setting(file) for entry in entries]


def tool_file_settings(document: Table, file: Path) -> list[SourceSetting]:
    """Return what one of ``TOOL_FILES`` says of sources."""
    read = TOOL_FILES[file.name]
    return [entry.setting(file) for entry in read(document)]


def configured_sources(uv: Table, file: Path) -> list[SourceSetting]:
    """Return the indexes and the other settings of ``[tool.uv]`` in a file that is not read as configuration."""
    entries = [Entry("uv", key, value) for key, value in uv_indexes(uv)]
    entries += [Entry(*setting) for setting in uv_settings(uv)]
    return [entry.setting(file) for entry in entries]


def easy_install(options: RawConfigParser, file: Path) -> Iterator[SourceSetting]:
    """Yield where a ``setup.cfg`` has setuptools look for packages."""
    if not options.has_section("easy_install"):
        return
    for name, value in options["easy_install"].items():
        option = name.replace("-", "_")
        key = f"[easy_install] {option}"
        values = []
        if option == "index_url":
            values = [value]
        elif option == "find_links":
            values = value.split()
        for each in values:
            entry = Entry("setuptools", key, each)
            yield entry.setting(file)


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


def _uv_sources(uv: Table, packages: Collection[str]) -> Entries:
    indexes = {}
    for row in uv.get("index", []):
        if "name" in row and index_key(row) in {"index", "index (default)"}:
            indexes[row["name"]] = row["url"]
    sources = uv.get("sources", {})
    for name, written in sources.items():
        package = normalised(name)
        source = written if isinstance(written, dict) else {}
        if _is_of_torch(package):
            yield Entry("uv", "sources of torch", package=package)
            continue
        # Also the index of a package that nothing requires: it may be requested by hand.
        index = indexes.get(source.get("index"))
        if {"marker", "extra"} & source.keys():
            index = None
        address = _first_of(source, _ADDRESSES)
        if index or address:
            yield from _first_entry(
                "uv",
                package,
                {"sources (index)": index, "sources (git, url, path)": address},
            )
        elif package in packages:
            yield Entry("uv", "sources (workspace)", package=package)


def _poetry_sources(poetry: Table) -> Entries:
    sources = poetry.get("source", [])
    addresses = {source["name"].lower(): source["url"] for source in sources if "url" in source}
    has_default = any(source["name"].lower() == "pypi" for source in sources)
    for source in sources:
        priority = source.get("priority", "primary")
        if "url" not in source or priority == "explicit":
            continue
        address = source["url"]
        key = "[[source]] (supplemental)"
        # The first primary source takes the place of the default index, unless that is listed too.
        is_primary = priority in {"primary", "default"}
        if is_primary and not (has_default or is_of_pytorch(address)):
            key = "[[source]] (primary)"
            has_default = True
        yield Entry("Poetry", key, address)
    for name, entry in poetry_entries(poetry):
        package = normalised(name)
        yield from _poetry_dependency(package, entry, addresses)


def _poetry_dependency(
    package: str,
    entry: Table,
    addresses: Mapping[str, str],
) -> Entries:
    source = entry.get("source", "").lower()
    if _is_of_torch(package):
        if source:
            yield Entry("Poetry", "source of torch", package=package)
        return
    address = _first_of(entry, _ADDRESSES)
    yield from _first_entry("Poetry", package, {"url, git, path of a dependency": address})
    if source != "pypi":
        yield from _first_entry(
            "Poetry",
            package,
            {
                "source of a dependency": addresses.get(source),
                "source that is not listed": source,
            },
        )


def _pdm_sources(pdm: Table) -> Entries:
    for source in pdm.get("source", []):
        has_packages = {"include_packages", "exclude_packages"} & source.keys()
        if has_packages and not is_of_pytorch(source["url"]):
            yield Entry("PDM", "include_packages, exclude_packages")
        else:
            is_default = source.get("name") == "pypi"
            yield _pdm_index(source, "[[source]] pypi" if is_default else "[[source]]")
    if _names_others(table_in(pdm, "resolution", "overrides")):
        yield Entry("PDM", "overrides")


def _pdm_configuration(document: Table) -> Entries:
    """Yield the indexes of a ``pdm.toml``, where PDM keeps a project's configuration."""
    pypi = document.get("pypi", {})
    if "url" in pypi:
        yield Entry("PDM", "pdm.toml: pypi.url", pypi["url"])
    for source in pypi.values():
        if isinstance(source, dict) and "url" in source:
            yield _pdm_index(source, "pdm.toml: pypi.NAME.url")


def _pdm_index(source: Table, key: str) -> Entry:
    if source.get("type") == "find_links":
        key = "[[source]] of find_links"
    return Entry("PDM", key, source["url"])


def _rye_sources(rye: Table) -> Entries:
    for source in rye.get("sources", []):
        key = "[[sources]]"
        if source.get("type") == "find-links":
            key = "[[sources]] of find-links"
        elif source.get("name") == "default":
            key = "[[sources]] default"
        yield Entry("Rye", key, source["url"])


def _pixi_sources(pixi: Table) -> Entries:
    """Yield what a ``pixi.toml``, or ``[tool.pixi]``, says of sources, with its features and platforms."""
    workspace = pixi.get("workspace", {})
    newest = _first_of(workspace, ("pypi-exclude-newer", "exclude-newer"))
    if newest:
        yield Entry("pixi", "exclude-newer", newest)
    for table in _pixi_tables(pixi):
        yield from _pixi_options(table.get("pypi-options", {}))
        dependencies = table.get("pypi-dependencies", {})
        for name, source in dependencies.items():
            package = normalised(name)
            if _is_of_torch(package) or not isinstance(source, dict):
                continue
            yield from _first_entry(
                "pixi",
                package,
                {
                    "pypi-dependencies (index)": source.get("index"),
                    "pypi-dependencies (git, url, path)": _first_of(source, _ADDRESSES),
                },
            )


def _pixi_tables(table: Table) -> Iterator[Table]:
    yield table
    for kind in ("feature", "target"):
        parts = table.get(kind, {})
        for part in parts.values():
            yield from _pixi_tables(part)


def _pixi_options(options: Table) -> Entries:
    for key, written in options.items():
        if not is_known("pixi", key) or written in (False, "first-index"):
            continue
        if key == "dependency-overrides":
            if _names_others(written):
                yield Entry("pixi", key)
            continue
        if key == "find-links":
            values = [link.get("url") or link["path"] for link in written]
        elif written is True:
            values = [":all:"]
        else:
            values = written if isinstance(written, list) else [written]
        for value in values:
            yield Entry("pixi", key, value)


def _pipenv_sources(pipfile: Table) -> Entries:
    """Yield what a ``Pipfile`` says of sources: the first one is the default index, the others serve who names them."""
    sources = pipfile.get("source", [])
    options = pipfile.get("pipenv", {})
    if not options.get("install_search_all_sources"):
        sources = sources[:1]
    key = "[[source]] (the first)"
    for source in sources:
        yield Entry("Pipenv", key, source["url"])
        key = "[[source]] (install_search_all_sources)"
    addresses = {source["name"]: source["url"] for source in pipfile.get("source", [])}
    for title, table in pipfile.items():
        if title in _PIPENV_TABLES:
            continue
        for name, entry in table.items():
            if isinstance(entry, dict):
                yield from _pipenv_package(normalised(name), entry, addresses)


def _pipenv_package(
    package: str,
    entry: Table,
    addresses: Mapping[str, str],
) -> Entries:
    index = entry.get("index", "")
    if _is_of_torch(package):
        if index:
            yield Entry("Pipenv", "index of torch", package=package)
        return
    yield from _first_entry(
        "Pipenv",
        package,
        {
            "index of a package": addresses.get(index),
            "index that is not listed": index,
            "git, file, path of a package": _first_of(entry, PIPENV_ADDRESSES),
        },
    )


def _hatch_variables(hatch: Table) -> Entries:
    """Yield what the variables of Hatch's environments say to pip and uv."""
    environments = hatch.get("envs", {})
    for environment in environments.values():
        variables = environment.get("env-vars", {})
        for name, value in variables.items():
            yield from _variable_entries(name, value)


def _variable_entries(name: str, value: str) -> Entries:
    """Yield what one variable says to pip or uv, if anything."""
    tool, _, rest = name.lower().partition("_")
    key = rest.replace("_", "-")
    if tool == "pip":
        key = f"--{key}"
    key = _VARIABLE_KEYS.get(f"{tool} {key}", key)
    if not is_known(tool, key) or value.lower() in _OFF:
        return
    values = [value]
    if key.endswith("find-links"):
        values = re.split(r"[\s,]+", value)
    elif key in _SEVERAL_ADDRESSES:
        # uv takes NAME=ADDRESS.
        values = [re.sub(r"^[\w.-]+=", "", address) for address in value.split()]
    for each in values:
        yield Entry(tool, key, each)


def _first_entry(tool: str, package: str, values: Table) -> Entries:
    """Yield the first of these settings of a package that has a value."""
    for key, value in values.items():
        if value:
            yield Entry(tool, key, value, package)
            return


def _first_of(table: Table, keys: Iterable[str]) -> str:
    """Return the value of the first of the keys that is there; empty without any."""
    return next((str(table[key]) for key in keys if key in table), "")


def _is_of_torch(package: str) -> bool:
    """Whether a package comes with torch's build, whose source is chosen with it."""
    return package in load_catalog().family


def _names_others(packages: Iterable[str]) -> bool:
    """Whether some of these packages do not come with torch's build."""
    return not all(_is_of_torch(normalised(name)) for name in packages)


TOOL_FILES = {
    "pdm.toml": _pdm_configuration,
    "hatch.toml": _hatch_variables,
    "pixi.toml": _pixi_sources,
    "Pipfile": _pipenv_sources,
}
"""The tools' own files beside a project, with what reads them."""
