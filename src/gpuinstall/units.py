"""Numbers as people write them."""

from __future__ import annotations


def readable(size: int) -> str:
    """Write a number of bytes as people do: ``2.9 GB``."""
    if size < 1e6:
        return f"{size / 1e3:.0f} kB"
    return f"{size / 1e6:.0f} MB" if size < 1e9 else f"{size / 1e9:.1f} GB"
