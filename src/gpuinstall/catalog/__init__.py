"""Which builds exist and what they need: authored data, with the source and the date of every row."""

from gpuinstall.catalog.catalog import DEFAULT_INDEX, Build, Catalog, Wheel
from gpuinstall.catalog.loader import load_catalog

__all__ = ["DEFAULT_INDEX", "Build", "Catalog", "Wheel", "load_catalog"]
