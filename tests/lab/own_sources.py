"""Sources from environment variables and the user's uv configuration."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpuinstall import sources as package
from gpuinstall.base.values import replace
from gpuinstall.sources import Sources
from gpuinstall.sources.configuration import parse_uv_settings

HOME = ("HOME", "USERPROFILE")


def naming(
    *rows: tuple[str, object], sources: Sources | None = None, **more: Any
) -> Sources:
    """Return the sources from uv settings with these keys and values."""
    sources = sources or Sources(**more)
    for key, value in rows:
        settings = parse_uv_settings({key: value}, Path("uv.toml"))
        own = [replace(setting, is_own=True) for setting in settings]
        sources = sources.add_settings(own)
    return sources


def uv_settings(sources: Sources) -> dict[str, Any]:
    """Return uv's settings for all sources except the default index."""
    return sources.uv.resolver_keys | sources.addresses.uv_rows


@contextmanager
def only_variables(environ: Mapping[str, str]) -> Iterator[None]:
    """Replace the environment variables, except the home, in a block."""
    before = dict(os.environ)
    home = {name: before[name] for name in HOME if name in before}
    os.environ.clear()
    os.environ.update({**home, **environ})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def read_sources(
    torch_index: str | None, environ: Mapping[str, str], folder: Path, **options: Any
) -> Sources:
    """Read the sources of a folder with only these environment variables."""
    with only_variables(environ):
        return package.read_sources(torch_index, folder, **options)
