"""An address of the web or of this machine as what it is, so that two spellings of one are equal."""

from __future__ import annotations

import os
import posixpath
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from gpuinstall.errors import UsageError

_PORTS = {"http": 80, "https": 443}


class Location(NamedTuple):
    """``server`` is "scheme://host:port", "file://" for this machine; ``path`` has no dots and no slash at its end."""

    server: str
    path: str

    @classmethod
    def parse(cls, address: str) -> Location:
        """Parse an address, or a path of this machine; raise UsageError for neither. A login does not count."""
        try:
            parts = urlsplit(address.strip())
            if parts.scheme == "file" or "://" not in address:
                return cls(
                    "file://",
                    os.path.realpath(
                        url2pathname(parts.path) if parts.scheme == "file" else address
                    ),
                )
            host, port = (parts.hostname or "").rstrip("."), parts.port or _PORTS.get(parts.scheme)
        except ValueError as error:
            message = f"{address.rpartition('@')[2]!r} is not a URL: {error}"
            raise UsageError("malformed-address", message) from error
        path = posixpath.normpath(f"/{unquote(parts.path).lstrip('/')}").rstrip("/")
        return cls(f"{parts.scheme}://{host}:{port or ''}", f"{path}?{parts.query}".rstrip("?"))

    def is_from(self, source: Location) -> bool:
        """Say whether it is on the server of a source; of a folder here, whether it is in it."""
        if self.server != "file://":
            return self.server == source.server
        folder = Path(source.path).parent if source.path.endswith(".html") else source.path
        return source.server == self.server and Path(self.path).is_relative_to(folder)
