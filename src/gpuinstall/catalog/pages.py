"""What an index page lists: HTML, PEP 691 JSON and flat listings become wheels; all of it is pure."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename

from gpuinstall.backend import known_backend
from gpuinstall.catalog.catalog import DEFAULT_INDEX, Wheel
from gpuinstall.errors import InstallationError
from gpuinstall.files import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from packaging.version import Version

_SHA256 = re.compile(r"sha256[=:]([0-9a-fA-F]{64})\Z")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{,99}")
_MOST_LINKS = 100_000
"""The links of a page for one package: 150,000 wheels took 390 MB, and 50 MB have room for five million."""
_MOST_NAMES = 1_000_000
"""Those of a page that lists a whole index, which has a link for each package."""
_LONGEST_NAME = 255
"""In characters, as on most file systems; a longer one could hold millions of tags."""


class SourceRelease(NamedTuple):
    """A release that a page has as source."""

    version: Version
    requires_python: str | None = None


_WHEEL_NAME = re.compile(r"[^\s\"'/<>]+\.whl\b")
_PLAIN_WHEEL = re.compile(
    r"[A-Za-z0-9]+(?:[._][A-Za-z0-9]+)*"
    r"-\d+(?:\.\d+)*(?:(?:a|b|rc)\d+)?(?:\.post\d+)?(?:\.dev\d+)?"
    r"(?:-\d\w*)?(?:-[A-Za-z]\w*(?:\.[A-Za-z]\w*)*){3}\.whl"
)


@cache
def parse_page(
    text: str, content_type: str, url: str, *, backend: str | None = None, source: str = DEFAULT_INDEX
) -> tuple[Wheel, ...]:
    """Read the wheels of a page that was found at ``url``; what is no wheel is passed over.

    Raise InstallationError where the page is malformed or a name leads out of its folder.
    """
    return _wheels(_links(text, content_type, url), backend, source)


@cache
def parse_sources(text: str, content_type: str, url: str) -> tuple[SourceRelease, ...]:
    """Read the releases that a page has as source; raise InstallationError where it is malformed."""
    releases = []
    for link in _links(text, content_type, url):
        with suppress(ValueError):
            releases.append(SourceRelease(parse_sdist_filename(link.filename)[1], link.requires_python))
    return tuple(releases)


def misnamed_versions(text: str, content_type: str, url: str) -> frozenset[str]:
    """Find the versions that a page has only under names that are no wheel's, so that no lock can hold them."""
    # Nearly every page has none, and to read all links of a page of 4,000 files takes half a second.
    if all(_PLAIN_WHEEL.fullmatch(name) for name in _WHEEL_NAME.findall(text)):
        return frozenset()
    links = list(_links(text, content_type, url))
    named = {str(wheel.version) for wheel in _wheels(links, None, url)}
    named |= {str(source.version) for source in parse_sources(text, content_type, url)}
    files = (re.fullmatch(r"[\w.]+-([\w.+!]+)(-[\w.]+)+\.whl", link.filename) for link in links)
    return frozenset({file[1] for file in files if file} - named)


def parse_names(text: str, content_type: str, url: str) -> frozenset[str]:
    """Read the packages that a page of a whole index names: those that have a page, and those whose wheels it lists."""
    if "json" in content_type:
        return frozenset(canonicalize_name(name) for name in _json_names(text, url))
    addresses = (_address(url, anchor.get("href", "")) for anchor in _anchors(text, url, _MOST_NAMES))
    places = [urlsplit(address).path for address in addresses if address]
    pages = (path.rstrip("/").rpartition("/")[2] for path in places if path.endswith("/"))
    wheels = frozenset(
        wheel.package for wheel in _wheels(_links(text, content_type, url, _MOST_NAMES), None, DEFAULT_INDEX)
    )
    return wheels.union(canonicalize_name(name) for name in map(unquote, pages) if _NAME.fullmatch(name))


def parse_folder(names: Iterable[str], folder: Path, source: str) -> tuple[Wheel, ...]:
    """Read the wheels among the names of the files in an absolute ``folder``."""
    links = (_Link((folder / name).as_uri(), name) for name in names)
    return _wheels(links, None, source)


class _Link(NamedTuple):
    url: str
    filename: str
    sha256: str | None = None
    metadata: bool = False
    metadata_sha256: str | None = None
    size: int | None = None
    requires_python: str | None = None


