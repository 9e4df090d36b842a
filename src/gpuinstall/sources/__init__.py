"""Where packages come from: indexes, find-links folders, certificates, and who chose them.

``read_sources`` reads the settings of pip, uv, conda and ours into ``Sources``; a ``Session`` is their
one client for a run. A setting that cannot be obeyed is refused by name (``provenance.py``).
"""

from gpuinstall.sources.sources import OFFICIAL, Sources, read_sources

__all__ = ["OFFICIAL", "Sources", "read_sources"]
