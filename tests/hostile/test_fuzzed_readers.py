"""Tests that random requests are resolved or rejected within seconds."""

import os
import random
import time
from contextlib import suppress
from pathlib import Path

import pytest

from gpuinstall.base.errors import GpuInstallError
from gpuinstall.lock.request.declaration import (
    read_constraints,
    read_inputs,
)
from gpuinstall.project import Settings, open_project
from gpuinstall.project.request import read_request

INPUTS = 2000
QUICK = 20

LINES = """
torch|x|x @ http://h/x.whl|x @ ./x|-e .|-e ./lib[a]|-r requirements.txt|-r a.txt|-c c.txt|--hash=sha256:0
--index-url|http://u:p@h/${X}|~nosuch/x|~|x ; os_name == 'a'|x[|((((|))))|"|'|#|[|]|{|}|=|==1|x=1|file:///|file://h/x
git+https://u:p@h/x@v#subdirectory=a|http://[::1|http://h:99999/x.whl|[tool.uv]|[[tool.uv.index]]|[project]|sources
dependencies:|  - pip:|    - torch|  - pytorch=2.1|- a: b|\\|\x00|\u202e|\x85|\t
"""
KEYS = """
tool tool.uv tool.uv.sources tool.uv.sources.x tool.uv.index tool.uv.pip tool.uv.pip.index-url tool.uv.find-links
tool.uv.constraint-dependencies tool.uv.override-dependencies tool.uv.default-groups tool.uv.package tool.uv.workspace
tool.uv.exclude-newer tool.uv.no-build tool.poetry tool.poetry.dependencies tool.poetry.dependencies.python
tool.poetry.group tool.poetry.group.a.dependencies tool.poetry.source tool.pdm.resolution.overrides tool.rye
tool.gpuinstall tool.gpuinstall.requirements tool.gpuinstall.inputs tool.gpuinstall.constraints project project.name
tool.gpuinstall.requirements-files project.dependencies project.optional-dependencies.a dependency-groups
dependency-groups.dev build-system.requires package packages lock-version
"""
VALUES = r"""
1|1.5|true|"x"|"x @ http://h/${A}/x.whl"|"-e ."|[]|{}|[1]|["x"]|[["x"]]|{url=1}|{url="http://h/x.whl"}|{git=1}|{path=".."}
{index="corp"}|[{index="corp",marker="x"}]|{workspace=true}|""|"~nosuch/x"|1979-05-27|inf|{a={b={c=1}}}|[{url=5}]
[{include-group="dev"}]|"^1.2.x"|"\u0000"|"http://["|{version="^"}|{extras=5}|{git="x",rev=5}|[{name=5}]
[{name="x",version="y"}]|[{name="x",version="1",source={registry="http://h"}}]|{"../.."=["x"]}|{"a.txt"=["-c x<2"]}
"""
TABLES = """
pyproject.toml uv.toml pixi.toml pdm.toml Pipfile uv.lock poetry.lock pylock.cpu.toml lib/pyproject.toml
"""
TEXTS = "requirements.txt environment.yml .python-version setup.py c.txt a.txt"


def words(text: str) -> list[str]:
    return [word for line in text.strip().splitlines() for word in line.split("|")]


def soup(chance: random.Random) -> str:
    lines = chance.choices(words(LINES), k=chance.randint(1, 25))
    return "".join(line + chance.choice(["\n", "\n", " ", ""]) for line in lines)


def table(chance: random.Random) -> str:
    keys = chance.sample(KEYS.split(), chance.randint(1, 6))
    return "\n".join(f"{key} = {chance.choice(words(VALUES))}" for key in keys)


def write(chance: random.Random, folder: Path) -> None:
    """Write some random project files."""
    for name in chance.sample((TABLES + TEXTS).split(), chance.randint(1, 4)):
        is_table = name in TABLES.split() and chance.random() < 0.75
        text = table(chance) if is_table else soup(chance)
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(
            text.replace("tool.uv.", "").encode()
            if name == "uv.toml"
            else text.encode()
        )


def read(folder: Path) -> None:
    """Read a project folder with every reader of project files."""
    for only in (False, True):
        with (
            suppress(GpuInstallError),
            open_project(folder, Settings(only=only)) as one,
        ):
            read_request(one)
    for name in (*TEXTS.split(), "pyproject.toml:dev"):
        if Path(name.partition(":")[0]).exists():
            for reader in (read_inputs, read_constraints):
                with suppress(GpuInstallError):
                    reader(name)


@pytest.mark.parametrize(
    "seeds",
    [range(QUICK), pytest.param(range(QUICK, INPUTS), marks=pytest.mark.heavy)],
    ids=["some", "all"],
)
def test_random_files_cause_no_traceback_or_delay(tmp_path, monkeypatch, seeds):
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("HOME", str(tmp_path))
    slow = []
    for seed in seeds:
        folder = tmp_path / str(seed) / "project"
        folder.mkdir(parents=True)
        write(random.Random(seed), folder)
        monkeypatch.chdir(folder)
        begin = time.monotonic()
        read(folder)
        if time.monotonic() - begin > 10:
            slow.append(seed)

    assert slow == []
