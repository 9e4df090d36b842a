"""What the tools of a project say of sources: uv's, Poetry's and PDM's tables of pyproject.toml, uv's of a script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuinstall.plan.requirement import normalised
from gpuinstall.provenance import SourceSetting, index_key, is_of_pytorch, source_setting, uv_indexes, uv_settings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
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


def configured_sources(uv: Mapping[str, Any], file: Path) -> Iterator[SourceSetting]:
    """Yield the indexes and the other settings of ``[tool.uv]`` in a file that is not read as configuration."""
    for key, value in uv_indexes(uv):
        is_path = key == "find-links" and "://" not in value
        yield source_setting("uv", key, str(file.parent.absolute() / value) if is_path else value, file)
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
            yield source_setting("uv", "sources (index)", addresses[source["index"]], file, package=package)
        elif package in names and not {"git", "url", "path"} & source.keys():  # an address is part of the requirement
            yield source_setting("uv", "sources (workspace)", "", file, package=package)


def _poetry_sources(poetry: Mapping[str, Any], file: Path, family: Collection[str]) -> Iterator[SourceSetting]:
    sources = poetry.get("source", [])
    addresses = {source["name"].lower(): source["url"] for source in sources if "url" in source}
    implicit = any(source["name"].lower() == "pypi" for source in sources)
    for source in (source for source in sources if "url" in source):
        priority = source.get("priority", "primary")
        if priority == "explicit":
            continue
        # The first primary source takes the place of the default index, unless that is listed too.
        is_first = priority in {"primary", "default"} and not implicit and not is_of_pytorch(source["url"])
        implicit = implicit or is_first
        key = "[[source]] (primary)" if is_first else "[[source]] (supplemental)"
        yield source_setting("Poetry", key, source["url"], file)
    for name, entry in poetry_entries(poetry):
        if "source" not in entry:
            continue
        package, source_name = normalised(name), entry["source"].lower()
        if package in family:
            yield source_setting("Poetry", "source of torch", "", file, package=package)
        elif source_name in addresses:
            yield source_setting("Poetry", "source of a dependency", addresses[source_name], file, package=package)
        elif source_name != "pypi":
            yield source_setting("Poetry", "source that is not listed", source_name, file, package=package)


def _pdm_sources(pdm: Mapping[str, Any], file: Path, family: Collection[str]) -> Iterator[SourceSetting]:
    for source in pdm.get("source", []):
        if {"include_packages", "exclude_packages"} & source.keys() and not is_of_pytorch(source["url"]):
            yield source_setting("PDM", "include_packages, exclude_packages", "", file)
        elif source.get("type") == "find_links":
            yield source_setting("PDM", "[[source]] of find_links", source["url"], file)
        else:
            key = "[[source]] pypi" if source.get("name") == "pypi" else "[[source]]"
            yield source_setting("PDM", key, source["url"], file)
    overrides = pdm.get("resolution", {}).get("overrides", {})
    if {normalised(name) for name in overrides} - set(family):
        yield source_setting("PDM", "overrides", "", file)
