"""Wheels of a stranger that write where they may not: the environment that is there stays as it was."""

import os
import sys

import pytest

from gpuinstall.base import process, uv
from tests.frozen import GPUINSTALL
from tests.hostile.wheels import KINDS
from tests.lab.bounded import judged, run
from tests.lab.driver import NO_GPU
from tests.lab.wheels import make_wheel

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
def here(workshop, stand_in_folder):
    for name, modules in HOSTILE.items():
        make_wheel(stand_in_folder / "simple", name, "1.0", modules=modules)
    return workshop


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


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("kind", KINDS)
def test_a_hostile_wheel_is_refused_or_stays_within_the_environment(
    here, stand_in_folder, play, kind
):
    play(NO_GPU)
    KINDS[kind](make_wheel(stand_in_folder / "simple", "filelock", "9.9"))
    victim = here.folder.parent / "victim"
    victim.write_text("mine", encoding="utf-8")
    process.run(
        [uv.uv(), "venv", "--no-project", "--python", sys.executable, here.folder / "app"],
        env=here.environment,
    )
    faults = []
    beside = names(here.folder.parent)
    for words in (("install",), ("install", "--into", "--venv", "app")):
        before = names(here.folder)
        command = [*GPUINSTALL, *words, "torch==2.14.1"]
        ended = run(command, here.environment, here.folder)
        left = names(here.folder) ^ before if ended.status else set()
        touched = names(here.folder.parent) - names(here.folder) ^ beside - before
        case = judged(" ".join(words), ended, {0, 3, 4, 5}, ", ".join({*left, *touched}))
        if case.fault or victim.read_text("utf-8") != "mine":
            faults.append(case)

    assert faults == []


def names(folder):
    """Return every file below a folder, but caches, what Python compiles, and uv's own lock of an environment."""
    apart = {"__pycache__", ".lock", "caches", "served"}
    found: set[str] = set()
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in apart]
        found.update(f"{place}/{name}" for name in files if name not in apart)
    return found
