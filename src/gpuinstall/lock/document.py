"""The PEP 751 document of a lock: what uv resolved, cut down to what one target needs and written in one way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from gpuinstall.errors import InstallationError, InternalError
from gpuinstall.lock.inputs import digest
from gpuinstall.lock.project import is_unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuinstall.lock.target import Target


@dataclass(frozen=True)
class LockedFile:
    """One file that a lock names, by its address; ``sha256`` is None while it is not known."""

    package: str
    url: str
    sha256: str | None = None

    @property
    def name(self) -> str:
        """The name of the file."""
        return unquote(urlsplit(self.url).path.rpartition("/")[2])


@dataclass(frozen=True)
class Evidence:
    """What the lock was made from and for. By the standard it may not steer an installation.

    ``files`` are the digests of the requirements files among its inputs, by their paths from the lock's folder.
    """

    inputs: tuple[str, ...]
    torch: str
    backend: str
    catalogue: str
    asked: str | None = None
    architectures: tuple[str, ...] = ()
    floors: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Write it for ``[tool.gpuinstall]``."""
        written: dict[str, Any] = {
            "inputs": list(self.inputs),
            "inputs-digest": digest(self.inputs),
            "torch": self.torch,
            "backend": self.backend,
            "catalogue": self.catalogue,
        }
        written |= {"asked": self.asked} if self.asked else {}
        written |= {"architectures": list(self.architectures)} if self.architectures else {}
        written |= {"floors": dict(self.floors)} if self.floors else {}
        return written | ({"requirements-files": dict(self.files)} if self.files else {})


def files(resolved: Mapping[str, Any]) -> tuple[LockedFile, ...]:
    """The files of uv's lock that will be locked: wheels, and a source distribution only where there is no wheel."""
    return tuple(file for package in resolved.get("packages", ()) for file in _files(package))


def document(
    resolved: Mapping[str, Any], hashes: Mapping[str, str], target: Target, python: str, evidence: Evidence
) -> dict[str, Any]:
    """Build the lock of ``target`` for Python ``X.Y``; ``hashes`` are by address."""
    return {
        "lock-version": "1.0",
        "environments": [target.marker],
        "requires-python": f"=={python}.*",
        "created-by": "gpuinstall",
        "packages": [_package(package, hashes) for package in resolved.get("packages", ())],
        "tool": {"gpuinstall": evidence.to_dict()},
    }


def _package(package: Mapping[str, Any], hashes: Mapping[str, str]) -> dict[str, Any]:
    kept = {key: package[key] for key in ("name", "version", "marker") if key in package}
    if package.get("wheels"):
        return kept | {"wheels": [_file(entry, hashes) for entry in package["wheels"]]}
    for kind in ("sdist", "archive"):
        if kind in package:
            return kept | {kind: _file(package[kind], hashes)}
    raise _unhashable(package)


def _file(entry: Mapping[str, Any], hashes: Mapping[str, str]) -> dict[str, Any]:
    sha256 = hashes.get(entry["url"])
    if sha256 is None or is_unknown(sha256):
        raise InternalError("hash-missing", f"{entry['url']} has no hash")
    return {"url": entry["url"], "hashes": {"sha256": sha256}}


def _files(package: Mapping[str, Any]) -> Iterator[LockedFile]:
    entries = package.get("wheels") or [package[kind] for kind in ("sdist", "archive") if kind in package]
    if not entries or not all("url" in entry for entry in entries):
        raise _unhashable(package)
    for entry in entries:
        sha256 = entry.get("hashes", {}).get("sha256")
        yield LockedFile(package["name"], entry["url"], None if sha256 and is_unknown(sha256) else sha256)


def _unhashable(package: Mapping[str, Any]) -> InstallationError:
    return InstallationError(
        "not-lockable",
        f"{package['name']} comes from a folder or a repository, which no hash can pin",
        hint=f"ask for a release of {package['name']}, or install it into the environment afterwards",
    )
