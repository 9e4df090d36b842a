"""An address of the web or of this machine as what it is, so that two spellings of one are equal."""

from __future__ import annotations

import os
import posixpath
import sys
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import expanded_home
from gpuinstall.base.requirement import fault_in
from gpuinstall.base.text import redacted, shorten
from gpuinstall.base.values import Value

_PORTS = {"http": 80, "https": 443}


def file_path(path: str) -> str:
    """Return the path on this machine that the path of a ``file:`` address names.

    Args:
        path: What stands behind the scheme and the host, as it is written there.
    """
    if sys.platform == "win32":
        # Imported here: it loads what speaks HTTP, TLS and mail, more than the rest of a plan together.
        from urllib.request import url2pathname

        return url2pathname(path)
    return unquote(path)


class Location(Value):
    """``server`` is "scheme://host:port", "file://" for this machine; ``path`` has no dots and no slash at its end."""

    server: str
    path: str

    @classmethod
    def parse(cls, address: str, folder: Path | None = None) -> Location:
        """Parse an address, or a path of this machine. A login in it does not count.

        Args:
            address: As it is written.
            folder: Where a relative path begins; None: in the working folder.

        Raises:
            UsageError: if it is neither.
        """
        fault = fault_in(address)
        if fault:
            raise malformed_address(address, fault)
        try:
            parts = urlsplit(address.strip())
            if parts.scheme == "file":
                return cls("file://", os.path.realpath(file_path(parts.path)))
            if "://" not in address:
                path = (folder or Path()) / expanded_home(address)
                return cls("file://", os.path.realpath(path))
            # A dot at the end of a name says that it is whole: it is the same host.
            host = (parts.hostname or "").rstrip(".")
            port = parts.port or _PORTS.get(parts.scheme)
        except ValueError as error:
            raise malformed_address(address, str(error)) from error
        relative = unquote(parts.path).lstrip("/")
        place = posixpath.normpath(f"/{relative}").rstrip("/")
        server = f"{parts.scheme}://{host}:{port or ''}"
        return cls(server, f"{place}?{parts.query}".rstrip("?"))

    def is_from(self, source: Location) -> bool:
        """Whether it is on the server of a source; of a folder here, whether it is in it."""
        if self.server != source.server:
            return False
        # The files of an index may lie anywhere on its server.
        if self.server != "file://":
            return True
        folder = Path(source.path)
        if source.path.endswith(".html"):
            folder = folder.parent
        return Path(self.path).is_relative_to(folder)

    def is_below(self, prefix: Location) -> bool:
        """Return whether it is a source, or a file or folder below it."""
        is_there = self.server == prefix.server
        return is_there and PurePosixPath(self.path).is_relative_to(prefix.path or "/")


def malformed_address(address: str, why: str) -> UsageError:
    """Return the error of an address that is none, which it is named in without its login.

    Args:
        address: As it is written.
        why: What is wrong with it.
    """
    shown = redacted(address.rpartition("@")[2])
    message = f"{shorten(shown)!r} is not a URL: {why}"
    return UsageError("malformed-address", message)
