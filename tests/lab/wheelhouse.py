"""What the tool's environment is made of, as wheels packed again from the packages that run the tests: no network."""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.markers import Marker

from tests.lab.clone import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

LEFT_OUT = {"INSTALLER", "RECORD", "REQUESTED", "direct_url.json", "uv_cache.json"}
UNREAD = re.compile(r"pygments/(lexers|styles)/(?!__init__|_mapping)")
"""Half of all lines: languages that rich could colour and the tool does not; each environment would compile them."""
PIN = re.compile(r"^([\w.-]+)==(\S+)(?: ; (.+))? \\$", re.MULTILINE)


@dataclass(frozen=True)
class Wheelhouse:
    """A folder of wheels, and pins with their hashes in place of those of the default index."""

    folder: Path

    @property
    def settings(self) -> dict[str, str]:
        """What has pip and uv look here alone, with a cache that lies beside it."""
        links = str(self.folder / "wheels")
        cache = {"UV_CACHE_DIR": str(self.folder / "cache"), "PIP_NO_CACHE_DIR": "1"}
        return {**cache, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": links}

    def supply(self, clone: Path) -> Path:
        """Let a clone take its pinned packages from here."""
        for name in ("uv.txt", "tool.txt"):
            (clone / "lockfiles" / name).write_bytes((self.folder / name).read_bytes())
        return clone


def make_wheelhouse(folder: Path) -> Wheelhouse:
    """Pack every package of the tool's own lockfiles that this Python has."""
    (folder / "wheels").mkdir(parents=True)
    for name in ("uv.txt", "tool.txt"):
        (folder / name).write_text("".join(packed(ROOT / "lockfiles" / name, folder / "wheels")))
    return Wheelhouse(folder)


def packed(lockfile: Path, folder: Path) -> Iterator[str]:
    """Pack what a lockfile pins for this Python, and name the same pins with the hashes of what was packed."""
    for name, version, marker in PIN.findall(lockfile.read_text("utf-8")):
        if not marker or Marker(marker).evaluate():
            wheel = folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
            yield f"{name}=={version} \\\n    --hash=sha256:{pack(name, wheel)}\n"


def pack(name: str, wheel: Path) -> str:
    """Write a wheel of an installed package unless it is there; the value is its sha256."""
    if not wheel.exists():
        files = dict(contents(name))
        info = next(file.partition("/")[0] for file in files if ".dist-info/" in file)
        files[f"{info}/WHEEL"] = (
            b"Wheel-Version: 1.0\nGenerator: lab\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        rows = [f"{file},sha256={digest(data)},{len(data)}" for file, data in files.items()]
        files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
        with zipfile.ZipFile(wheel, "w") as archive:
            for file, data in files.items():
                entry = zipfile.ZipInfo(file)
                entry.external_attr = (0o755 if ".data/scripts/" in file else 0o644) << 16
                archive.writestr(entry, data)
    return hashlib.sha256(wheel.read_bytes()).hexdigest()


def contents(name: str) -> Iterator[tuple[str, bytes]]:
    """Each file of an installed package by its name in a wheel; what pip and uv write themselves is left out."""
    found = distribution(name)
    scripts = {entry.name for entry in found.entry_points if entry.group == "console_scripts"}
    for file in found.files or ():
        if "__pycache__" in file.parts or UNREAD.match(str(file)):
            continue
        if file.parent.name.endswith(".dist-info") and file.name in LEFT_OUT:
            continue
        if file.parts[0] != "..":
            yield str(file), Path(str(file.locate())).read_bytes()
        elif file.name not in scripts:
            yield (
                f"{name}-{found.version}.data/scripts/{file.name}",
                Path(str(file.locate())).read_bytes(),
            )


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
