"""A simulated index of prebuilt extensions, like Astral's.

Pages are JSON without content negotiation, one for each channel and package. Channels
are the tags of PyTorch's backends. A file is at ``/artifacts/<sha256>/<name>``, with
its METADATA next to it. File names contain CUDA and torch in one of two forms.
"""

import hashlib
import io
import json
import zipfile
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from urllib.parse import quote, unquote

from tests.lab.host import NOT_FOUND, Answer, Host
from tests.lab.wheels import metadata_of
from tests.unit.wheels.made import archive


@dataclass
class ExtensionIndex:
    """The listed files by channel and package.

    ``addresses`` contains the requested URLs.
    """

    files: dict[tuple[str, str], dict[str, bytes]] = field(default_factory=dict)
    addresses: list[str] = field(default_factory=list)
    url: str = ""

    def add(
        self,
        channel: str,
        package: str,
        local: str,
        library: Path | None,
        *,
        version: str = "2.8.3",
        requires: str | None = None,
        named: str | None = None,
        tag: str = "cp312-cp312-manylinux_2_28_x86_64",
    ) -> str:
        """Add a wheel with one library to the index.

        ``requires`` is the torch requirement in METADATA. ``named`` is another version
        in the file name.
        """
        module, full = (
            package.replace("-", "_"),
            f"{version}+{local}" if local else version,
        )
        record = f"{module}-{full}.dist-info"
        demand = f"Requires-Dist: {requires}\n" if requires else ""
        metadata = f"Metadata-Version: 2.4\nName: {package}\nVersion: {named or full}\n{demand}"
        held = {
            f"{record}/METADATA": metadata.encode(),
            f"{record}/WHEEL": b"Wheel-Version: 1.0\n",
            f"{module}/__init__.py": b"",
        }
        name = f"{module}-{full}-{tag}.whl"
        held |= {f"{module}/_C.so": library.read_bytes()} if library else {}
        held[f"{record}/RECORD"] = "".join(f"{path},,\n" for path in held).encode()
        self.files.setdefault((channel, package), {})[name] = archive(held)
        return name

    def respond(self, path: str, _headers: dict[str, str]) -> Answer:
        """Respond like the index to any Accept header."""
        self.addresses.append(path)
        parts = unquote(path).strip("/").split("/")
        if parts[0] == "artifacts":
            wheels = {
                _digest(data): data
                for files in self.files.values()
                for data in files.values()
            }
            data = wheels.get(parts[1])
            if data is None:
                return NOT_FOUND
            return Answer(body=_metadata(data) if path.endswith(".metadata") else data)
        files = self.files.get((parts[-2], parts[-1]))
        if files is None:
            return NOT_FOUND
        page = {
            "meta": {"api-version": "1.4"},
            "name": parts[-1],
            "files": [_entry(*file) for file in files.items()],
        }
        return Answer(
            body=json.dumps(page).encode(),
            content_type="application/vnd.pypi.simple.v1+json",
        )

    def host(self) -> Host:
        """Serve the index on loopback."""
        return Host("extensions", self.respond)


def _entry(name: str, data: bytes) -> dict[str, object]:
    return {
        "core-metadata": {"sha256": _digest(_metadata(data))},
        "filename": name,
        "hashes": {"sha256": _digest(data)},
        "requires-python": ">=3.9",
        "size": len(data),
        "upload-time": "2026-08-19T10:00:00Z",
        "url": f"/artifacts/{_digest(data)}/{quote(name)}",
    }


@cache
def _metadata(data: bytes) -> bytes:
    """Return the METADATA of a wheel, or an empty text for an invalid one."""
    with suppress(zipfile.BadZipFile):
        return metadata_of(io.BytesIO(data))
    return b""


@cache
def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
