"""Tests that files with too many entries are rejected."""

import os
import re

import pytest

from gpuinstall.base.errors import GpuInstallError, LockError
from gpuinstall.base.text import sanitize
from gpuinstall.lock.file.lock import parse
from gpuinstall.project import open_project
from gpuinstall.project.request import read_request

NUMBERS = range(12_000)
HEAD = '[project]\nname = "x"\nversion = "1"\n'
DEPENDENCIES = ("dependencies = [", "]\n")
EXTRAS = ("[project.optional-dependencies]\n", "")
GROUPS = ("[dependency-groups]\n", "")
PACKAGE = '[[package]]\nname = "pN"\n'
PIP = "dependencies:\n  - pip:\n"


def many(text: str, sign: str = "") -> str:
    return sign.join(text.replace("N", str(number)) for number in NUMBERS)


FILES = {
    "requirements": ("requirements.txt", many("pN\n")),
    "requirements of one package": ("requirements.txt", many("six!=N\n")),
    "clauses": ("requirements.txt", f"six>0{many(',!=N')}"),
    "clauses of torch": ("requirements.txt", f"torch>=2{many(',!=2.N.*')}"),
    "extras of a requirement": ("requirements.txt", f"six[{many('eN', ',')}]"),
    "dependencies": ("pyproject.toml", HEAD + many('"pN",').join(DEPENDENCIES)),
    "extras": ("pyproject.toml", HEAD + many("eN = []\n").join(EXTRAS)),
    "groups": ("pyproject.toml", HEAD + many("gN = []\n").join(GROUPS)),
    "packages of uv.lock": ("uv.lock", many(PACKAGE)),
    "packages of poetry.lock": ("poetry.lock", many(PACKAGE)),
    "conda": ("environment.yml", "dependencies:\n" + many("  - pN\n")),
    "conda's pip": ("environment.yml", PIP + many("    - pN\n")),
}


@pytest.mark.parametrize("name", FILES)
def test_large_inputs_are_rejected_with_their_limit(tmp_path, monkeypatch, name):
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.chdir(tmp_path)
    file, text = FILES[name]
    if file.endswith(".lock"):
        (tmp_path / "pyproject.toml").write_text(HEAD, "utf-8")
    (tmp_path / file).write_text(text, "utf-8")

    with pytest.raises(GpuInstallError) as refused, open_project(tmp_path) as project:
        read_request(project)

    assert re.search(r"has \d{5,6} .*; at most 10000 are allowed$", str(refused.value))


def test_lock_with_too_many_wheels_is_rejected():
    wheels = many('{url = "https://h.example/x-1-py3-none-any.whl"},')
    text = f'lock-version = "1.0"\n[[packages]]\nname = "x"\nwheels = [{wheels}]\n'
    with pytest.raises(LockError, match="wheels has 12000 entries"):
        parse("pylock.toml", text)


def test_each_line_of_a_message_is_shortened():
    assert len(sanitize("x\n" + "x" * 2_000_000, keep="\n")) < 10_000
