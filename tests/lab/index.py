"""A simulated PyTorch index with its file host and the default index.

Responses match the real hosts. Wheels are in ``whl/<tag>/*.whl`` and ``simple/*.whl``.
Each page is made from the current files, so a test withdraws a wheel by deleting it.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from packaging.metadata import Metadata
from packaging.utils import canonicalize_name, parse_sdist_filename

from tests.lab.host import (
    DENIED,
    NOT_FOUND,
    UNAUTHORIZED,
    Answer,
    Host,
    ReceivedRequest,
)
from tests.lab.wheels import metadata_of

if TYPE_CHECKING:
    from typing_extensions import Self

JSON = "application/vnd.pypi.simple.v1+json"
_PAGE = {"Cache-Control": "max-age=600"}
_FILE = {"Cache-Control": "max-age=31536000"}
_SDIST_METADATA = b"Metadata-Version: 2.2\nName: x\nVersion: 1\n"
_COPIED = ("filelock", "numpy", "nvidia-", "typing-extensions")
"""Default packages that the torch index also lists, by their default URLs."""


@dataclass(frozen=True)
class IndexBehavior:
    """Behavior of a simulated index, healthy by default."""

    absolute: bool = True
    """Whether pages link to the file host, as PyTorch's do."""
    metadata: bool = True
    """Whether the index serves the METADATA of wheels separately."""
    ranges: bool = True
    """Whether the file host supports range requests."""
    flat: bool = False
    """Whether one page lists all files of a tag, as some mirrors do."""
    sparse: bool = False
    """Whether a tag's page lists only torch and torchvision."""
    json: bool = False
    """Whether the torch index has PEP 691 pages, as some mirrors do."""
    credentials: str | None = None
    """The required login of the default index, as ``user:password``."""
    torch_credentials: str | None = None
    """The required login of the torch index."""
    dates: bool = False
    """Whether the default index lists modification times as upload times."""
    yanked: tuple[str, ...] = ()
    """Patterns of yanked files on the default index."""


