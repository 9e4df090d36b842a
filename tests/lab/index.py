"""A stand-in for the PyTorch index, its file host and the default index, on loopback, true to how they really answer.

The wheels lie in a folder, ``whl/<tag>/*.whl`` and ``simple/*.whl``, and every page is made from what lies there now:
to withdraw a wheel, delete it. ``python -m tests.lab.index`` serves a small catalogue until it is interrupted.
"""

from __future__ import annotations

import hashlib
import html
import json
import os
import sys
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from packaging.metadata import Metadata
from packaging.utils import canonicalize_name, parse_sdist_filename

from tests.lab.host import DENIED, NOT_FOUND, UNAUTHORIZED, Answer, Asked, Host
from tests.lab.wheels import metadata_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typing_extensions import Self

JSON = "application/vnd.pypi.simple.v1+json"
_PAGE = {"Cache-Control": "max-age=600"}
_FILE = {"Cache-Control": "max-age=31536000"}
_COPIED = ("filelock", "numpy", "nvidia-", "typing-extensions")
"""The packages of the default index that the torch index lists too, with addresses that lead back there."""


@dataclass(frozen=True)
class Habits:
    """How the index behaves.

    ``hashed`` says which files get a sha256 fragment (the real index is unreliable: here none does), ``absolute``
    that addresses lead to the file host, ``metadata`` that ``.metadata`` is served, ``ranges`` that parts of files
    are; ``flat`` (pages of files by tag) and ``json`` (PEP 691) are what mirrors do; ``credentials``,
    "user:password", close the default index.
    """

    hashed: Callable[[str], bool] = lambda _name: False
    absolute: bool = True
    metadata: bool = True
    ranges: bool = True
    flat: bool = False
    json: bool = False
    credentials: str | None = None


