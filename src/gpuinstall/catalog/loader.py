"""The authored files, read into a Catalog."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from gpuinstall.catalog.catalog import Catalog, Release
from gpuinstall.catalog.drivers import parse_drivers
from gpuinstall.catalog.rows import Rows

if TYPE_CHECKING:
    from packaging.version import Version


@cache
def load_catalog() -> Catalog:
    """Load the catalogue as shipped."""
    return parse_catalog(read_data("builds.toml"), read_data("drivers.toml"))


def read_data(name: str) -> dict[str, Any]:
    """Read one authored file."""
    from pathlib import Path

    import tomli

    return tomli.loads(Path(__file__).with_name("data").joinpath(name).read_text("utf-8"))


def parse_catalog(builds: dict[str, Any], drivers: dict[str, Any]) -> Catalog:
    """Make the catalogue of the two authored tables."""
    rows = Rows(builds, drivers["cudnn"])
    return Catalog(
        date=builds["date"],
        torch_index=builds["torch_index"],
        builds=tuple(rows.builds()),
        releases={version: _release(rows.releases[torch], version) for torch, version in rows.versions.items()},
        drivers=parse_drivers(drivers),
        family=frozenset(builds["family"]),
        backend_bound={
            (row["package"], row["version"]): frozenset(row["backends"].split()) for row in builds["backend_bound"]
        },
        last_pythons={(row["package"], row["version"]): row["python"] for row in builds["last_pythons"]},
        settled_python=builds["settled_python"]["version"],
        evidence={key: (row["source"], row["date"]) for key, row in builds["evidence"].items()},
    )


def _release(row: dict[str, Any], torch: Version) -> Release:
    return Release(
        torch=torch,
        released=row["released"],
        torchvision=tuple(row["torchvision"].split()),
        torchaudio=tuple(row["torchaudio"].split()),
        triton=row.get("triton"),
    )
