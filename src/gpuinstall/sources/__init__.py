"""Package sources: indexes, find-links, certificates, and their settings.

``read_sources`` reads the settings of pip, uv, conda, and gpuinstall. The result has
``Addresses`` (who serves a package), uv's settings, ``Credentials`` (logins and
certificates), and a ``Policy`` (what a folder may select). A ``Session`` has the
clients of one run. An unsupported setting is an error (``provenance.py``).
"""

from gpuinstall.sources.addresses import OFFICIAL
from gpuinstall.sources.sources import Sources, read_sources

__all__ = ["OFFICIAL", "Sources", "read_sources"]