def _links(text: str, content_type: str, url: str, most: int = _MOST_LINKS) -> Iterator[_Link]:
    return _json_links(text, url) if "json" in content_type else _html_links(text, url, most)


def _wheels(links: Iterable[_Link], backend: str | None, source: str) -> tuple[Wheel, ...]:
    """The wheels among the files of a page; a name that is labelled as a variant's is none."""
    wheels = (_wheel(link, backend, source) for link in links)
    return tuple(wheel for wheel in wheels if wheel)


def _wheel(link: _Link, backend: str | None, source: str) -> Wheel | None:
    if not link.filename.endswith(".whl") or len(link.filename) > _LONGEST_NAME:
        return None
    if re.search(r"[/\\\0]|\A\.", link.filename):
        raise InstallationError("unsafe-name", f"an index lists {link.filename!r}, which is outside its folder")
    try:
        package, version, _, tags = parse_wheel_filename(link.filename)
    except ValueError:
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
        size=link.size,
        backend=version.local if known_backend(version.local) else backend,
        source=source,
        requires_python=link.requires_python,
    )


class _Anchors(HTMLParser):
    def __init__(self, most: int) -> None:
        super().__init__()
        self.found: list[dict[str, str]] = []
        self.most = most

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            if len(self.found) == self.most:
                raise ValueError
            self.found.append({name: value or "" for name, value in attrs})


def _html_links(text: str, url: str, most: int) -> Iterator[_Link]:
    for anchor in _anchors(text, url, most):
        address = _address(url, anchor.get("href", ""))
        if address and "data-yanked" not in anchor:
            plain, fragment = urldefrag(address)
            metadata = anchor.get("data-core-metadata", anchor.get("data-dist-info-metadata", "false"))
            yield _Link(
                url=plain,
                filename=unquote(urlsplit(plain).path.rpartition("/")[2]),
                sha256=_digest(fragment),
                metadata=metadata != "false",
                metadata_sha256=_digest(metadata),
                requires_python=anchor.get("data-requires-python") or None,
            )


def _anchors(text: str, url: str, most: int) -> list[dict[str, str]]:
    anchors = _Anchors(most)
    try:
        anchors.feed(text)
        anchors.close()
    except (AssertionError, ValueError) as error:
        raise _malformed(url) from error
    return anchors.found


def _json_links(text: str, url: str) -> Iterator[_Link]:
    try:
        files = parse_json(text)["files"]
        if len(files) > _MOST_LINKS:
            raise _malformed(url)
        links = [_json_link(url, file) for file in files if not file.get("yanked")]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _malformed(url) from error
    yield from (link for link in links if link is not None)


def _json_names(text: str, url: str) -> list[str]:
    try:
        names = [project["name"] for project in parse_json(text)["projects"]]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _malformed(url) from error
    return [name for name in names if isinstance(name, str) and _NAME.fullmatch(name)]


def _json_link(url: str, file: Mapping[str, Any]) -> _Link | None:
    address = _address(url, str(file["url"]))
    metadata = file.get("core-metadata", file.get("dist-info-metadata", False))
    size = file.get("size")
    if address is None:
        return None
    return _Link(
        url=urldefrag(address)[0],
        filename=str(file["filename"]),
        sha256=_digest(f"sha256={file.get('hashes', {}).get('sha256')}"),
        metadata=bool(metadata),
        metadata_sha256=_digest(f"sha256={metadata.get('sha256')}") if isinstance(metadata, dict) else None,
        size=size if isinstance(size, int) and size >= 0 else None,
        requires_python=str(file["requires-python"]) if file.get("requires-python") else None,
    )


def _address(base: str, href: str) -> str | None:
    """Resolve a link; None for what is no address, or an address that this page may not lead to."""
    try:
        address = urljoin(base, href.strip())
        scheme, host = urlsplit(address)[:2]
    except ValueError:
        return None
    if scheme == "file":
        return address if base.startswith("file:") else None
    return address if scheme in {"http", "https"} and host else None


def _digest(text: str) -> str | None:
    match = _SHA256.search(text)
    return match[1].lower() if match else None


def _malformed(url: str) -> InstallationError:
    return InstallationError("malformed-page", f"the page {url} is not a package index")
