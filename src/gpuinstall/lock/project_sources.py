"""What the tools of a project say of sources, in pyproject.toml, in files of their own and in a script's block."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gpuinstall.plan.requirement import normalised
from gpuinstall.provenance import (
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


def project_settings(
    tool: Mapping[str, Any], file: Path, names: Collection[str], family: Collection[str]
) -> Iterator[SourceSetting]:
    """Yield what ``[tool]`` says of sources; uv's own indexes are read with its other configuration.

    Args:
        tool: The table.
        file: Where it stands.
        names: The packages that the project requires.
        family: The packages that come with torch's build.
    """
    yield from _uv_sources(tool.get("uv", {}), file, names, family)
    yield from _poetry_sources(tool.get("poetry", {}), file, family)
    yield from _pdm_sources(tool.get("pdm", {}), file, family)
    yield from _rye_sources(tool.get("rye", {}), file)
    yield from pixi_sources(tool.get("pixi", {}), file, family)
    yield from hatch_variables(tool.get("hatch", {}), file)


def pdm_configuration(document: Mapping[str, Any], file: Path) -> Iterator[SourceSetting]:
    """Yield the indexes of a ``pdm.toml``, where PDM keeps a project's configuration."""
    pypi = document.get("pypi", {})
    if "url" in pypi:
        yield source_setting("PDM", "pdm.toml: pypi.url", pypi["url"], file)
    named = [source for source in pypi.values() if isinstance(source, dict) and "url" in source]
    for source in named:
        if source.get("type") == "find_links":
            yield source_setting("PDM", "[[source]] of find_links", source["url"], file)
        else:
            yield source_setting("PDM", "pdm.toml: pypi.NAME.url", source["url"], file)


def hatch_variables(hatch: Mapping[str, Any], file: Path) -> Iterator[SourceSetting]:
    """Yield what the variables of Hatch's environments say to pip and uv, from ``[tool.hatch]`` or a ``hatch.toml``."""
    for environment in hatch.get("envs", {}).values():
        for name, value in environment.get("env-vars", {}).items():
            yield from _variable_settings(name, value, file)


def easy_install(options: RawConfigParser, file: Path) -> Iterator[SourceSetting]:
    """Yield where a ``setup.cfg`` has setuptools look for packages."""
    if not options.has_section("easy_install"):
        return
    for name, value in options["easy_install"].items():
        key = name.replace("-", "_")
        if key == "index_url":
            yield source_setting("setuptools", "[easy_install] index_url", value, file)
        elif key == "find_links":
            for link in value.split():
                place = _located(link, file)
                yield source_setting("setuptools", "[easy_install] find_links", place, file)


def configured_sources(uv: Mapping[str, Any], file: Path) -> Iterator[SourceSetting]:
    """Yield the indexes and the other settings of ``[tool.uv]`` in a file that is not read as configuration."""
    for key, value in uv_indexes(uv):
        yield source_setting(
            "uv", key, _located(value, file) if key == "find-links" else value, file
        )
    for tool, key, value in uv_settings(uv):
        yield source_setting(tool, key, value, file)


