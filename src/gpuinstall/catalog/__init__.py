"""Which builds exist and what they need: authored data, with the source and the date of every row."""

from gpuinstall.catalog.catalog import Catalog
from gpuinstall.catalog.loader import load_catalog

__all__ = ["Catalog", "load_catalog"]
