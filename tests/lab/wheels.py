"""Small, reproducible wheels with real names, tags, metadata, and RECORD."""

import base64
import hashlib
import io
import itertools
import re
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO

from packaging.utils import canonicalize_name

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
    extras: Iterable[str] = (),
    description: str = "",
    modules: Mapping[str, str | bytes] | None = None,
) -> Path:
    """Write ``<name>-<version>-<tags>.whl`` into ``folder``.

    Without ``modules``, it contains one empty package.
    """
    module = canonicalize_name(name).replace("-", "_")
    if modules is None:
        modules = {f"{module}/__init__.py": ""}
    info = f"{module}-{version}.dist-info"
    metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    if requires_python:
        metadata.append(f"Requires-Python: {requires_python}")
    metadata += [f"Provides-Extra: {extra}" for extra in extras]
    metadata += [f"Requires-Dist: {requirement}" for requirement in requires]
    metadata += ["", description, ""]
    texts = {
        **modules,
        f"{info}/METADATA": "\n".join(metadata),
        f"{info}/WHEEL": _wheel(tags),
    }
    files = {}
    for file, text in texts.items():
        files[file] = text if isinstance(text, bytes) else text.encode()
    files[f"{info}/RECORD"] = record(files, f"{info}/RECORD")

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{module}-{version}-{tags}.whl"
    # It may be a hard link to a shared wheel.
    path.unlink(missing_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file, data in files.items():
            entry = zipfile.ZipInfo(file, _EPOCH)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return path


def _wheel(tags: str) -> str:
    is_pure = str(tags == PURE).lower()
    lines = ["Wheel-Version: 1.0", "Generator: lab", f"Root-Is-Purelib: {is_pure}"]
    alternatives = [part.split(".") for part in tags.split("-")]
    lines += [f"Tag: {'-'.join(tag)}" for tag in itertools.product(*alternatives)]
    return "\n".join(lines) + "\n"


def record(files: Mapping[str, bytes], name: str) -> bytes:
    """Return the RECORD of a wheel's files and of itself."""
    lines = []
    for file, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
        lines.append(f"{file},sha256={digest.decode().rstrip('=')},{len(data)}\n")
    lines.append(f"{name},,\n")
    return "".join(lines).encode()


def metadata_of(wheel: Path | IO[bytes]) -> bytes:
    """Return the contents of a wheel's METADATA."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(filter(_METADATA.fullmatch, archive.namelist()))
        return archive.read(name)


def pack_sdist(folder: Path, stem: str, files: Mapping[str, str]) -> Path:
    """Write ``<stem>.tar.gz`` with these files in a folder of this name."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{stem}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            data = text.encode()
            entry = tarfile.TarInfo(f"{stem}/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return path
