"""What earlier runs have learned: rows of this user, a small TOML file each, to be read and removed by anyone.

And the catalogue with them; quick, for those who ask nobody.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

from gpuinstall.catalog import Build, Catalog, Wheel, load_catalog
from gpuinstall.errors import InstallationError
from gpuinstall.files import own_cache_folder, read_document, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpuinstall.learned.row import LearnedRow


def learned_store() -> LearnedStore:
    """This user's own."""
    return LearnedStore(own_cache_folder() / "learned")


def known_catalog(torch_index: str | None = None, store: LearnedStore | None = None) -> Catalog:
    """Load the catalogue as shipped, with what earlier runs learned: from ``torch_index``, or from anywhere."""
    catalog = load_catalog()
    shipped = {(build.torch, build.backend, build.os, build.arch) for build in catalog.builds}
    rows = sorted((store or learned_store()).builds(), key=lambda row: row.learned, reverse=True)
    new: dict[object, Build] = {}
    for row in rows:
        build = row.build()
        key = build.torch, build.backend, build.os, build.arch
        if key not in shipped and torch_index in {None, row.base or torch_index}:
            new.setdefault(key, build)
    return replace(catalog, builds=(*catalog.builds, *new.values())) if new else catalog


@dataclass(frozen=True)
class LearnedStore:
    """Rows by the hash of their files, or by address where the index gives no hash; those of torch lie apart.

    A store that cannot be read or written is no fault.
    """

    folder: Path

    def builds(self) -> Iterator[LearnedRow]:
        """Give every row of torch."""
        return self._rows(self.folder / "builds")

    def companions(self) -> Iterator[LearnedRow]:
        """Give every row of another package."""
        return self._rows(self.folder / "companions")

    def known(self, wheel: Wheel, backend: str) -> LearnedRow | None:
        """Remember what a wheel said beside the torch of ``backend``."""
        row = self._read(self._file(wheel, backend))
        same = row and (row.sha256 or row.url) == (wheel.sha256 or wheel.url)
        return row if same else None

    def keep(self, row: LearnedRow, wheel: Wheel, backend: str) -> None:
        """Keep a row for the next run."""
        with suppress(InstallationError):
            write_atomically(self._file(wheel, backend), row.render())

    def _rows(self, folder: Path) -> Iterator[LearnedRow]:
        with suppress(OSError):
            for file in sorted(folder.glob("*.toml")):
                if row := self._read(file):
                    yield row

    def _read(self, file: Path) -> LearnedRow | None:
        with suppress(OSError, ValueError, TypeError):
            text = read_document(file)
            from gpuinstall.learned.row import LearnedRow

            return LearnedRow.parse(text)
        return None

    def _file(self, wheel: Wheel, backend: str) -> Path:
        """Name a row so that a person finds it, and no two wheels share one."""
        import hashlib

        key = hashlib.sha256((wheel.sha256 or wheel.url).encode()).hexdigest()[:16]
        folder = "builds" if wheel.package == "torch" else "companions"
        return self.folder / folder / f"{wheel.package}-{wheel.version.public}-{backend}-{key}.toml"


def holds(row: LearnedRow) -> bool:
    """Say whether a row needs no look at its file: it is of a hash, or a day old at most."""
    age = datetime.now(timezone.utc) - datetime.fromisoformat(row.learned)
    return row.sha256 is not None or timedelta(0) <= age < timedelta(days=1)


def now() -> str:
    """The time, as rows write it."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
