"""The web: one client, hosts that do not answer remembered, pages kept."""

from gpuinstall.web.client import Client, Head
from gpuinstall.web.hosts import UnreachableError

__all__ = ["Client", "Head", "UnreachableError"]
