"""Tests of sources in the pyproject.toml of downloaded projects."""

from __future__ import annotations

import subprocess

import pytest

from tests.frozen import GPUINSTALL
from tests.lab.cases import mostly_heavy
from tests.lab.git_host import commit
from tests.lab.host import NOT_FOUND, Answer, Host
from tests.lab.wheels import pack_sdist

HEAD = '[project]\nname = "tool"\nversion = "1.0"\n'
BUILT = 'dynamic = ["dependencies"]\n[build-system]\nbuild-backend = "gone"\n'


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
        commit(tmp_path / "tool", {"pyproject.toml": text})
        address = f"git+{(tmp_path / 'tool').as_uri()}"
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