class StandInIndex:
    """Three hosts: ``torch`` (pages and files), ``r2`` (the files again) and ``default`` (everything else)."""

    def __init__(self, folder: Path, habits: Habits | None = None, port: int = 0) -> None:
        self.folder = folder
        self.habits = habits or Habits()
        self.torch = Host("torch", self._torch, port)
        self.r2 = Host("r2", self._r2)
        self.default = Host("default", self._default)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts:
            host.close()

    @property
    def hosts(self) -> tuple[Host, Host, Host]:
        """All hosts."""
        return self.torch, self.r2, self.default

    @property
    def torch_index(self) -> str:
        """The base, below which ``<backend>/<package>/`` lie."""
        return f"{self.torch.url}/whl"

    @property
    def default_index(self) -> str:
        """The address of the default index, with its credentials."""
        login = f"{quote(self.habits.credentials, safe=':')}@" if self.habits.credentials else ""
        return self.default.url.replace("//", f"//{login}") + "/simple"

    @property
    def log(self) -> list[Asked]:
        """Every request to any of the hosts."""
        return [asked for host in self.hosts for asked in host.log]

    def forget(self) -> None:
        """Empty the log."""
        for host in self.hosts:
            host.log.clear()

    def sent(self) -> dict[str, int]:
        """The bytes that went out of each wheel; wheels of which none did are not in it."""
        total: dict[str, int] = {}
        for asked in self.log:
            if asked.path.endswith((".whl", ".tar.gz")) and asked.sent:
                name = unquote(asked.path.rpartition("/")[2])
                total[name] = total.get(name, 0) + asked.sent
        return total

    def size(self, name: str) -> int:
        """The size of a wheel in bytes."""
        return next(self.folder.rglob(name)).stat().st_size

    def environment(self) -> dict[str, str]:
        """What to add to a process's environment so that it knows this index, and none of the machine's own."""
        nothing = dict.fromkeys(
            ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_FIND_LINKS"), ""
        )
        return {
            **nothing,
            "PIP_CONFIG_FILE": os.devnull,
            "GPUINSTALL_TORCH_INDEX": self.torch_index,
            "UV_DEFAULT_INDEX": self.default_index,
            "GPUINSTALL_EXTENSION_INDEX": f"{self.default.url}/extensions",
        }

    def _torch(self, path: str, headers: dict[str, str]) -> Answer:
        parts = [unquote(part) for part in path.split("/")[1:]]
        match parts:
            case ["whl", tag, ""] if self._wheels(tag):
                return self._flat_page(tag) if self.habits.flat else self._packages_page(tag)
            case ["whl", package, ""] if package == "torch" and not self.habits.flat:
                return self._union_page(package)
            case ["whl", tag, package, ""] if self._wheels(tag, package) and not self.habits.flat:
                return self._package_page(tag, package, headers)
            case ["whl", tag, package, ""] if package.startswith(_COPIED) and not self.habits.flat:
                return self._simple_page(package, {}) if self._wheels(tag) else DENIED
            case _:
                return self._file(parts)

    def _r2(self, path: str, headers: dict[str, str]) -> Answer:
        if headers.get("user-agent", "").startswith("Python-urllib"):
            return DENIED
        return self._file([unquote(part) for part in path.split("/")[1:]])

    def _file(self, parts: list[str]) -> Answer:
        match parts:
            case ["whl", tag, name] if ".." not in parts:
                return self._wheel(self.folder / "whl" / tag, name)
            case _:
                return DENIED

    def _wheel(self, folder: Path, name: str) -> Answer:
        path = folder / name.removesuffix(".metadata")
        if not name.endswith((".whl", ".whl.metadata", ".tar.gz", ".json")) or not path.is_file():
            return DENIED
        if name.endswith(".metadata"):
            return Answer(200, metadata_of(path), headers=_FILE) if self.habits.metadata else DENIED
        ranges = {} if self.habits.ranges else {"Accept-Ranges": "none"}
        return Answer(200, path.read_bytes(), "application/zip", {**_FILE, **ranges})

    def _wheels(self, tag: str, package: str | None = None) -> list[Path]:
        return _files(self.folder / "whl" / tag, ".whl", package)

    def _packages_page(self, tag: str) -> Answer:
        names = sorted({_package(wheel.name) for wheel in self._wheels(tag)})
        return _html("".join(f'    <a href="{name}/">{name}</a><br/>\n' for name in names))

    def _flat_page(self, tag: str) -> Answer:
        names = [html.escape(wheel.name).replace("+", "&#43;") for wheel in self._wheels(tag)]
        return _html("".join(f'    <a href="{name}">{name}</a>\n' for name in names))

    def _package_page(self, tag: str, package: str, headers: dict[str, str]) -> Answer:
        wheels = self._wheels(tag, package)
        if self.habits.json and JSON in headers.get("accept", ""):
            return _json(
                package, [_json_file(wheel, f"/whl/{tag}/{quote(wheel.name)}") for wheel in wheels]
            )
        return _html(
            f"    <h1>Links for {package}</h1>\n"
            + "".join(self._link(tag, wheel) for wheel in wheels)
        )

    def _union_page(self, package: str) -> Answer:
        """List a package for all tags."""
        tags = sorted(folder.name for folder in (self.folder / "whl").iterdir())
        links = (self._link(tag, wheel) for tag in tags for wheel in self._wheels(tag, package))
        return _html(f"    <h1>Links for {package}</h1>\n" + "".join(links))

    def _link(self, tag: str, wheel: Path) -> str:
        base = self.r2.url if self.habits.absolute else ""
        fragment = f"#sha256={_facts(wheel).sha256}" if self.habits.hashed(wheel.name) else ""
        digest = f"sha256={_facts(wheel).metadata_sha256}"
        attributes = (
            f' data-dist-info-metadata="{digest}" data-core-metadata="{digest}"'
            if self.habits.metadata
            else ""
        )
        if self.habits.absolute:
            attributes += ' data-upload-time="2026-10-28T15:03:12Z"'
        return f'    <a href="{base}/whl/{tag}/{quote(wheel.name)}{fragment}"{attributes}>{wheel.name}</a><br/>\n'

    def _default(self, path: str, headers: dict[str, str]) -> Answer:
        if not self._allowed(headers):
            return UNAUTHORIZED
        match [unquote(part) for part in path.split("/")[1:]]:
            case ["simple", package, ""]:
                return self._simple_page(package, headers)
            case ["files", name] if ".." not in name:
                answer = self._wheel(self.folder / "simple", name)
                return NOT_FOUND if answer is DENIED else answer
            case _:
                return NOT_FOUND

    def _allowed(self, headers: dict[str, str]) -> bool:
        from base64 import b64encode

        credentials = self.habits.credentials
        if credentials is None:
            return True
        return headers.get("authorization") == f"Basic {b64encode(credentials.encode()).decode()}"

    def _simple_page(self, package: str, headers: dict[str, str]) -> Answer:
        folder = self.folder / "simple"
        found = [*_files(folder, ".whl", package), *_files(folder, ".tar.gz", package)]
        if not found:
            return NOT_FOUND
        files = [_json_file(path, f"{self.default.url}/files/{quote(path.name)}") for path in found]
        if not self.habits.metadata:
            files = [{**file, "core-metadata": False} for file in files]
        if JSON in headers.get("accept", ""):
            return _json(package, files)
        return _html("".join(_simple_link(file) for file in files))


