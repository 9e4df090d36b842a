"""What an environment holds, and what of it is the user's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path


def installed(venv: Path) -> dict[str, str]:
    """The version of each package in an environment."""
    return {canonicalize_name(name): version for name, version in _distributions(venv)}


def foreign(held: Mapping[str, str], locked: Mapping[str, str]) -> tuple[str, ...]:
    """Name the packages that a lock does not hold, or holds in another version."""
    return tuple(f"{name} {version}" for name, version in sorted(held.items()) if not _same(version, locked.get(name)))


def _same(version: str, locked: str | None) -> bool:
    try:
        return locked is not None and Version(version) == Version(locked)
    except InvalidVersion:
        return version == locked


def _distributions(venv: Path) -> Iterator[tuple[str, str]]:
    for pattern in ("lib/python*/site-packages", "Lib/site-packages"):
        for folder in venv.glob(pattern):
            for entry in (*folder.glob("*.dist-info"), *folder.glob("*.egg-info")):
                name, _, version = entry.stem.partition("-")
                yield name, version.partition("-py")[0]
