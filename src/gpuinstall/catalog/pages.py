"""What an index page lists: HTML, PEP 691 JSON and flat listings become wheels; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from packaging.utils import (
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.files import parse_json
from gpuinstall.base.versions import known_backend
from gpuinstall.catalog.catalog import DEFAULT_INDEX, Wheel, WheelSource
from gpuinstall.sources.web import Page

if TYPE_CHECKING:
    from packaging.version import Version

_SHA256 = re.compile(r"(?:\A|sha256[=:])([0-9a-fA-F]{64})\Z")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{,99}")
_PLAIN_ADDRESS = re.compile(r"https?://[a-z0-9.-]+(:[0-9]+)?/[!\"$-~]*")
"""A whole address in ASCII without a fragment: nearly every file has one, to be taken as it is."""
_MOST_LINKS = 100_000
"""Of a page for one package: 150,000 wheels took 390 MB, and 50 MB have room for five million."""
_MOST_NAMES = 1_000_000
"""The links of a page that lists a whole index, one for each package."""
_LONGEST_NAME = 255
"""In characters, as on most file systems; a longer one could hold millions of tags."""


class SourceRelease(NamedTuple):
    """A release that a page has as source."""

    version: Version
    requires_python: str | None = None


@cache
def parse_page(
    page: Page,
    *,
    backend: str | None = None,
    source: WheelSource = DEFAULT_INDEX,
) -> tuple[Wheel, ...]:
    """Return the wheels of a page, and of its other files nothing.

    Args:
        page: The page.
        backend: What a wheel without a label is for, by the place of the page.
        source: The index or the folder that lists them.

    Raises:
        InstallationError: if the page is malformed or a name leads out of its folder.
    """
    return wheels_of(_links(page), backend, source)


@cache
def parse_sources(page: Page, package: str) -> tuple[SourceRelease, ...]:
    """Return the source releases of a package on a page.

    Raises:
        InstallationError: if the page is malformed.
    """
    releases = []
    for link in _links(page):
        # A file of another kind, or with a name of its own.
        with suppress(ValueError):
            name, version = parse_sdist_filename(link.filename)
            if name == package:
                releases.append(SourceRelease(version, link.requires_python))
    return tuple(releases)


def parse_names(page: Page) -> frozenset[str]:
    """Return the packages on a page of a whole index: by their pages and their wheels."""
    if "json" in page.content_type:
        names = _json_names(page)
    else:
        links = _links(page, _MOST_NAMES)
        wheels = wheels_of(links, None, DEFAULT_INDEX)
        names = [wheel.package for wheel in wheels]
        for link in links:
            path = urlsplit(link.url).path
            if path.endswith("/"):
                folder = path.rstrip("/")
                names.append(unquote(folder.rpartition("/")[2]))
    regular = filter(_NAME.fullmatch, names)
    return frozenset(map(canonicalize_name, regular))


def parse_folder(
    names: Iterable[str],
    folder: Path,
    source: WheelSource,
) -> tuple[Wheel, ...]:
    """Return the wheels among the names of the files in an absolute ``folder``."""
    links = (PageFile((folder / name).as_uri(), name) for name in names)
    return wheels_of(links, None, source)


class PageFile(NamedTuple):
    """A file of a page."""

    url: str
    filename: str
    sha256: str | None = None
    metadata: bool = False
    metadata_sha256: str | None = None
    requires_python: str | None = None
    uploaded: str = ""
    """When, as in ``2026-01-31T08:15:00Z``; empty if the page does not say."""


@cache
def parse_files(page: Page, newest: str | None = None) -> tuple[PageFile, ...]:
    """Return the files of a page, without those that were uploaded after a day, or on a day that it does not tell.

    Raises:
        InstallationError: if the page is malformed.
    """
    return tuple(
        link
        for link in _links(page)
        if newest is None or "" < link.uploaded[:10] <= newest
    )


@cache
def _links(
    page: Page,
    most: int = _MOST_LINKS,
) -> tuple[PageFile, ...]:
    """Return the files of a page that are not yanked, at the addresses that it may lead to."""
    links = []
    try:
        files = (
            _json_files(page)
            if "json" in page.content_type
            else _html_files(page, most)
        )
        for file in files:
            if file.get("yanked"):
                continue
            link = _link(file, page.url)
            if link is not None:
                links.append(link)
    # The last is what html.parser raises for a malformed declaration.
    except (ValueError, TypeError, KeyError, AttributeError, AssertionError) as error:
        raise _malformed(page.url) from error
    return tuple(links)


def wheels_of(
    links: Iterable[PageFile],
    backend: str | None,
    source: WheelSource,
) -> tuple[Wheel, ...]:
    """Return the wheels among files, and of the others nothing.

    Args:
        links: The files.
        backend: What one without a label is for.
        source: The index or the folder that lists them.

    Raises:
        InstallationError: if a name leads out of its folder.
    """
    wheels = [_wheel(link, backend, source) for link in links]
    return tuple(filter(None, wheels))


def _wheel(
    link: PageFile,
    backend: str | None,
    source: WheelSource,
) -> Wheel | None:
    if not link.filename.endswith(".whl") or len(link.filename) > _LONGEST_NAME:
        return None
    if re.search(r"[/\\\0]|\A\.", link.filename):
        message = f"an index lists {link.filename!r}, which is outside its folder"
        raise InstallationError("unsafe-name", message)
    try:
        package, version, _, tags = parse_wheel_filename(link.filename)
    except ValueError:
        # The name of a variant is none of a wheel yet.
        return None
    return Wheel(
        package=package,
        version=version,
        filename=link.filename,
        url=link.url,
        tags=tags,
        sha256=link.sha256,
        metadata=link.metadata,
        metadata_sha256=link.metadata_sha256,
        backend=version.local if known_backend(version.local) else backend,
        source=source,
        requires_python=link.requires_python,
    )


def _json_files(page: Page) -> list[dict[str, Any]]:
    document = parse_json(page.text)
    files: list[dict[str, Any]] = document["files"]
    if len(files) > _MOST_LINKS:
        raise ValueError("more files than any package has")
    return files


def _json_names(page: Page) -> list[str]:
    try:
        projects = parse_json(page.text)["projects"]
        return [str(project["name"]) for project in projects]
    except (ValueError, TypeError, KeyError) as error:
        raise _malformed(page.url) from error


def _html_files(
    page: Page,
    most: int,
) -> Iterator[dict[str, Any]]:
    """Yield the links of a page as the JSON of PEP 691 writes files."""
    if page.text.lower().count("<a") > most:
        raise ValueError("more links than any page has")
    for anchor in _anchors(page.text):
        address, _, fragment = anchor.get("href", "").partition("#")
        path = address.partition("?")[0]
        # The second is the older name of the first.
        metadata = anchor.get(
            "data-core-metadata", anchor.get("data-dist-info-metadata", "false")
        )
        yield {
            "url": address,
            "filename": unquote(path.rpartition("/")[2]),
            "hashes": {"sha256": fragment},
            "core-metadata": metadata != "false" and {"sha256": metadata},
            "requires-python": anchor.get("data-requires-python"),
            "yanked": "data-yanked" in anchor,
        }


def _anchors(text: str) -> list[dict[str, str]]:
    """Return the attributes of each link of a page."""
    from html.parser import HTMLParser  # whose table of entities takes long to load

    anchors: list[dict[str, str]] = []

    class Parser(HTMLParser):
        def handle_starttag(
            self,
            tag: str,
            attrs: list[tuple[str, str | None]],
        ) -> None:
            if tag == "a":
                anchors.append({name: value or "" for name, value in attrs})

    parser = Parser()
    parser.feed(text)
    parser.close()
    return anchors


def _link(
    file: dict[str, Any],
    page_url: str,
) -> PageFile | None:
    """Return a file of a page; None if its address is none that the page may lead to."""
    address = _address(page_url, str(file["url"]))
    if address is None:
        return None
    metadata = file.get("core-metadata", file.get("dist-info-metadata"))
    requires_python = file.get("requires-python")
    return PageFile(
        url=address,
        filename=str(file["filename"]),
        sha256=_digest(file.get("hashes", {})),
        metadata=bool(metadata),
        metadata_sha256=_digest(metadata) if isinstance(metadata, dict) else None,
        requires_python=str(requires_python) if requires_python else None,
        uploaded=str(file.get("upload-time") or ""),
    )


def _address(
    base: str,
    href: str,
) -> str | None:
    """Return the address of a link, without its fragment; None if the page may not lead there."""
    if _PLAIN_ADDRESS.fullmatch(href):
        return href
    try:
        whole = urljoin(base, href.strip())
        address = urldefrag(whole)[0]
        scheme, host = urlsplit(address)[:2]
    except ValueError:
        return None
    if scheme == "file":
        # Only a page on this machine may lead to files on it.
        return address if base.startswith("file:") else None
    if scheme in {"http", "https"} and host:
        return address
    return None


def _digest(hashes: dict[str, Any]) -> str | None:
    match = _SHA256.search(str(hashes.get("sha256")))
    if match:
        return match[1].lower()
    return None


def _malformed(url: str) -> InstallationError:
    return InstallationError(
        "malformed-page",
        f"the page {url} is not a package index",
        hint="Check the address of the index: what lies there is something else",
    )
