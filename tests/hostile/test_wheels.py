"""Wheels of a stranger that write where they may not: the environment that is there stays as it was."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gpuinstall.base import process, uv
from tests.lab.index import StandInIndex
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

HOSTILE = {
    "settings": {"settings-1.0.data/data/pyvenv.cfg": "home = /evil"},
    "record": {
        "record-1.0.data/purelib/torch-2.8.3.dist-info/METADATA": "Name: torch\nVersion: 2.8.3\n"
    },
    "intruding": {"intruding.py": "", "torch/evil.py": "evil = True"},
    "tool": {"tool.py": "", "pip/__init__.py": "evil = True"},
    "replaced": {"replaced.py": "", "r.py": "", "numpy/__init__.py": "evil = True"},
}


@pytest.fixture
def here(stand_in: StandInIndex, stand_in_folder: Path, tmp_path: Path) -> Workshop:
    (tmp_path / "project").mkdir()
    for name, modules in HOSTILE.items():
        make_wheel(stand_in_folder / "simple", name, "1.0", modules=modules)
    return Workshop(tmp_path / "project", tmp_path / "caches", stand_in.environment())


@pytest.mark.heavy
def test_a_wheel_that_writes_where_it_may_not_is_not_installed(here):
    here.document("install", "--backend", "cpu", "numpy")
    before = (here.folder / ".venv" / "gpuinstall.json").read_text()
    wrong = {}
    for name in HOSTILE:
        error = here.document("install", name, exit_code=4)["errors"][0]
        if error["code"] != "foreign-files" or f"'{name}!=1.0'" not in error["hint"]:
            wrong[name] = error
    assert wrong == {}
    assert (here.folder / ".venv" / "gpuinstall.json").read_text() == before


@pytest.mark.heavy
def test_a_wheel_without_the_local_version_of_its_file_stays_locked(here, stand_in_folder):
    wheel = make_wheel(stand_in_folder / "simple", "odd", "1.0")
    wheel.rename(wheel.with_name("odd-1.0+cu12torch2.13-py3-none-any.whl"))
    here.document("install", "--backend", "cpu", "odd")
    for command in ("install", "sync"):
        assert here.document(command)["data"]["environment"]["status"] == "none", command


@pytest.mark.heavy
def test_nor_is_it_left_in_an_environment_of_others(here):
    venv = here.folder / "app"
    process.run(
        [uv.uv(), "venv", "--no-project", "--python", sys.executable, venv], env=here.environment
    )
    settings = (venv / "pyvenv.cfg").read_text()
    into = ("install", "--into", "--venv", "app", "settings", "--backend", "cpu")
    error = here.document(*into, exit_code=4)["errors"][0]
    assert error["code"] == "foreign-files"
    assert (venv / "pyvenv.cfg").read_text() == settings