def poetry_entries(poetry: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each dependency of Poetry's tables that is installed unasked, with every table that it has."""
    groups = [group for group in poetry.get("group", {}).values() if not group.get("optional")]
    for table in (poetry, {"dependencies": poetry.get("dev-dependencies", {})}, *groups):
        for name, written in table.get("dependencies", {}).items():
            for row in written if isinstance(written, list) else [written]:
                yield name, row if isinstance(row, dict) else {"version": row}


def _uv_sources(
    uv: Mapping[str, Any], file: Path, names: Collection[str], family: Collection[str]
) -> Iterator[SourceSetting]:
    addresses = {
        index["name"]: index["url"]
        for index in uv.get("index", [])
        if "name" in index and index_key(index) in {"index", "index (default)"}
    }
    for name, written in uv.get("sources", {}).items():
        package = normalised(name)
        source = written if isinstance(written, dict) else {}
        if package in family:
            yield source_setting("uv", "sources of torch", "", file, package=package)
        elif source.get("index") in addresses and not {"marker", "extra"} & source.keys():
            # Also of a package that nothing requires: it may be requested by hand.
            yield source_setting(
                "uv", "sources (index)", addresses[source["index"]], file, package=package
            )
        elif address := _first_of(source, ("git", "url", "path")):
            yield source_setting("uv", "sources (git, url, path)", address, file, package=package)
        elif package in names:
            yield source_setting("uv", "sources (workspace)", "", file, package=package)


def _poetry_sources(
    poetry: Mapping[str, Any], file: Path, family: Collection[str]
) -> Iterator[SourceSetting]:
    sources = poetry.get("source", [])
    addresses = {source["name"].lower(): source["url"] for source in sources if "url" in source}
    implicit = any(source["name"].lower() == "pypi" for source in sources)
    for source in (source for source in sources if "url" in source):
        priority = source.get("priority", "primary")
        if priority == "explicit":
            continue
        # The first primary source takes the place of the default index, unless that is listed too.
        is_first = (
            priority in {"primary", "default"} and not implicit and not is_of_pytorch(source["url"])
        )
        implicit = implicit or is_first
        key = "[[source]] (primary)" if is_first else "[[source]] (supplemental)"
        yield source_setting("Poetry", key, source["url"], file)
    for name, entry in poetry_entries(poetry):
        package, source_name = normalised(name), entry.get("source", "").lower()
        address = _first_of(entry, ("git", "url", "path", "file"))
        if address and package not in family:
            yield source_setting(
                "Poetry", "url, git, path of a dependency", address, file, package=package
            )
        if not source_name:
            continue
        if package in family:
            yield source_setting("Poetry", "source of torch", "", file, package=package)
        elif source_name in addresses:
            yield source_setting(
                "Poetry", "source of a dependency", addresses[source_name], file, package=package
            )
        elif source_name != "pypi":
            yield source_setting(
                "Poetry", "source that is not listed", source_name, file, package=package
            )


def _pdm_sources(
    pdm: Mapping[str, Any], file: Path, family: Collection[str]
) -> Iterator[SourceSetting]:
    for source in pdm.get("source", []):
        if {"include_packages", "exclude_packages"} & source.keys() and not is_of_pytorch(
            source["url"]
        ):
            yield source_setting("PDM", "include_packages, exclude_packages", "", file)
        elif source.get("type") == "find_links":
            yield source_setting("PDM", "[[source]] of find_links", source["url"], file)
        else:
            key = "[[source]] pypi" if source.get("name") == "pypi" else "[[source]]"
            yield source_setting("PDM", key, source["url"], file)
    overrides = pdm.get("resolution", {}).get("overrides", {})
    if {normalised(name) for name in overrides} - set(family):
        yield source_setting("PDM", "overrides", "", file)


def _rye_sources(rye: Mapping[str, Any], file: Path) -> Iterator[SourceSetting]:
    for source in rye.get("sources", []):
        if source.get("type") == "find-links":
            yield source_setting(
                "Rye", "[[sources]] of find-links", _located(source["url"], file), file
            )
        else:
            key = "[[sources]] default" if source.get("name") == "default" else "[[sources]]"
            yield source_setting("Rye", key, source["url"], file)


def pixi_sources(
    pixi: Mapping[str, Any], file: Path, family: Collection[str]
) -> Iterator[SourceSetting]:
    """Yield what a ``pixi.toml``, or ``[tool.pixi]``, says of sources, with its features and platforms."""
    workspace = pixi.get("workspace", {})
    if newest := _first_of(workspace, ("pypi-exclude-newer", "exclude-newer")):
        yield source_setting("pixi", "exclude-newer", newest, file)
    for table in _pixi_tables(pixi):
        options = table.get("pypi-options", {})
        yield from _pixi_options(options, file)
        if {normalised(name) for name in options.get("dependency-overrides", {})} - set(family):
            yield source_setting("pixi", "dependency-overrides", "", file)
        for name, source in table.get("pypi-dependencies", {}).items():
            package = normalised(name)
            if not isinstance(source, dict) or package in family:
                continue
            address = _first_of(source, ("git", "url", "path"))
            if "index" in source:
                yield source_setting(
                    "pixi", "pypi-dependencies (index)", source["index"], file, package=package
                )
            elif address:
                yield source_setting(
                    "pixi", "pypi-dependencies (git, url, path)", address, file, package=package
                )


def _pixi_tables(table: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield table
    for kind in ("feature", "target"):
        for part in table.get(kind, {}).values():
            yield from _pixi_tables(part)


def _pixi_options(options: Mapping[str, Any], file: Path) -> Iterator[SourceSetting]:
    for key, written in options.items():
        if (
            not is_known("pixi", key)
            or key == "dependency-overrides"
            or written in (False, "first-index")
        ):
            continue
        if key == "find-links":
            values = [link.get("url") or _located(link["path"], file) for link in written]
        elif written is True:
            values = [":all:"]
        else:
            values = written if isinstance(written, list) else [written]
        for value in values:
            yield source_setting("pixi", key, value, file)


_PIPENV_TABLES = frozenset({"source", "requires", "scripts", "pipenv"})
"""The tables of a Pipfile that hold no packages."""


def pipenv_sources(
    pipfile: Mapping[str, Any], file: Path, family: Collection[str]
) -> Iterator[SourceSetting]:
    """Yield what a ``Pipfile`` says of sources: the first one is the default index, the others serve who names them."""
    first, *others = pipfile.get("source", []) or [None]
    if first:
        yield source_setting("Pipenv", "[[source]] (the first)", first["url"], file)
    if pipfile.get("pipenv", {}).get("install_search_all_sources"):
        for source in others:
            yield source_setting(
                "Pipenv", "[[source]] (install_search_all_sources)", source["url"], file
            )
    addresses = {source["name"]: source["url"] for source in pipfile.get("source", [])}
    tables = (table for name, table in pipfile.items() if name not in _PIPENV_TABLES)
    for table in tables:
        for name, entry in table.items():
            if isinstance(entry, dict):
                yield from _pipenv_package(normalised(name), entry, addresses, file, family)


def _pipenv_package(
    package: str,
    entry: Mapping[str, Any],
    addresses: Mapping[str, str],
    file: Path,
    family: Collection[str],
) -> Iterator[SourceSetting]:
    address = _first_of(entry, PIPENV_ADDRESSES)
    if package in family:
        if "index" in entry:
            yield source_setting("Pipenv", "index of torch", "", file, package=package)
    elif entry.get("index") in addresses:
        yield source_setting(
            "Pipenv", "index of a package", addresses[entry["index"]], file, package=package
        )
    elif "index" in entry:
        yield source_setting(
            "Pipenv", "index that is not listed", entry["index"], file, package=package
        )
    elif address:
        yield source_setting(
            "Pipenv", "git, file, path of a package", address, file, package=package
        )


PIPENV_ADDRESSES = ("git", "hg", "svn", "bzr", "file", "path")


def _first_of(table: Mapping[str, Any], keys: Iterable[str]) -> str:
    """Return the value of the first of the keys that is there; empty without any."""
    return next((str(table[key]) for key in keys if key in table), "")


_NAMES_OF_VARIABLES = {"uv default-index": "index (default)", "uv index": "index"}
"""The keys of uv's variables, if their names differ."""


def _variable_settings(name: str, value: str, file: Path) -> Iterator[SourceSetting]:
    """Yield what one variable says to pip or uv, if anything."""
    prefix, _, rest = name.partition("_")
    tool, option = prefix.lower(), rest.lower().replace("_", "-")
    key = f"--{option}" if tool == "pip" else _NAMES_OF_VARIABLES.get(f"{tool} {option}", option)
    if not is_known(tool, key) or value.lower() in {"", "0", "no", "off", "false"}:
        return
    if key.endswith("find-links"):
        for link in re.split(r"[\s,]+", value):
            yield source_setting(tool, key, _located(link, file), file)
    elif key in {"index", "extra-index-url", "--extra-index-url"}:
        for address in value.split():
            yield source_setting(tool, key, re.sub(r"^[\w.-]+=", "", address), file)
    else:
        yield source_setting(tool, key, value, file)


def _located(link: str, file: Path) -> str:
    """Return a link of ``file`` as an address, or as a path from the root."""
    return link if "://" in link else str(file.parent.absolute() / link)
