"""Tests that small indexes are resolved as by uv."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

import pytest
import tomli

from gpuinstall.base import process, uv
from tests.lab.cases import mostly_heavy
from tests.lab.driver import NO_GPU
from tests.lab.fixtures import Play
from tests.lab.host import NOT_FOUND, Answer, Host
from tests.lab.wheels import PURE, make_wheel, pack_sdist
from tests.lab.workshop import Workshop

LINES = (Path(__file__).parent / "scenarios.txt").read_text("utf-8").splitlines()
ROWS = [line for line in LINES if line and not line.startswith("#")]
SCENARIOS = {title: rest for title, _, rest in (row.partition(" | ") for row in ROWS)}
PLATFORM = "x86_64-manylinux_2_34"
QUICK = {"label only", "extra that conflicts"}


def make_file(text: str, folder: Path) -> tuple[str, str]:
    """Write a file of the table; return its package and its link."""
    name, version, *words = text.split()
    options = [word.partition(":")[::2] for word in words]
    values = dict(options)
    extras = dict(value.split("=", 1) for key, value in options if key == "extra")
    requires = [one for one in values.get("needs", "").split("&") if one]
    for extra, listed in extras.items():
        requires += [f"{one}; extra == '{extra}'" for one in listed.split("&")]
    python = values.get("python")
    wheel = make_wheel(
        folder,
        name,
        version,
        values.get("tags", PURE),
        requires=requires,
        requires_python=python,
        extras=extras,
    )
    file = wheel
    if "sdist" in values:
        lines = ["Metadata-Version: 2.2", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {one}" for one in requires]
        file = pack_sdist(
            folder, f"{name}-{version}", {"PKG-INFO": "\n".join(lines) + "\n"}
        )
    attributes = f' data-requires-python="{escape(python)}"' if python else ""
    attributes += ' data-yanked=""' if "yanked" in values else ""
    return name, f'<a href="/files/{file.name}"{attributes}>{file.name}</a><br>'


def serve(files: Sequence[str], folder: Path) -> Host:
    """Serve an index with the files of a scenario."""
    pages: dict[str, str] = {}
    for text in files:
        name, link = make_file(text, folder)
        pages[name] = pages.get(name, "") + link

    def respond(path: str, _headers: dict[str, str]) -> Answer:
        name = path.rstrip("/").rpartition("/")[2]
        if path.startswith("/files/"):
            return Answer(body=(folder / name).read_bytes())
        if name not in pages:
            return NOT_FOUND
        return Answer(body=pages[name].encode(), content_type="text/html")

    return Host("index", respond)


@pytest.mark.parametrize("title", mostly_heavy(SCENARIOS, QUICK))
def test_small_index_is_resolved_as_by_uv(
    workshop: Workshop, play: Play, tmp_path: Path, title: str
) -> None:
    listed, requested, *settings = SCENARIOS[title].split(" | ")
    play(NO_GPU)
    files = listed.split(", ")
    index = serve(files, tmp_path / "files")
    lines = [one.replace("\\x20", " ") for one in requested.split()]
    workshop.write("requirements.txt", "\n".join(lines))
    workshop.write("uv.toml", "\n".join(settings))
    here = workshop.having(UV_INDEX=f"{index.url}/simple")
    command = [str(uv.uv()), "pip", "compile", "-q", "--format", "pylock.toml"]
    command += ["--python", sys.executable, "--python-platform", PLATFORM]

    expected = process.run(
        [*command, "requirements.txt"], env=here.environment, cwd=here.folder
    )
    lock = ("lock", "--only", "-r", "requirements.txt", "--backend", "cpu")
    done = here.run(*lock, "--python", sys.executable)
    index.close()

    assert done.ok == expected.ok, expected.err + done.err
    if done.ok:
        names = {text.split()[0] for text in files}
        locked = read_versions(here.lock("pylock.cpu.toml"))
        assert read_versions(expected.out) == {
            name: version for name, version in locked.items() if name in names
        }


def read_versions(lock: str) -> dict[str, str]:
    """Return the locked versions by package."""
    packages = tomli.loads(lock).get("packages", ())
    return {package["name"]: package["version"] for package in packages}
