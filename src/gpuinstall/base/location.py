"""Normalize URLs and paths, so that different spellings are equal."""

from __future__ import annotations

import os
import posixpath
import sys
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import expand_home
from gpuinstall.base.requirement import find_url_fault
from gpuinstall.base.text import redact, shorten
from gpuinstall.base.values import Value

_PORTS = {"http": 80, "https": 443}


def file_path(path: str) -> str:
    """Convert the path part of a ``file:`` URL to a local path."""
    if sys.platform == "win32":
        # Slow to import: it loads clients for HTTP and TLS.
        from urllib.request import url2pathname

        return url2pathname(path)
    return unquote(path)


class Location(Value):
    """Normalized URL or path of a file, folder, or server."""

    server: str
    """The server: ``scheme://host:port``, or ``file://`` for local paths."""
    path: str
    """The path without ``..`` and without a trailing slash."""

    @classmethod
    def parse(cls, address: str, folder: Path | None = None) -> Location:
        """Parse a URL or path, and remove its login.

        Args:
            address: The URL or path.
            folder: The parent of a relative path. None: the working folder.

        Raises:
            UsageError: The URL is malformed.
        """
        fault = find_url_fault(address)
        if fault:
            raise malformed_url_error(address, fault)
        try:
            parts = urlsplit(address.strip())
            if parts.scheme == "file":
                return cls("file://", os.path.realpath(file_path(parts.path)))
            if "://" not in address:
                path = (folder or Path()) / expand_home(address)
                return cls("file://", os.path.realpath(path))
            # A fully qualified host name can end in a dot.
            host = (parts.hostname or "").rstrip(".")
            port = parts.port or _PORTS.get(parts.scheme)
        except ValueError as error:
            raise malformed_url_error(address, str(error)) from error
        relative = unquote(parts.path).lstrip("/")
        place = posixpath.normpath(f"/{relative}").rstrip("/")
        server = f"{parts.scheme}://{host}:{port or ''}"
        return cls(server, f"{place}?{parts.query}".rstrip("?"))

    def is_from(self, source: Location) -> bool:
        """Return whether a source's server or folder contains the location."""
        if self.server != source.server:
            return False
        # An index can link to files anywhere on its server.
        if self.server != "file://":
            return True
        folder = Path(source.path)
        if source.path.endswith(".html"):
            folder = folder.parent
        return Path(self.path).is_relative_to(folder)

    def is_below(self, prefix: Location) -> bool:
        """Return whether the location equals or is below another location."""
        is_same = self.server == prefix.server
        return is_same and PurePosixPath(self.path).is_relative_to(prefix.path or "/")


def malformed_url_error(address: str, why: str) -> UsageError:
    """Return the error for a malformed URL, without its login."""
    shown = redact(address.rpartition("@")[2])
    message = f"{shorten(shown)!r} is not a URL: {why}"
    return UsageError("malformed-address", message)
