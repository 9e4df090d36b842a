"""The private project that uv resolves: a pyproject.toml, and one page of wheels for each package of the family.

The pages are an index that uv asks first: what has a page comes from it alone, whoever demands it, and everything
else from the default index.
"""

from __future__ import annotations

import hashlib
import html
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import tomli_w

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from gpuinstall.catalog.pages import Wheel

_UNKNOWN = "0" * 32
"""Begins what stands for a hash."""

PREFERRED = "pylock.preferred.toml"
"""The lock that uv finds where it is to write one, and stays close to."""


@dataclass(frozen=True)
class Project:
    """What is asked for, for Python ``X.Y``, and the wheels that each package with a page may come from.

    ``constraints`` hold for the packages that turn up, and ask for none; ``preferred`` versions are taken where
    nothing stands against them.
    """

    requirements: tuple[str, ...]
    python: str
    pages: Mapping[str, tuple[Wheel, ...]]
    constraints: tuple[str, ...] = ()
    preferred: Mapping[str, str] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write the project and its pages into ``folder``."""
        (folder / "family").mkdir(exist_ok=True)
        for package, wheels in self.pages.items():
            place = folder / "family" / package
            place.mkdir(exist_ok=True)
            (place / "index.html").write_text(page(wheels), encoding="utf-8")
        (folder / "constraints.txt").write_text("\n".join(self.constraints), encoding="utf-8")
        (folder / PREFERRED).write_text(preferences(self.preferred), encoding="utf-8")
        (folder / "pyproject.toml").write_text(self.document, encoding="utf-8")

    @property
    def document(self) -> str:
        """The text of pyproject.toml."""
        project = {"name": "the-request", "version": "0", "requires-python": f"=={self.python}.*"}
        return tomli_w.dumps({"project": {**project, "dependencies": list(self.requirements)}})


def preferences(versions: Mapping[str, str]) -> str:
    """Write versions as a lock."""
    packages = [{"name": name, "version": version} for name, version in sorted(versions.items())]
    return tomli_w.dumps({"lock-version": "1.0", "created-by": "gpuinstall", "packages": packages})


def page(wheels: Iterable[Wheel]) -> str:
    """Write a simple-index page with absolute addresses."""
    return "<!DOCTYPE html><html><body>\n" + "".join(_link(wheel) for wheel in wheels) + "</body></html>\n"


def unknown(url: str) -> str:
    """What stands for a hash that the index does not give: with it uv resolves without fetching the wheel.

    It is each file's own: uv takes files of one hash for one file, and would read the metadata of only one of them.
    """
    return _UNKNOWN + hashlib.sha256(url.encode()).hexdigest()[len(_UNKNOWN) :]


def is_unknown(sha256: str) -> bool:
    """Say whether this only stands for a hash."""
    return sha256.startswith(_UNKNOWN)


def _link(wheel: Wheel) -> str:
    href = html.escape(f"{wheel.url.partition('#')[0]}#sha256={wheel.sha256 or unknown(wheel.url)}")
    return f'<a href="{href}"{_metadata(wheel)}>{html.escape(wheel.filename)}</a><br>\n'


def _metadata(wheel: Wheel) -> str:
    if not wheel.metadata:
        return ""
    known = f"sha256={wheel.metadata_sha256}" if wheel.metadata_sha256 else "true"
    return f' data-core-metadata="{known}"'
