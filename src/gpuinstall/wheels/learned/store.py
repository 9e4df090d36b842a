"""Cache of inspection results from previous runs.

The facts about each wheel are a small file in the user's cache.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from os.path import isdir
from typing import TYPE_CHECKING

from gpuinstall.base.cache import JsonCache
from gpuinstall.base.files import own_cache_folder
from gpuinstall.base.values import Value, replace
from gpuinstall.catalog import Build, Catalog, Wheel, load_catalog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpuinstall.wheels.learned.row import WheelRow


def open_row_cache() -> RowCache:
    """Return the user's cache of inspected wheels."""
    return RowCache(own_cache_folder() / "learned")


def load_extended_catalog(
    torch_index: str | None = None,
    store: RowCache | None = None,
) -> Catalog:
    """Return the shipped catalog with the torch builds inspected earlier.

    Args:
        torch_index: The torch index that must list the wheels, or None for any index.
        store: The cache, by default the user's.
    """
    catalog = load_catalog()
    # Rows from the official index have priority.
    official = {None, catalog.torch_index}
    learned = (store or open_row_cache()).torch_rows()
    rows = [
        row for row in learned if torch_index is None or row.base in {None, torch_index}
    ]
    if not rows:
        return catalog
    rows.sort(key=lambda row: (row.base in official, row.learned), reverse=True)
    builds = {_key(build): build for build in catalog.builds}
    for row in rows:
        build = row.build()
        builds.setdefault(_key(build), build)
    return replace(catalog, builds=tuple(builds.values()))


def _key(build: Build) -> tuple[object, ...]:
    return build.torch, build.backend, build.platform


class RowCache(Value):
    """Cache of rows by the URLs of the wheels.

    The cache key is the URL instead of the hash, because an index page can claim any
    hash. Builds of torch have a separate folder.
    """

    folder: Path

    def torch_rows(self) -> Iterator[WheelRow]:
        """Yield the rows of all cached torch wheels."""
        if isdir(self.folder / "builds"):
            for row in self._open("torch").values():
                if row.has_current_rules:
                    yield row

    def get(self, wheel: Wheel, backend: str, depth: int) -> WheelRow | None:
        """Return the cached facts about a wheel, or None.

        Args:
            wheel: The wheel.
            backend: The tag of torch's backend, or ``any``.
            depth: The depth to which the wheel was read.
        """
        row = self._open(wheel.package).get(f"{wheel.url} {backend} {depth}")
        if row and row.has_current_rules and row.sha256 == wheel.sha256:
            return row if is_current(row) else None
        return None

    def put(self, row: WheelRow, wheel: Wheel, backend: str) -> None:
        """Cache the facts about a wheel for later runs."""
        self._open(wheel.package).put(f"{wheel.url} {backend} {row.depth}", row)

    def _open(self, package: str) -> JsonCache[WheelRow]:
        from gpuinstall.wheels.learned.row import WheelRow

        name = "builds" if package == "torch" else "companions"
        return JsonCache(self.folder / name, WheelRow)


def is_current(row: WheelRow) -> bool:
    """Return whether a cached row has a hash or is at most a day old."""
    if row.sha256 is not None:
        return True
    learned = datetime.fromisoformat(row.learned)
    age = datetime.now(timezone.utc) - learned
    return timedelta(0) <= age < timedelta(days=1)


def current_time() -> str:
    """Return the current UTC time in ISO format for a cached row."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