class SimulatedIndex:
    """Four hosts: ``torch`` (pages and files), ``r2``, ``default``, ``corp``.

    ``corp`` is a company's index of ``whl/corp``. Its ``/files/`` is one page of all
    files without hashes.
    """

    def __init__(self, folder: Path, habits: IndexBehavior | None = None):
        self.folder = folder
        self.habits = habits or IndexBehavior()
        self.torch = Host("torch", self._torch)
        self.r2 = Host("r2", self._r2)
        self.default = Host("default", self._default)
        self.corp = Host("corp", self._corp)

    @property
    def hosts(self) -> tuple[Host, ...]:
        """The simulated hosts by name, each of which a test may replace."""
        return self.torch, self.r2, self.default, self.corp

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object):
        for host in self.hosts:
            host.close()

    @property
    def torch_index(self) -> str:
        """The parent URL of ``<backend>/<package>/``."""
        return f"{self.torch.url}/whl"

    @property
    def default_index(self) -> str:
        """The URL of the default index, with its login."""
        url = self.default.url
        if self.habits.credentials:
            login = quote(self.habits.credentials, safe=":")
            url = url.replace("//", f"//{login}@")
        return f"{url}/simple"

    @property
    def log(self) -> list[ReceivedRequest]:
        """The logged requests to the simulated hosts."""
        return [request for host in self.hosts for request in host.log]

    def forget(self):
        """Clear the log of requests."""
        for host in self.hosts:
            host.log.clear()

    def sent(self) -> dict[str, int]:
        """Return the sent bytes of each wheel that was requested."""
        total = Counter[str]()
        for request in self.log:
            if request.path.endswith((".whl", ".tar.gz")) and request.sent:
                name = unquote(request.path.rpartition("/")[2])
                total[name] += request.sent
        return dict(total)

    def size(self, name: str) -> int:
        """Return the size of a wheel in bytes."""
        return next(self.folder.rglob(name)).stat().st_size

    def environment(self) -> dict[str, str]:
        """Return variables that select only this index."""
        return {
            "PIP_FIND_LINKS": "",
            "PIP_INDEX_URL": "",
            "PIP_EXTRA_INDEX_URL": "",
            "UV_FIND_LINKS": "",
            "PIP_CONFIG_FILE": os.devnull,
            "GPUINSTALL_TORCH_INDEX": self.torch_index,
            "UV_DEFAULT_INDEX": self.default_index,
            "GPUINSTALL_EXTENSION_INDEX": f"{self.default.url}/extensions",
        }

    def _torch(self, path: str, headers: dict[str, str]) -> Answer:
        if not _may_enter(headers, self.habits.torch_credentials):
            return UNAUTHORIZED
        parts = _parts(path)
        return self._flat(parts) if self.habits.flat else self._page(parts, headers)

    def _page(self, parts: list[str], headers: dict[str, str]) -> Answer:
        match parts:
            case ["whl", "torch", ""]:
                tags = sorted(tag.name for tag in (self.folder / "whl").iterdir())
                return self._package_page(tags, "torch", {})
            case ["whl", tag, ""] if self._wheels(tag):
                return self._packages_page(tag)
            case ["whl", tag, package, ""] if self._wheels(tag, package):
                return self._package_page([tag], package, headers)
            case ["whl", tag, package, ""] if package.startswith(
                _COPIED
            ) and self._wheels(tag):
                return self._simple_page(package, {})
            case _:
                return self._file(parts)

    def _flat(self, parts: list[str]) -> Answer:
        match parts:
            case ["whl", tag, ""] if self._wheels(tag):
                names = [html.escape(wheel.name) for wheel in self._wheels(tag)]
                links = [f'    <a href="{name}">{name}</a>\n' for name in names]
                return _html(link.replace("+", "&#43;") for link in links)
            case _:
                return self._file(parts)

    def _r2(self, path: str, headers: dict[str, str]) -> Answer:
        # The real file host rejects the user agent of urllib.
        if headers.get("user-agent", "").startswith("Python-urllib"):
            return DENIED
        return self._file(_parts(path))

    def _file(self, parts: list[str]) -> Answer:
        match parts:
            case ["whl", tag, name] if ".." not in parts:
                return self._wheel(self.folder / "whl" / tag, name)
            case _:
                return DENIED

    def _wheel(self, folder: Path, name: str) -> Answer:
        path = folder / name.removesuffix(".metadata")
        if not path.name.endswith((".whl", ".tar.gz", ".json")) or not path.is_file():
            return DENIED
        if name.endswith(".metadata"):
            if not self.habits.metadata:
                return DENIED
            return Answer(body=metadata_of(path), headers=_FILE)
        headers = dict(_FILE)
        if not self.habits.ranges:
            headers["Accept-Ranges"] = "none"
        return Answer(
            body=path.read_bytes(), content_type="application/zip", headers=headers
        )

    def _wheels(self, tag: str, package: str | None = None) -> list[Path]:
        return _files(self.folder / "whl" / tag, ".whl", package)

    def _packages_page(self, tag: str) -> Answer:
        names = {_package(wheel.name) for wheel in self._wheels(tag)}
        if self.habits.sparse:
            names = {"torch", "torchvision"}
        return _html(
            f'    <a href="{name}/">{name}</a><br/>\n' for name in sorted(names)
        )

    def _package_page(
        self, tags: list[str], package: str, headers: dict[str, str]
    ) -> Answer:
        wheels = [wheel for tag in tags for wheel in self._wheels(tag, package)]
        if self.habits.json and JSON in headers.get("accept", ""):
            return _json(package, [_json_file(each, _address(each)) for each in wheels])
        links = map(self._link, wheels)
        return _html([f"    <h1>Links for {package}</h1>\n", *links])

    def _link(self, wheel: Path) -> str:
        facts = _facts(wheel)
        address = _address(wheel)
        if self.habits.absolute:
            address = f"{self.r2.url}{address}"
        # The real index lists a sha256 for some files. This one lists none.
        attributes = [f'href="{address}"']
        if self.habits.metadata:
            digest = f'"sha256={facts.metadata_sha256}"'
            attributes.append(f"data-dist-info-metadata={digest}")
            attributes.append(f"data-core-metadata={digest}")
        if self.habits.absolute:
            uploaded = "2026-10-28T15:03:12Z"
            if self.habits.dates:
                uploaded = _format_date(wheel)
            attributes.append(f'data-upload-time="{uploaded}"')
        return f"    <a {' '.join(attributes)}>{wheel.name}</a><br/>\n"

    def _default(self, path: str, headers: dict[str, str]) -> Answer:
        if not _may_enter(headers, self.habits.credentials):
            return UNAUTHORIZED
        match _parts(path):
            case ["simple", package, ""]:
                return self._simple_page(package, headers)
            case ["files", name] if ".." not in name:
                answer = self._wheel(self.folder / "simple", name)
                return NOT_FOUND if answer is DENIED else answer
            case _:
                return NOT_FOUND

    def _corp(self, path: str, headers: dict[str, str]) -> Answer:
        folder = self.folder / "whl" / "corp"
        match _parts(path.rstrip("/")):
            case ["simple", package]:
                return self._simple_page(package, headers, self.corp, folder)
            case ["files"]:
                return self._flat(["whl", "corp", ""])
            case ["files", name] if ".." not in name:
                return self._wheel(folder, name)
            case _:
                return NOT_FOUND

    def _simple_page(
        self,
        package: str,
        headers: dict[str, str],
        host: Host | None = None,
        folder: Path | None = None,
    ) -> Answer:
        host, folder = host or self.default, folder or self.folder / "simple"
        files = []
        for path in [
            *_files(folder, ".whl", package),
            *_files(folder, ".tar.gz", package),
        ]:
            file = _json_file(path, f"{host.url}/files/{quote(path.name)}")
            if not self.habits.metadata:
                file["core-metadata"] = False
            file["yanked"] = any(map(path.match, self.habits.yanked))
            if self.habits.dates:
                file["upload-time"] = _format_date(path)
            files.append(file)
        if not files:
            return NOT_FOUND
        if JSON in headers.get("accept", ""):
            return _json(package, files)
        return _html(map(_simple_link, files))


