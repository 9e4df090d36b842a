"""A frozen catalog for tests that expect certain versions.

``differences.toml`` contains the differences from the shipped catalog, whose later releases
and drivers are ignored. ``python tests/frozen …`` runs gpuinstall with this catalog.
"""

import sys
from functools import cache
from pathlib import Path
from typing import Any

import tomli
from packaging.version import Version

from gpuinstall.base.versions import Backend
from gpuinstall.catalog import Catalog, data_files
from gpuinstall.catalog.drivers import parse_drivers
from gpuinstall.catalog.loader import OTHER_KINDS, parse_catalog

FOLDER = Path(__file__).resolve().parent
GPUINSTALL = (sys.executable, str(FOLDER))
"""The gpuinstall command line with this catalog, in a separate process."""
shipped = data_files.read_data
DIFFERENCES: dict[str, Any] = tomli.loads(
    (FOLDER / "differences.toml").read_text("utf-8")
)


@cache
def read_frozen(name: str) -> dict[str, Any]:
    """Read a catalog file without later rows than the frozen ones."""
    freeze_rows = {"builds.toml": _freeze_builds, "drivers.toml": _freeze_drivers}
    freeze_rows |= {f"{vendor}.toml": _freeze_vendor for vendor in OTHER_KINDS.values()}
    return freeze_rows.get(name, dict)(shipped(name))


def _freeze_vendor(table: dict[str, Any]) -> dict[str, Any]:
    last = Version(DIFFERENCES["last_release"])
    builds = [row for row in table["builds"] if Version(row["torch"]) <= last]
    return {**table, "builds": builds}


def _freeze_builds(table: dict[str, Any]) -> dict[str, Any]:
    omitted = set(DIFFERENCES["omitted_releases"])
    last = Version(DIFFERENCES["last_release"])
    known = [row["torch"] for row in table["releases"] if row["torch"] not in omitted]
    torches = [torch for torch in known if Version(torch) <= last]
    releases = [
        row
        for row in _replace_rows("releases", "torch", table)
        if row["torch"] in torches
    ]
    frozen = {**table, "date": DIFFERENCES["date"], "releases": releases}
    majors = {row["cuda"] for row in read_frozen("drivers.toml")["floors"]}
    frozen["builds"] = [
        row
        for row in table["builds"]
        if row["torch"] in torches
        and Version(str(Backend.parse(row["tag"]).version)).major in majors
        and f"{row['torch']}+{row['tag']}" not in DIFFERENCES["omitted_builds"]
    ]
    frozen["companions"] = _freeze_companions(table["companions"], releases[-1])
    for name in ("cpu", "glibc", "macos"):
        frozen[name] = []
        for row in table[name]:
            first = Version(row.get("first", torches[0]))
            following = next(one for one in torches if Version(one) >= first)
            frozen[name].append(row | {"first": following} if "first" in row else row)
    return frozen


def _freeze_companions(
    rows: list[dict[str, Any]], last: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the rows of companions up to the last release."""
    own = DIFFERENCES["companions"]
    replaced = {(row["package"], one) for row in own for one in row["versions"].split()}
    frozen = []
    for row in rows:
        package = row["package"]
        newest = max(map(Version, last[package].lstrip("=~").split()))
        versions = [
            one
            for one in row["versions"].split()
            if (package, one) not in replaced and Version(one) <= newest
        ]
        if versions:
            frozen.append({**row, "versions": " ".join(versions)})
    return [*frozen, *own]


def _freeze_drivers(table: dict[str, Any]) -> dict[str, Any]:
    last = DIFFERENCES["last_branch"]
    frozen = {**table, "tegra": _replace_rows("tegra", "capability", table)}
    frozen["branches"] = [row for row in table["branches"] if row["branch"] <= last]
    rows = {
        "floors": table["floors"],
        "first_drivers": _replace_rows("first_drivers", "capability", table),
    }
    for name, own in rows.items():
        frozen[name] = [row for row in own if Version(row["linux"]).major <= last]
    return frozen


def _replace_rows(name: str, key: str, table: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a list, with the differences of the same keys."""
    changed = {row[key]: row for row in DIFFERENCES[name]}
    return [changed.get(row[key], row) for row in table[name]]


@cache
def frozen_catalog() -> Catalog:
    """Load the frozen catalog."""
    return parse_catalog(
        read_frozen("builds.toml"), parse_drivers(read_frozen("drivers.toml"))
    )


def freeze() -> None:
    """Make ``load_catalog`` return the frozen catalog in this process."""
    data_files.read_data = read_frozen
