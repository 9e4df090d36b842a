"""Makes small real wheels: right names, tags, metadata and record, and the same bytes every time."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import tarfile
import zipfile
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

PURE = "py3-none-any"
_METADATA = re.compile(r"[^/]+\.dist-info/METADATA")
_EPOCH = (1980, 1, 1, 0, 0, 0)


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    tags: str = PURE,
    *,
    requires: Iterable[str] = (),
    requires_python: str | None = None,
    modules: Mapping[str, str | bytes] | None = None,
) -> Path:
    """Write ``<name>-<version>-<tags>.whl`` into ``folder``; without ``modules`` it holds one empty package."""
    module = canonicalize_name(name).replace("-", "_")
    stem = f"{module}-{version}"
    files: dict[str, str | bytes] = dict(
        modules if modules is not None else {f"{module}/__init__.py": ""}
    )
    files[f"{stem}.dist-info/METADATA"] = _metadata(name, version, requires, requires_python)
    files[f"{stem}.dist-info/WHEEL"] = _wheel(tags)
    files[f"{stem}.dist-info/RECORD"] = _record(files, f"{stem}.dist-info/RECORD")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}-{tags}.whl"
    path.unlink(missing_ok=True)  # it may be a hard link to the wheel of all tests
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, text in files.items():
            archive.writestr(_entry(file), text)
    return path


def metadata_of(wheel: Path) -> bytes:
    """Read a wheel's METADATA."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(next(name for name in archive.namelist() if _METADATA.fullmatch(name)))


def _metadata(name: str, version: str, requires: Iterable[str], requires_python: str | None) -> str:
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Python: {requires_python}"] if requires_python else []
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    return "\n".join(lines) + "\n"


def _wheel(tags: str) -> str:
    interpreters, abis, platforms = (part.split(".") for part in tags.split("-"))
    pure = str(tags == PURE).lower()
    lines = ["Wheel-Version: 1.0", "Generator: lab", f"Root-Is-Purelib: {pure}"]
    lines += [
        f"Tag: {python}-{abi}-{platform}"
        for python in interpreters
        for abi in abis
        for platform in platforms
    ]
    return "\n".join(lines) + "\n"


def _record(files: Mapping[str, str | bytes], itself: str) -> str:
    held = {
        name: data if isinstance(data, bytes) else data.encode() for name, data in files.items()
    }
    rows = [f"{name},sha256={_digest(data)},{len(data)}" for name, data in held.items()]
    return "\n".join([*rows, f"{itself},,"]) + "\n"


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.external_attr = 0o644 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def make_sdist(
    folder: Path, name: str, version: str, *, requires: Iterable[str] = (), setup: str = ""
) -> Path:
    """Write ``<name>-<version>.tar.gz``, whose metadata can be read without building it, unless it has a ``setup``."""
    stem = f"{canonicalize_name(name).replace('-', '_')}-{version}"
    dependencies = json.dumps(list(requires))
    project = f'[project]\nname = "{name}"\nversion = "{version}"\ndependencies = {dependencies}\n'
    files = {
        "PKG-INFO": _metadata(name, version, requires, None).replace("2.1", "2.2", 1),
        "pyproject.toml": project,
    }
    if setup:
        files = {"PKG-INFO": _metadata(name, version, (), None), "setup.py": setup}
    path = folder / f"{stem}.tar.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for file, text in files.items():
            entry = tarfile.TarInfo(f"{stem}/{file}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return path
