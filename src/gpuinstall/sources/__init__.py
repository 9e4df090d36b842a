"""Where packages come from: the torch index, find-links folders, the default index, and the certificates to trust."""

from gpuinstall.sources.sources import OFFICIAL, Sources, read_sources

__all__ = ["OFFICIAL", "Sources", "read_sources"]