@dataclass(frozen=True)
class _Facts:
    sha256: str
    metadata_sha256: str
    requires_python: str | None


_KNOWN: dict[tuple[int, int, int, str], _Facts] = {}
"""By the file itself: the same wheel lies in the folders of many tests."""


def _facts(wheel: Path) -> _Facts:
    found = wheel.stat()
    file = (found.st_dev, found.st_ino, found.st_mtime_ns, wheel.name)
    if file not in _KNOWN:
        _KNOWN[file] = _read_facts(wheel)
    return _KNOWN[file]


def _read_facts(wheel: Path) -> _Facts:
    metadata = (
        metadata_of(wheel)
        if wheel.suffix == ".whl"
        else b"Metadata-Version: 2.2\nName: x\nVersion: 1\n"
    )
    python = Metadata.from_email(metadata, validate=False).requires_python
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    return _Facts(
        sha256, hashlib.sha256(metadata).hexdigest(), None if python is None else str(python)
    )


def _files(folder: Path, ending: str, package: str | None) -> list[Path]:
    """The files of a package in a folder, or of all; hundreds lie there, and each page lists them anew."""
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return [
        folder / name
        for name in names
        if name.endswith(ending) and package in {None, _package(name)}
    ]


@cache
def _package(filename: str) -> str:
    return canonicalize_name(filename.partition("-")[0])


def _version(filename: str) -> str:
    return (
        str(parse_sdist_filename(filename)[1])
        if filename.endswith(".tar.gz")
        else filename.split("-")[1]
    )


def _html(body: str) -> Answer:
    page = (
        f"<!DOCTYPE html>\n<html>\n  <body>\n{body}  </body>\n</html>\n<!--TIMESTAMP 1793199792-->"
    )
    return Answer(200, page.encode(), "text/html", _PAGE)


def _json(package: str, files: list[dict[str, Any]]) -> Answer:
    versions = sorted({_version(file["filename"]) for file in files})
    document = {
        "meta": {"api-version": "1.1"},
        "name": package,
        "versions": versions,
        "files": files,
    }
    return Answer(200, json.dumps(document).encode(), JSON, _PAGE)


def _json_file(wheel: Path, url: str) -> dict[str, Any]:
    facts = _facts(wheel)
    return {
        "filename": wheel.name,
        "url": url,
        "hashes": {"sha256": facts.sha256},
        "size": wheel.stat().st_size,
        "core-metadata": {"sha256": facts.metadata_sha256} if wheel.suffix == ".whl" else False,
        "requires-python": facts.requires_python,
        "yanked": False,
    }


def _simple_link(file: dict[str, Any]) -> str:
    python = html.escape(file["requires-python"] or "")
    href = f"{file['url']}#sha256={file['hashes']['sha256']}"
    attributes = f'data-requires-python="{python}"'
    if file["core-metadata"]:
        attributes += f' data-core-metadata="sha256={file["core-metadata"]["sha256"]}"'
    return f'    <a href="{href}" {attributes}>{file["filename"]}</a><br/>\n'


def main() -> None:
    """Serve a small catalogue and say where."""
    import argparse
    import tempfile
    import threading
    from pathlib import Path

    from tests.lab.releases import catalog_index

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="the wheels to serve (default: make them)")
    parser.add_argument("--hashes", action="store_true", help="give a sha256 for every file")
    parser.add_argument("--flat", action="store_true", help="behave as a mirror with flat pages")
    arguments = parser.parse_args()
    folder = arguments.folder or catalog_index(Path(tempfile.mkdtemp(prefix="stand-in-")))
    habits = Habits(hashed=lambda _name: arguments.hashes, flat=arguments.flat)
    with StandInIndex(folder, habits, arguments.port) as index:
        for name, value in index.environment().items():
            sys.stdout.write(f"export {name}={value!r}\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    main()
