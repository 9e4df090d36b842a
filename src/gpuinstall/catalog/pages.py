"""Parse index pages: HTML, JSON (PEP 691), and flat listings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from packaging.tags import Tag, parse_tag
from packaging.utils import (
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.files import parse_json
from gpuinstall.base.location import is_wheel
from gpuinstall.base.requirement import is_file_url
from gpuinstall.base.values import Value
from gpuinstall.base.versions import known_backend
from gpuinstall.catalog.catalog import DEFAULT_INDEX, Wheel, WheelSource

if TYPE_CHECKING:
    from packaging.version import Version

    from gpuinstall.sources.web import Page

_SHA256 = re.compile(r"(?:\A|sha256[=:])([0-9a-fA-F]{64})\Z")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{,99}")
_PATH = re.compile(r"[/\\\0]|\A\.")
_PLAIN_ADDRESS = re.compile(r"https?://[a-z0-9.-]+(:[0-9]+)?/[!\"$-~]*")
"""A pattern of absolute ASCII URLs without a fragment."""
_MAX_LINKS = 1_000_000
"""The maximum number of links on a page, more than any index has packages."""
_LONGEST_NAME = 255
"""The maximum length of a file name, to limit the number of tags."""


class SourceRelease(Value):
    """A source distribution on an index page."""

    version: Version
    requires_python: str | None = None


@cache
def parse_page(
    page: Page,
    *,
    backend: str | None = None,
    source: WheelSource = DEFAULT_INDEX,
) -> tuple[Wheel, ...]:
    """Return the wheels on an index page.

    Args:
        page: The contents of the index page.
        backend: The tag of wheels without a label.
        source: The index or folder of the page.

    Raises:
        InstallationError: The page is malformed, or a file name is a path.
    """
    return wheels_from_files(_parse_files(page), backend, source)


@cache
def parse_sources(page: Page, package: str) -> tuple[SourceRelease, ...]:
    """Return the source distributions of a package on an index page.

    Raises:
        InstallationError: The page is malformed.
    """
    releases = []
    for file in _parse_files(page):
        if is_wheel(file.filename):
            continue
        # Ignore files without a version.
        with suppress(ValueError):
            name, version = parse_sdist_filename(file.filename)
            if name == package:
                releases.append(SourceRelease(version, file.requires_python))
    return tuple(releases)


def parse_names(page: Page) -> frozenset[str]:
    """Return the packages whose pages or wheels an index lists."""
    if "json" in page.content_type:
        names = _parse_json_names(page)
    else:
        links = _parse_files(page)
        wheels = wheels_from_files(links, None, DEFAULT_INDEX)
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
    """Return the wheels in a local folder.

    Args:
        names: The names of the files in the folder.
        folder: The folder.
        source: The source of the wheels.
    """
    links = (PageFile((folder / name).as_uri(), name) for name in names)
    return wheels_from_files(links, None, source)


class PageFile(Value):
    """A file on an index page."""

    url: str
    filename: str
    sha256: str | None = None
    metadata: bool = False
    metadata_sha256: str | None = None
    requires_python: str | None = None
    uploaded: str = ""
    """The upload time, such as ``2026-01-31T08:15:00Z``; empty if unknown."""
    size: int = 0
    """The size in bytes; 0 if unknown."""


@cache
def parse_files(page: Page, newest: str | None = None) -> tuple[PageFile, ...]:
    """Return the files on an index page that are not yanked.

    Args:
        page: The contents of the index page.
        newest: The last upload day to include, or None for all files. A limit also
            excludes files without a date.

    Raises:
        InstallationError: The page is malformed.
    """
    files = _parse_files(page)
    if newest is None:
        return files
    return tuple(file for file in files if "" < file.uploaded[:10] <= newest)


@cache
def _parse_files(page: Page) -> tuple[PageFile, ...]:
    """Parse an index page, without yanked files and forbidden URLs."""
    parsed = []
    try:
        is_json = "json" in page.content_type
        for file in _parse_json_files(page) if is_json else _parse_html_files(page):
            if file.get("yanked"):
                continue
            page_file = _create_page_file(file, page.url)
            if page_file is not None:
                parsed.append(page_file)
    # html.parser raises AssertionError for a malformed declaration.
    except (ValueError, TypeError, KeyError, AttributeError, AssertionError) as error:
        raise _create_error(page.url) from error
    return tuple(parsed)


def wheels_from_files(
    files: Iterable[PageFile],
    backend: str | None,
    source: WheelSource,
) -> tuple[Wheel, ...]:
    """Return the wheels among the files of an index page.

    Args:
        files: The files of the page.
        backend: The tag of wheels without a label.
        source: The index or folder of the files.

    Raises:
        InstallationError: A file name is a path.
    """
    wheels = [_create_wheel(file, backend, source) for file in files]
    return tuple(filter(None, wheels))


def _create_wheel(
    file: PageFile,
    backend: str | None,
    source: WheelSource,
) -> Wheel | None:
    if not is_wheel(file.filename) or len(file.filename) > _LONGEST_NAME:
        return None
    if _PATH.search(file.filename):
        message = f"an index lists a file with an unsafe name: {file.filename!r}"
        raise InstallationError("unsafe-name", message)
    stem, *tags = file.filename.removesuffix(".whl").rsplit("-", 3)
    try:
        package, version, label = _parse_stem(stem)
        return Wheel(
            package=package,
            version=version,
            filename=file.filename,
            url=file.url,
            tags=_parse_tags("-".join(tags)),
            sha256=file.sha256,
            metadata=file.metadata,
            metadata_sha256=file.metadata_sha256,
            backend=label or backend,
            source=source,
            requires_python=file.requires_python,
            uploaded=file.uploaded,
            size=file.size,
        )
    except ValueError:
        # Ignore wheel variants, whose file names are not standardized yet.
        return None


@cache
def _parse_stem(stem: str) -> tuple[str, Version, str | None]:
    """Parse the part of a wheel's file name before the tags.

    Returns:
        The package, its version, and the backend in its label.
    """
    package, version, _, _ = parse_wheel_filename(f"{stem}-py3-none-any.whl")
    label = version.local
    return package, version, label if known_backend(label) else None


@cache
def _parse_tags(text: str) -> frozenset[Tag]:
    return frozenset(parse_tag(text))


def _parse_json_names(page: Page) -> list[str]:
    try:
        projects = parse_json(page.text)["projects"]
        return [str(project["name"]) for project in projects]
    except (ValueError, TypeError, KeyError) as error:
        raise _create_error(page.url) from error


def _parse_json_files(page: Page) -> list[dict[str, Any]]:
    files: list[dict[str, Any]] = parse_json(page.text)["files"]
    if len(files) > _MAX_LINKS:
        raise ValueError(f"the page has more than {_MAX_LINKS:,} files")
    return files


def _parse_html_files(page: Page) -> Iterator[dict[str, Any]]:
    """Yield the links on an HTML page as file objects of PEP 691."""
    if page.text.lower().count("<a") > _MAX_LINKS:
        raise ValueError(f"the page has more than {_MAX_LINKS:,} links")
    for anchor in _parse_anchors(page.text):
        address, _, fragment = anchor.get("href", "").partition("#")
        path = address.partition("?")[0]
        # PEP 658 specified the second name, which PEP 714 replaced.
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
            "upload-time": anchor.get("data-upload-time"),
        }


def _parse_anchors(text: str) -> list[dict[str, str]]:
    """Return the attributes of each link on an HTML page.

    A relative link is joined with the page's first ``<base href>``, as in uv.
    """
    from html.parser import HTMLParser  # slow to import

    anchors: list[dict[str, str]] = []
    bases: list[str] = []

    class Parser(HTMLParser):
        def handle_starttag(
            self,
            tag: str,
            attrs: list[tuple[str, str | None]],
        ) -> None:
            attributes = {name: value or "" for name, value in attrs}
            if tag == "a":
                anchors.append(attributes)
            elif tag == "base" and "href" in attributes:
                bases.append(attributes["href"])

    parser = Parser()
    parser.feed(text)
    parser.close()
    for base in bases[:1]:
        for anchor in anchors:
            anchor["href"] = urljoin(base, anchor.get("href", ""))
    return anchors


def _create_page_file(
    file: dict[str, Any],
    page_url: str,
) -> PageFile | None:
    """Create a file of an index page, or None if its URL is forbidden."""
    address = _resolve_url(page_url, str(file["url"]))
    if address is None:
        return None
    metadata = file.get("core-metadata", file.get("dist-info-metadata"))
    requires_python = file.get("requires-python")
    return PageFile(
        url=address,
        filename=str(file["filename"]),
        sha256=_find_digest(file.get("hashes", {})),
        metadata=bool(metadata),
        metadata_sha256=_find_digest(metadata) if isinstance(metadata, dict) else None,
        requires_python=str(requires_python) if requires_python else None,
        uploaded=str(file.get("upload-time") or ""),
    )


def _resolve_url(
    base: str,
    href: str,
) -> str | None:
    """Return an absolute URL without fragment, or None if it is forbidden."""
    if _PLAIN_ADDRESS.fullmatch(href):
        return href
    try:
        whole = urljoin(base, href.strip())
        address = urldefrag(whole)[0]
        scheme, host = urlsplit(address)[:2]
    except ValueError:
        return None
    if scheme == "file":
        # Only a local page may list local files.
        return address if is_file_url(base) else None
    if scheme in {"http", "https"} and host:
        return address
    return None


def _find_digest(hashes: dict[str, Any]) -> str | None:
    match = _SHA256.search(str(hashes.get("sha256")))
    if match:
        return match[1].lower()
    return None


def _create_error(url: str) -> InstallationError:
    return InstallationError(
        "malformed-page",
        f"the page {url} is not a package index",
        hint="Check the URL of the index",
    )
