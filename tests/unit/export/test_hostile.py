"""Exports of malicious locks: text cannot start a line or leave its quotes."""

import pytest
import tomli
import tomli_w

from gpuinstall.base.errors import GpuInstallError
from gpuinstall.export.dockerfile import format_dockerfile, format_image_dockerfile
from gpuinstall.export.formats import (
    format_conda_environment,
    format_constraints_file,
    format_requirements_file,
)
from gpuinstall.export.uv_project import format_uv_tables
from gpuinstall.lock.file.lock import parse
from tests.unit.export.locks import INDEX, cuda_lock, wheel

SOUND = cuda_lock("cu126", wheel("extra", "1.0"))
TEXTS = (
    "\nRUN touch executed\n",
    "\\\nRUN touch executed",
    "\r\n- evil",
    "\u2028RUN touch executed",
    "a\x00b",
    "\x1b[2K\rFORGED",
    "\u202e",
    "$(touch executed)",
    "`touch executed`",
    "'; touch executed; '",
    '"; x; "',
    "${HOME}",
    "{0}",
    "%s",
    " # all is well",
    " --index-url https://evil.example",
    ":",
)
PLACES = (
    "file name",
    "host",
    "address",
    "folder",
    "name",
    "version",
    "marker",
    "Python",
    "system",
    "request",
)
FORMATS = {
    "constraints": format_constraints_file,
    "requirements": format_requirements_file,
    "conda": format_conda_environment,
    "dockerfile": lambda lock: format_dockerfile(lock, ("jupyter",)),
    "image": lambda lock: format_image_dockerfile([lock], ("ssh",)),
    "uv": lambda lock: format_uv_tables([lock], INDEX),
}
REFUSED = {
    "requirements": "folder",
    "conda": "folder",
    "dockerfile": "file name",
    "image": "file name",
}
"""The lock field whose hostile text a format cannot express."""


def hostile(place, text):
    """Return the valid lock with a text in one field."""
    document = tomli.loads(SOUND.text)
    packages = {package["name"]: package for package in document["packages"]}
    extra, file = packages["extra"], packages["torch"]["wheels"][0]
    name = SOUND.name
    match place:
        case "file name":
            name = f"pylock.cu126{text}.toml"
        case "host":
            file["url"] = file["url"].replace("index", f"index{text}")
        case "address":
            file["url"] += text
        case "folder":
            [archive] = extra.pop("wheels")
            archive["url"] = f"{INDEX}/extra-1.0.zip"
            extra["archive"] = {**archive, "subdirectory": f"inside{text}"}
        case "Python":
            document["requires-python"] = f"===3.12{text}"
        case "system":
            document["environments"] = [f"sys_platform != 'x{text}'"]
        case "request":
            document["tool"]["gpuinstall"]["inputs"] = [f"torch{text}"]
        case "marker":
            extra["marker"] = f"sys_platform != 'x{text}'"
        case _:
            extra[place] += text
    return parse(name, tomli_w.dumps(document))


@pytest.mark.parametrize("name", FORMATS)
def test_exported_lock_text_is_quoted(name):
    write = FORMATS[name]
    sound = write(SOUND).count("\n")
    faults = []
    for place in PLACES:
        for text in TEXTS:
            try:
                lines = write(hostile(place, text)).split("\n")
            except GpuInstallError:
                continue
            raw = [line for line in lines if not line.isprintable()]
            has_more = name != "dockerfile" and len(lines) > sound + 1
            commands = [
                line
                for line in lines
                if line.lstrip().startswith(("RUN touch", "- evil"))
            ]
            if place == REFUSED.get(name) or raw or has_more or commands:
                faults.append((place, text, raw[:1], has_more, commands))
    assert faults == []
