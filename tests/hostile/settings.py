"""Settings of a stranger's that choose a source, in every file and spelling, and the host that they choose."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.lab.host import NOT_FOUND, Answer, Host

TORCH = "2.14.1"
FILES = {
    "uv.toml": ("uv.toml", "{key} = {value}\n"),
    "uv.toml above": ("../uv.toml", "{key} = {value}\n"),
    "[pip] of uv.toml": ("uv.toml", "[pip]\n{key} = {value}\n"),
    "[tool.uv]": ("pyproject.toml", "[tool.uv]\n{key} = {value}\n"),
    "[tool.uv.pip]": ("pyproject.toml", "[tool.uv.pip]\n{key} = {value}\n"),
}
KEYS = ("find-links", "index-url")
SPELLINGS = {
    "with a slash": "{0}/",
    "with another case": "HTTP://LOCALHOST{1}/",
    "with a login": "http://me:secret@127.0.0.1{1}/",
    "of a folder with a slash": "file://{2}/",
    "of a folder with dots": "file://{2}/../evil//",
}


@dataclass(frozen=True)
class Evil:
    """A host with the only torch of a release beside the usual packages, and a folder with the same files."""

    host: Host
    folder: Path

    @classmethod
    def beside(cls, index):
        """Take torch from an index and put it on a host of the stranger's."""
        folder = index.folder.parent / "evil"
        folder.mkdir()
        for wheel in (index.folder / "whl" / "cpu").glob(f"torch-{TORCH}*"):
            shutil.move(wheel, folder)

        def respond(path, headers):
            place = folder / path.rpartition("/")[2]
            if place.is_file():
                return Answer(body=place.read_bytes())
            if path.strip("/").partition("/")[2]:
                return index.default.respond(path.replace("/whl/", "/simple/"), headers)
            links = "".join(f'<a href="/{each.name}">{each.name}</a>' for each in folder.iterdir())
            return (
                Answer(body=links.encode(), content_type="text/html")
                if path.startswith("/whl")
                else NOT_FOUND
            )

        return cls(Host("evil", respond), folder)

    def choose(self, here, file, key, spelling):
        """Write the setting into a project, and return its file."""
        port = self.host.url.rpartition(":")[2]
        address = SPELLINGS[spelling].format(f"{self.host.url}/whl", f":{port}/whl", self.folder)
        name, form = FILES[file]
        path = here.folder / name
        value = f'["{address}"]' if key == "find-links" else f'"{address}"'
        path.write_text(form.format(key=key, value=value), encoding="utf-8")
        return path
