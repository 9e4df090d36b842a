"""Sources from the user's uv configuration."""

from pathlib import Path
from typing import Any

from gpuinstall.base.values import replace
from gpuinstall.sources import Sources
from gpuinstall.sources.provenance import create_setting


def naming(
    *rows: tuple[str, str], sources: Sources | None = None, **more: Any
) -> Sources:
    """Return the sources from uv settings with these keys and values."""
    sources = sources or Sources(**more)
    for key, value in rows:
        setting = create_setting("uv", key, value, Path("uv.toml"))
        sources = sources.add_setting(replace(setting, is_own=True))
    return sources
