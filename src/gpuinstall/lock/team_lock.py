"""The lock that the tool of a project keeps, of uv or Poetry: versions that are preferred, and sources."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import parse_toml
from gpuinstall.base.requirement import normalised
from gpuinstall.catalog.loader import load_catalog
from gpuinstall.lock.project_sources import MALFORMED_TABLE
from gpuinstall.sources.provenance import TEAM_LOCK, SourceSetting, source_setting
from gpuinstall.sources.requirements_file import read_listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gpuinstall.lock.project_sources import Table

_LOCKS = ("uv.lock", "poetry.lock")


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

    from gpuinstall.catalog.extensions import load_extensions  # which takes long to load

    name = normalised(row["name"])
    setting = partial(source_setting, TEAM_LOCK, file=path)
    if load_catalog().is_tied(name) or name in load_extensions().rows:
        yield setting("files of torch", "")
        return
    files = [*row.get("files", ()), *row.get("wheels", ()), row.get("sdist") or {}]
    hashes = {file["hash"] for file in files if file.get("hash", "").startswith("sha256:")}
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
