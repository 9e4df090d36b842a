"""The private project that uv resolves: a pyproject.toml, and one page of wheels for each package of the family.

uv takes a package from a named index only where the project names it itself, so every member of the family that
turns up in the resolution is named. Everything that is not named comes from the default index.
"""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import tomli_w
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from gpuinstall.catalog.pages import Wheel

UNKNOWN = "0" * 64
"""Stands for a hash that the index does not give: with it uv resolves without fetching the wheel."""


PREFERRED = "pylock.preferred.toml"
"""The lock that uv finds where it is to write one, and stays close to."""


@dataclass(frozen=True)
class Project:
    """What is asked for, for Python ``X.Y``, and the wheels that each named package may come from.

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
        for package, wheels in self.pages.items():
            place = folder / "family" / package
            place.mkdir(parents=True, exist_ok=True)
            (place / "index.html").write_text(page(wheels), encoding="utf-8")
        (folder / "constraints.txt").write_text("\n".join(self.constraints), encoding="utf-8")
        (folder / PREFERRED).write_text(preferences(self.preferred), encoding="utf-8")
        (folder / "pyproject.toml").write_text(self.document((folder / "family").as_uri()), encoding="utf-8")

    def document(self, index: str) -> str:
        """The text of pyproject.toml, with the pages below the address ``index``."""
        asked = {canonicalize_name(Requirement(text).name) for text in self.requirements}
        named = [package for package in sorted(self.pages) if package not in asked]
        return tomli_w.dumps(
            {
                "project": {
                    "name": "the-request",
                    "version": "0",
                    "requires-python": f"=={self.python}.*",
                    "dependencies": [*self.requirements, *named],
                },
                "tool": {
                    "uv": {
                        "sources": {package: {"index": "family"} for package in sorted(self.pages)},
                        "index": [{"name": "family", "url": index, "explicit": True}],
                    }
                },
            }
        )


def preferences(versions: Mapping[str, str]) -> str:
    """Write versions as a lock."""
    packages = [{"name": name, "version": version} for name, version in sorted(versions.items())]
    return tomli_w.dumps({"lock-version": "1.0", "created-by": "gpuinstall", "packages": packages})


def page(wheels: Iterable[Wheel]) -> str:
    """Write a simple-index page with absolute addresses."""
    return "<!DOCTYPE html><html><body>\n" + "".join(_link(wheel) for wheel in wheels) + "</body></html>\n"


def _link(wheel: Wheel) -> str:
    href = html.escape(f"{wheel.url.partition('#')[0]}#sha256={wheel.sha256 or UNKNOWN}")
    return f'<a href="{href}"{_metadata(wheel)}>{html.escape(wheel.filename)}</a><br>\n'


def _metadata(wheel: Wheel) -> str:
    if not wheel.metadata:
        return ""
    known = f"sha256={wheel.metadata_sha256}" if wheel.metadata_sha256 else "true"
    return f' data-core-metadata="{known}"'
