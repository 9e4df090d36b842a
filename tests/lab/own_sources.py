"""Sources from the user's uv configuration."""

from pathlib import Path
from typing import Any

from gpuinstall.base.values import replace
from gpuinstall.sources import Sources
from gpuinstall.sources.configuration import parse_uv_settings


def naming(
    *rows: tuple[str, object], sources: Sources | None = None, **more: Any
) -> Sources:
    """Return the sources from uv settings with these keys and values."""
    sources = sources or Sources(**more)
    for key, value in rows:
        settings = parse_uv_settings({key: value}, Path("uv.toml"), {})
        own = (replace(setting, is_own=True) for setting in settings)
        sources = sources.add_settings(own)
    return sources
