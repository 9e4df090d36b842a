"""What no catalogue says yet and a wheel says itself: read in parts, judged by the same rules, and kept."""

from gpuinstall.learned.catalog import known_catalog, learned_catalog
from gpuinstall.learned.reader import Reader
from gpuinstall.learned.row import LearnedRow
from gpuinstall.learned.store import LearnedStore, learned_store

__all__ = ["LearnedRow", "LearnedStore", "Reader", "known_catalog", "learned_catalog", "learned_store"]
