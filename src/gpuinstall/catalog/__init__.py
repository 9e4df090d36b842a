"""Which builds exist and what they need: authored rows, each with its source and date.

``load_catalog`` reads them; ``listing.py`` keeps what the sources list today. Extensions, the drivers
and chips of each maker, the failures of ``explain`` and the pages of an index are read here too.
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
