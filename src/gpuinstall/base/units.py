"""Numbers and paths as people write them."""

from __future__ import annotations

from pathlib import Path


def readable(size: int) -> str:
    """Write a number of bytes as people do: ``2.9 GB``."""
    if size < 1e6:
        return f"{size / 1e3:.0f} kB"
    return f"{size / 1e6:.0f} MB" if size < 1e9 else f"{size / 1e9:.1f} GB"


def number_of(count: int, thing: str) -> str:
    """Write how many there are of something: ``1 package``, ``2 packages``."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def duration(seconds: float) -> str:
    """Write seconds as people do: ``4.1 s``, ``1 min 12 s``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def display_path(path: Path) -> str:
    """Write a path from the working folder or the home folder, if it lies below one of them."""
    for base, sign in ((Path.cwd(), ""), (Path.home(), "~/")):
        if path.is_relative_to(base) and path != base:
            return f"{sign}{path.relative_to(base)}"
    return str(path)