def _format_date(file: Path) -> str:
    uploaded = datetime.fromtimestamp(file.stat().st_mtime, timezone.utc)
    return f"{uploaded:%Y-%m-%dT%H:%M:%SZ}"


def _address(wheel: Path) -> str:
    return f"/whl/{wheel.parent.name}/{quote(wheel.name)}"


def _may_enter(headers: dict[str, str], credentials: str | None) -> bool:
    if credentials is None:
        return True
    encoded = base64.b64encode(credentials.encode()).decode()
    return headers.get("authorization") == f"Basic {encoded}"


def _parts(path: str) -> list[str]:
    return [unquote(part) for part in path.partition("?")[0].split("/")[1:]]


@dataclass(frozen=True)
class _Facts:
    sha256: str
    metadata_sha256: str
    requires_python: str | None


_KNOWN: dict[tuple[int, int, int, str], _Facts] = {}
"""Hash a file once, because many tests link the same wheel."""


def _facts(wheel: Path) -> _Facts:
    status = wheel.stat()
    file = (status.st_dev, status.st_ino, status.st_mtime_ns, wheel.name)
    if file not in _KNOWN:
        _KNOWN[file] = _read_facts(wheel)
    return _KNOWN[file]


def _read_facts(wheel: Path) -> _Facts:
    metadata = metadata_of(wheel) if wheel.suffix == ".whl" else _SDIST_METADATA
    python = Metadata.from_email(metadata, validate=False).requires_python
    return _Facts(
        sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        metadata_sha256=hashlib.sha256(metadata).hexdigest(),
        requires_python=None if python is None else str(python),
    )


def _files(folder: Path, ending: str, package: str | None) -> list[Path]:
    """Return the files of a package, or of all packages, in a folder."""
    if not folder.is_dir():
        return []
    # Compares names instead of paths, because each page lists hundreds of files.
    names = sorted(path.name for path in folder.iterdir())
    chosen = [name for name in names if name.endswith(ending)]
    if package is not None:
        chosen = [name for name in chosen if _package(name) == package]
    return [folder / name for name in chosen]


@cache
def _package(filename: str) -> str:
    return canonicalize_name(filename.partition("-")[0])


def _version(filename: str) -> str:
    if filename.endswith(".tar.gz"):
        return str(parse_sdist_filename(filename)[1])
    return filename.split("-")[1]


def _html(links: Iterable[str]) -> Answer:
    body = "".join(links)
    page = f"<!DOCTYPE html>\n<html>\n  <body>\n{body}  </body>\n</html>\n<!--TIMESTAMP 1793199792-->"
    return Answer(body=page.encode(), content_type="text/html", headers=_PAGE)


def _json(package: str, files: list[dict[str, Any]]) -> Answer:
    versions = {_version(file["filename"]) for file in files}
    document = {
        "meta": {"api-version": "1.1"},
        "name": package,
        "versions": sorted(versions),
        "files": files,
    }
    return Answer(body=json.dumps(document).encode(), content_type=JSON, headers=_PAGE)


def _json_file(wheel: Path, url: str) -> dict[str, Any]:
    facts = _facts(wheel)
    return {
        "filename": wheel.name,
        "url": url,
        "hashes": {"sha256": facts.sha256},
        "size": wheel.stat().st_size,
        "core-metadata": {"sha256": facts.metadata_sha256}
        if wheel.suffix == ".whl"
        else False,
        "requires-python": facts.requires_python,
    }


def _simple_link(file: dict[str, Any]) -> str:
    href = f"{file['url']}#sha256={file['hashes']['sha256']}"
    python = html.escape(file["requires-python"] or "")
    attributes = [f'href="{href}"', f'data-requires-python="{python}"']
    if file["core-metadata"]:
        attributes.append(
            f'data-core-metadata="sha256={file["core-metadata"]["sha256"]}"'
        )
    if file["yanked"]:
        attributes.append('data-yanked=""')
    return f"    <a {' '.join(attributes)}>{file['filename']}</a><br/>\n"
