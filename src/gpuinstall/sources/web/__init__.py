"""The web: one client, hosts that do not answer remembered, pages kept."""

from gpuinstall.sources.web.client import Client, Head, Page, UnreachableError

__all__ = ["Client", "Head", "Page", "UnreachableError"]
