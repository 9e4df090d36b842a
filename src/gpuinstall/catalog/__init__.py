"""Which builds exist and what they need: authored rows, each with its source and date."""

from gpuinstall.catalog.catalog import DEFAULT_INDEX, Build, Catalog, Wheel
from gpuinstall.catalog.loader import load_catalog

__all__ = ["DEFAULT_INDEX", "Build", "Catalog", "Wheel", "load_catalog"]
