"""What the tags of a wheel say in our words: its platforms, its Python, its glibc."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from packaging.tags import Tag

_LEGACY_GLIBC = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}
_WINDOWS = {"win_amd64": "x86_64", "win_arm64": "arm64"}


def platforms(tags: Iterable[Tag]) -> frozenset[tuple[str, str]]:
    """The (os, arch) pairs that a wheel is for."""
    found = (_platform(tag.platform) for tag in tags)
    return frozenset(pair for pair in found if pair is not None)


def python(tags: Iterable[Tag]) -> str | None:
    """The CPython that a wheel is for, ``X.Y`` or, free-threaded, ``X.Yt``; None where it is not for one alone."""
    names = {_python(tag) for tag in tags}
    return names.pop() if len(names) == 1 else None


def glibc_floor(tags: Iterable[Tag]) -> str | None:
    """The oldest glibc that a wheel's platform tags promise, None where they promise nothing."""
    floors = [floor for tag in tags if (floor := _glibc(tag.platform)) is not None]
    return min(floors, key=lambda floor: [int(part) for part in floor.split(".")], default=None)


def _platform(tag: str) -> tuple[str, str] | None:
    if tag in _WINDOWS:
        return "windows", _WINDOWS[tag]
    if match := re.fullmatch(r"(?:linux|manylinux[0-9_]*)_(x86_64|aarch64)", tag):
        return "linux", match[1]
    if match := re.fullmatch(r"macosx_[0-9]+_[0-9]+_(x86_64|arm64)", tag):
        return "macos", match[1]
    return None


def _python(tag: Tag) -> str | None:
    match = re.fullmatch(r"cp3([0-9]+)", tag.interpreter)
    if match is None or tag.abi == "abi3":
        return None
    return f"3.{match[1]}{'t' if tag.abi.endswith('t') else ''}"


def _glibc(tag: str) -> str | None:
    if match := re.match(r"manylinux_([0-9]+)_([0-9]+)_", tag):
        return f"{match[1]}.{match[2]}"
    return _LEGACY_GLIBC.get(tag.partition("_")[0])
