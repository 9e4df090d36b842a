"""Locks of a stranger's: what a format cannot quote is refused, and nothing in it begins a line or moves a cursor."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
import tomli
import tomli_w

from gpuinstall.base.errors import GpuInstallError
from gpuinstall.export.dockerfile import any_dockerfile, dockerfile
from gpuinstall.export.formats import conda, constraints, requirements
from gpuinstall.export.uv_project import uv_tables
from gpuinstall.lock.file.lock import Lock, parse
from tests.unit.export.locks import INDEX, cuda_lock, wheel

SOUND = cuda_lock("cu126", wheel("extra", "1.0"))
TEXTS = (
    *(
        "\nRUN touch executed\n",
        "\\\nRUN touch executed",
        "\r\n- evil",
        "\u2028RUN touch executed",
        "a\x00b",
    ),
    *(
        "\x1b[2K\rFORGED",
        "\u202e",
        "$(touch executed)",
        "`touch executed`",
        "'; touch executed; '",
        '"; x; "',
    ),
    *(
        "${HOME}",
        "{0}",
        "%s",
        " # all is well",
        " --index-url https://evil.example",
        ":",
    ),
)


class Written(NamedTuple):
    """How a format is written, and the places of a lock whose hostile text it cannot hold."""

    write: Callable[[Lock], str]
    refused: frozenset[str] = frozenset()


def hostile(place, text):
    """The sound lock with a text in one place; raise LockError where the lock is none."""
    document = tomli.loads(SOUND.text)
    packages = {package["name"]: package for package in document["packages"]}
    extra, file = packages["extra"], packages["torch"]["wheels"][0]
    if place == "file name":
        return parse(f"pylock.cu126{text}.toml", SOUND.text)
    if place == "host":
        file["url"] = file["url"].replace("index", f"index{text}")
    elif place == "address":
        file["url"] += text
    elif place == "folder":
        hashes = extra.pop("wheels")[0]["hashes"]
        extra["archive"] = {
            "url": f"{INDEX}/extra-1.0.zip",
            "hashes": hashes,
            "subdirectory": f"inside{text}",
        }
    elif place == "Python":
        document["requires-python"] = f"===3.12{text}"
    elif place == "system":
        document["environments"] = [f"sys_platform != 'x{text}'"]
    elif place == "request":
        document["tool"]["gpuinstall"]["inputs"] = [f"torch{text}"]
    elif place == "marker":
        extra["marker"] = f"sys_platform != 'x{text}'"
    else:
        extra[place] += text
    return parse(SOUND.name, tomli_w.dumps(document))


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
ADDRESSED, NAMED = frozenset({"folder"}), frozenset({"file name"})
WRITTEN = {
    **{form.__name__: Written(form) for form in (constraints, requirements, conda)},
    "dockerfile": Written(lambda lock: dockerfile(lock, ("jupyter",)), NAMED),
    "image": Written(lambda lock: any_dockerfile([lock], ("ssh",)), NAMED),
    "uv": Written(lambda lock: uv_tables([lock], INDEX)),
}
for name in ("requirements", "conda"):
    WRITTEN[name] = WRITTEN[name]._replace(refused=ADDRESSED)


@pytest.mark.parametrize("name", WRITTEN)
def test_no_text_of_a_lock_begins_a_line_or_leaves_its_quotes(name):
    form, faults = WRITTEN[name], []
    sound = form.write(SOUND).count("\n")
    for place in PLACES:
        for text in TEXTS:
            try:
                written = form.write(hostile(place, text))
            except GpuInstallError:
                continue
            raw = [line for line in written.split("\n") if not line.isprintable()]
            more = name != "dockerfile" and written.count("\n") > sound
            commands = [
                line
                for line in written.split("\n")
                if line.lstrip().startswith(("RUN touch", "- evil"))
            ]
            if place in form.refused or raw or more or commands:
                faults.append((place, text, raw[:1], more, commands))
    assert faults == []
