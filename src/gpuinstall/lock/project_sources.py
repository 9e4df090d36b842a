"""What the tools of a project say of sources: uv's, Poetry's and PDM's tables of pyproject.toml, uv's of a script."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuinstall.plan.requirement import normalised
from gpuinstall.provenance import SourceSetting, is_of_pytorch, source_setting, uv_settings

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


def script_settings(uv: Mapping[str, Any], file: Path) -> Iterator[SourceSetting]:
    """Yield the indexes and the other settings of ``[tool.uv]`` in a script's block, which no configuration has."""
    for index in uv.get("index", []):
        if not index.get("explicit"):
            key = "index (default)" if index.get("default") else "index"
            yield source_setting("uv", key, index["url"], file)
    for key in ("index-url", "extra-index-url", "find-links"):
        values = uv.get(key, [])
        for value in [values] if isinstance(values, str) else values:
            is_path = key == "find-links" and "://" not in value
            yield source_setting("uv", key, str(file.parent.absolute() / value) if is_path else value, file)
    for tool, key, value in uv_settings(uv):
        yield source_setting(tool, key, value, file)


def _uv_sources(
    uv: Mapping[str, Any], file: Path, names: Collection[str], family: Collection[str]
) -> Iterator[SourceSetting]:
    addresses = {index["name"]: index["url"] for index in uv.get("index", []) if "name" in index}
    for name, source in uv.get("sources", {}).items():
        package = normalised(name)
        if package in family:
            yield source_setting("uv", "sources of torch", "", file, package=package)
        elif package not in names or (isinstance(source, dict) and {"git", "url", "path"} & source.keys()):
            continue  # uv reads no source of what nothing requires; an address is part of the requirement
        elif isinstance(source, dict) and source.get("index") in addresses and not {"marker", "extra"} & source.keys():
            yield source_setting("uv", "sources (index)", addresses[source["index"]], file, package=package)
        else:
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
    groups = [poetry, *poetry.get("group", {}).values()]
    for name, written in (item for group in groups for item in group.get("dependencies", {}).items()):
        rows = written if isinstance(written, list) else [written]
        for source_name in {row["source"].lower() for row in rows if isinstance(row, dict) and "source" in row}:
            package = normalised(name)
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
