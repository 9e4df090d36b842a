"""The web: one client, hosts that do not answer remembered, pages kept."""

from gpuinstall.web.answers import UnreachableError
from gpuinstall.web.client import Client, Head, Page

__all__ = ["Client", "Head", "Page", "UnreachableError"]
