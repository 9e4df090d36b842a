"""Tests of sources in the pyproject.toml of downloaded projects."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gpuinstall.base import process
from tests.frozen import GPUINSTALL
from tests.lab.cases import mostly_heavy
from tests.lab.host import NOT_FOUND, Answer, Host
from tests.lab.wheels import pack_sdist

HEAD = '[project]\nname = "tool"\nversion = "1.0"\n'
INDEX = '[[tool.uv.index]]\nname = "corp"\nurl = "{host}/simple"\nexplicit = true\n'
SOURCE = '[tool.uv.sources]\nfilelock = { index = "corp" }\n'
BUILT = 'dynamic = ["dependencies"]\n[build-system]\nbuild-backend = "gone"\n'


def repository(folder: Path, pyproject: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "pyproject.toml").write_text(pyproject, "utf-8")
    author = ("-c", "user.name=a", "-c", "user.email=a@b.example")
    for words in (("init", "-q"), ("add", "."), (*author, "commit", "-q", "-m", "x")):
        assert process.run(["git", *words], cwd=folder).ok
    return f"git+{folder.as_uri()}"


@pytest.mark.parametrize("words", ["lock --target cpu", "lock --dry-run", "install"])
def test_index_selected_by_a_repository_is_rejected(here, stranger, tmp_path, words):
    text = f'{HEAD}dependencies = ["filelock"]\n{INDEX}{SOURCE}'
    tree = repository(tmp_path / "tool", text.replace("{host}", stranger.url))
    here.write("requirements.txt", f"torch\ntool @ {tree}\n")

    done = here.run(*words.split())

    assert done.status == 4, done.err
    assert f"filelock would be installed from {stranger.url}" in done.err
    assert "which no configured index uses" in done.err
    assert not here.entries() & {".venv", "pylock.cpu.toml"}


LINES = {
    "by name": "torch\ntool @ {}\n",
    "without a name": "torch\n{}\n",
    "by a constraint": "torch\ntool\n-c limits.txt\n",
}


@pytest.mark.parametrize("lines", mostly_heavy(LINES, {"by a constraint"}))
@pytest.mark.parametrize("kind", ["archive", "repository"])
def test_fetched_build_code_is_reported_before_execution(here, tmp_path, kind, lines):
    messages = tmp_path / "messages"
    heard = []

    def builds(_path, headers):
        # gpuinstall reads the metadata of announced sources, and runs no code.
        is_uv = headers["user-agent"].startswith("uv/")
        heard.append(("Code " if is_uv else "Index ", messages.read_text("utf-8")))
        return NOT_FOUND

    def trees(path, _headers):
        return Answer(body=archive) if path.endswith(".gz") else NOT_FOUND

    build_host, tree_host = Host("builds", builds), Host("trees", trees)
    text = f'{HEAD}{BUILT}requires = ["x @ {build_host.url}/x-1-py3-none-any.whl"]\n'
    archive = pack_sdist(tmp_path, "tool-1.0", {"pyproject.toml": text}).read_bytes()
    address = f"{tree_host.url}/tool.tar.gz"
    if kind == "repository":
        address = repository(tmp_path / "tool", text)
    for name, content in (
        ("requirements.txt", LINES[lines].format(address)),
        ("limits.txt", f"tool @ {address}\n"),
    ):
        here.write(name, content)

    with messages.open("w", encoding="utf-8") as file:
        subprocess.run(
            [*GPUINSTALL, "lock", "-q", "--target", "cpu"],
            env=here.environment,
            cwd=here.folder,
            stderr=file,
            check=False,
        )
    build_host.close()
    tree_host.close()

    assert heard
    assert [text for line, text in heard if line not in text] == []
    assert "Code " in {line for line, _ in heard}


@pytest.mark.parametrize("name", ["tool.tar.gz", "tool-1.0-py3-none-any.whl"])
def test_failed_download_does_not_report_build_code(here, stranger, name):
    line = f"torch\n{stranger.url}/{name}\n"
    here.write("requirements.txt", line)

    done = here.run("lock", "--target", "cpu")

    assert done.status == 4, done.err
    assert "Code " not in done.err


@pytest.mark.parametrize("trust", mostly_heavy(["0", "1"], ["1"]))
@pytest.mark.parametrize(
    ("inside", "status"),
    [("inner", 0), ("./inner/", 0), ("../outside", 2)],
)
def test_subdirectory_outside_its_repository_is_rejected(
    here, tmp_path, inside, status, trust
):
    folder = tmp_path / "tool"
    for place in (folder / "inner", tmp_path / "outside"):
        place.mkdir(parents=True)
        (place / "pyproject.toml").write_text(HEAD, "utf-8")
    tree = repository(folder, HEAD)
    lines = f"torch\ntool @ {tree}#subdirectory={inside}\n"
    here.write("requirements.txt", lines)
    trusted = f'trusted-sources = ["{folder.as_uri()}"]\n'
    config = here.folder.parent / "config"
    (config / "gpuinstall").mkdir(parents=True)
    (config / "gpuinstall" / "config.toml").write_text(trusted, "utf-8")
    wary = here.having(GPUINSTALL_TRUST_FOLDER=trust, XDG_CONFIG_HOME=str(config))

    done = wary.run("lock", "--target", "cpu")

    assert done.status == status, done.err
    assert ("outside its source tree" in done.err) == bool(status)
