"""Tables of builds, drivers, chips, extensions, and failures, and index pages.

Each row of the TOML files in ``data`` has a source and a date.
"""

from gpuinstall.catalog.catalog import (
    COMPANIONS,
    DEFAULT_INDEX,
    PAIRED,
    Build,
    Catalog,
    Wheel,
)
from gpuinstall.catalog.loader import load_catalog

__all__ = [
    "COMPANIONS",
    "DEFAULT_INDEX",
    "PAIRED",
    "Build",
    "Catalog",
    "Wheel",
    "load_catalog",
]
