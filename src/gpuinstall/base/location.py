"""Normalize URLs and paths, so that different spellings are equal."""

from __future__ import annotations

import os
import posixpath
from enum import Enum
from os.path import isdir
from pathlib import Path, PurePosixPath
from urllib.parse import parse_qsl, unquote, urlsplit

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import expand_home
from gpuinstall.base.requirement import (
    Requirement,
    check_path,
    find_path,
    find_syntax_fault,
    find_url_fault,
    is_git_url,
    is_url,
)
from gpuinstall.base.text import redact, remove_logins, shorten
from gpuinstall.base.values import Value

LINKS_FRAGMENT = "#find-links"
"""The URL fragment that distinguishes find-links from an index."""

_PORTS = {"http": 80, "https": 443}
_LOCAL = "file://"


def file_path(address: str) -> Path:
    """Return the path of a path or a ``file:`` URL."""
    return Path(find_path(address) or address)


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
        fault = find_syntax_fault(address)
        if fault:
            raise malformed_url_error(address, fault)
        path = find_path(address)
        try:
            if path is not None:
                joined = (folder or Path()) / expand_home(path)
                return cls(_LOCAL, os.path.realpath(joined))
            parts = urlsplit(address.strip())
            # A fully qualified host name can end in a dot.
            host = (parts.hostname or "").rstrip(".")
            port = parts.port or _PORTS.get(parts.scheme)
        except ValueError as error:
            raise malformed_url_error(address, str(error)) from error
        relative = unquote(parts.path).lstrip("/")
        place = posixpath.normpath(f"/{relative}").rstrip("/")
        server = f"{parts.scheme}://{host}:{port or ''}"
        return cls(server, f"{place}?{parts.query}".rstrip("?"))

    @property
    def is_local(self) -> bool:
        """Whether the location is a path on this machine."""
        return self.server == _LOCAL

    def is_from(self, source: Location) -> bool:
        """Return whether a source's server or folder contains the location."""
        if self.server != source.server:
            return False
        # An index can link to files anywhere on its server.
        if not self.is_local:
            return True
        folder = Path(source.path)
        if source.path.endswith(".html"):
            folder = folder.parent
        return Path(self.path).is_relative_to(folder)

    def is_below(self, prefix: Location) -> bool:
        """Return whether the location equals or is below another location."""
        is_same = self.server == prefix.server
        return is_same and PurePosixPath(self.path).is_relative_to(prefix.path or "/")


class SourceKind(Enum):
    """Kind of a package source."""

    INDEX = "an index or a page of files"
    REPOSITORY = "a repository"
    DIRECTORY = "a folder"
    SDIST = "its sdist"
    ARCHIVE = "an archive"
    WHEEL = "a wheel"


class SourceOrigin(Enum):
    """Input that selects a package source."""

    USER = "the user"
    FOLDER = "a file in the folder"
    LOCK = "a lock file"
    RESOLUTION = "uv's resolution in this command"


def is_wheel(name: str) -> bool:
    """Return whether a file name or a URL path is a wheel, as in uv."""
    return name.endswith(".whl")


class PackageSource(Value):
    """Source by URL or path of a requirement, a setting, or a lock entry."""

    kind: SourceKind
    address: str
    """The URL or path as written, without its login."""
    location: Location
    """The location without the Git reference and the fragment."""
    origin: SourceOrigin = SourceOrigin.FOLDER
    reference: str = ""
    """The branch, tag, or commit of a repository."""
    subdirectory: str = ""

    @property
    def filename(self) -> str:
        """The last part of the path, without a query."""
        return self.location.path.partition("?")[0].rpartition("/")[2]

    @property
    def is_built(self) -> bool:
        """Whether uv runs the build code of the source."""
        return self.kind not in {SourceKind.INDEX, SourceKind.WHEEL}


def parse_source(
    address: str,
    folder: Path | None = None,
    *,
    kind: SourceKind | None = None,
    origin: SourceOrigin = SourceOrigin.FOLDER,
    subdirectory: str = "",
) -> PackageSource:
    """Parse the URL or path of a package source.

    Args:
        address: The URL or path.
        folder: The folder to which a path is relative. None: the working folder.
        kind: The kind, if a setting or a key of a lock determines it. None: the URL
            determines it, as in uv.
        origin: The input that selects the source.
        subdirectory: The subdirectory, unless the fragment contains it.

    Raises:
        UsageError: The URL is malformed, or contains a variable.
    """
    fault = find_url_fault(address)
    if fault:
        raise malformed_url_error(address, fault)
    address = remove_logins(address)
    plain, _, fragment = address.partition("#")
    reference = ""
    if is_git_url(plain):
        kind = SourceKind.REPOSITORY
        plain, reference = _split_reference(plain.removeprefix("git+"))
    location = Location.parse(plain, folder)
    # Like uv, use the first value of the fragment.
    parameters = reversed(parse_qsl(fragment))
    inside = dict(parameters).get("subdirectory", subdirectory)
    if inside and location.is_local and isdir(location.path):
        location = Location.parse(str(Path(location.path, inside)))
    return PackageSource(
        kind=kind or _find_kind(plain, location),
        address=address,
        location=location,
        origin=origin,
        reference=reference,
        subdirectory=inside,
    )


def _split_reference(address: str) -> tuple[str, str]:
    """Split the URL of a repository into repository and reference."""
    start = address.find("/", address.find("://") + 3)
    at = address.rfind("@", start)
    return (address[:at], address[at + 1 :]) if at >= 0 else (address, "")


def _find_kind(address: str, location: Location) -> SourceKind:
    """Return the kind of a requirement by URL or path, as in uv."""
    if location.is_local and isdir(location.path):
        return SourceKind.DIRECTORY
    # For uv, the name of a link counts, not the name of its target.
    path = urlsplit(address).path
    # uv uses Git for other schemes with a plus sign, too.
    if path.lower().endswith(".git") or "+" in location.server:
        return SourceKind.REPOSITORY
    return SourceKind.WHEEL if is_wheel(path) else SourceKind.ARCHIVE


def locate_requirement(requirement: Requirement, folder: Path) -> Requirement:
    """Return a requirement with the absolute URL of its path, if it has one.

    Args:
        requirement: The requirement.
        folder: The folder to which its path is relative.

    Raises:
        UsageError: The path has a line break.
    """
    if requirement.path is None:
        return requirement
    path = (folder / expand_home(requirement.path)).absolute()
    check_path(str(path))
    return requirement.with_url(path.as_uri())


def links_url(place: str) -> str:
    """Return the find-links URL for a lock, marked with a fragment."""
    address = place if is_url(place) else Path(place).as_uri()
    return address + LINKS_FRAGMENT


def malformed_url_error(address: str, why: str) -> UsageError:
    """Return the error for a malformed URL, without its login."""
    shown = redact(address).rpartition("@")[2]
    message = f"{shorten(shown)!r} is not a URL: {why}"
    return UsageError("malformed-address", message)
