"""What is exported, given to the tools that it is for: real pip and uv against the stand-in index."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli
import yaml
from packaging.pylock import Pylock

from gpuinstall.base import process
from gpuinstall.base.process import Finished
from gpuinstall.base.uv import uv
from tests.lab.cases import mostly_heavy
from tests.lab.index import StandInIndex
from tests.lab.workshop import Workshop

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
PROJECT = """\
# A project of ours.
[project]
name = "ours"  # the name
version = "0"
requires-python = ">=3.9"  # older than torch's own
dependencies = [
    "cowsay",  # says it
]
"""
EXISTING_INDEX = """
[tool.uv.sources]
# from the mirror
cowsay = {{ index = "mirror" }}
torch = {{ index = "pytorch-cu126" }}  # for everyone

[tool.ruff]
line-length = 100

[[tool.uv.index]]
name = "mirror"  # ours
url = "{default}"
explicit = true

[[tool.uv.index]]
name = "pytorch-cu126"
url = "{torch}/cu126"
explicit = true
"""
EXISTING_CONFLICTS = """
[project.optional-dependencies]
old = ["torch==2.13.0 ; python_version >= '3.10'"]
new = ["torch==2.14.1 ; python_version >= '3.10'"]

[tool.uv]
package = false
conflicts = [
    # one torch at a time
    [
        {{ extra = "old" }},
        {{ extra = "new" }},
    ]
]

[tool.uv.sources]
torch = [
    {{ index = "pytorch-cpu", extra = "old" }},
    {{ index = "pytorch-cpu", extra = "new" }},
]

[[tool.uv.index]]
name = "pytorch-cpu"
url = "{torch}/cpu"
explicit = true
"""
EXCLUSIVE_EXTRAS = """
[project.optional-dependencies]  # neither says where torch comes from
old = ["torch==2.13.0 ; python_version >= '3.10'"]
new = ["torch==2.14.1 ; python_version >= '3.10'"]
[tool.uv] # in one line
conflicts = [[{{extra="old"}},{{extra="new"}}]] # one at a time
"""
GROUPS = """
[dependency-groups]
test = ["filelock"]
dev = [{{ include-group = "test" }}, "cowsay"]

[tool.uv.dependency-groups]
dev = {{ requires-python = ">=3.10" }}

[tool.uv.sources]
Torch = [{{ index = "pytorch-cpu" }}] # spelled otherwise

[[ tool . uv . index ]]
"name" = "pytorch-cpu"
url = "{torch}/cpu"
explicit = true
# the end, without a line end"""
SHAPES = {
    "bare": "",
    "index": EXISTING_INDEX,
    "conflicts": EXISTING_CONFLICTS,
    "exclusive extras": EXCLUSIVE_EXTRAS,
    "groups": GROUPS,
}


@pytest.fixture(scope="module")
def index(catalog_wheels: Path) -> Iterator[StandInIndex]:
    """A stand-in index that every test here shares."""
    with StandInIndex(catalog_wheels) as index:
        yield index


@pytest.fixture(scope="module")
def locked(index: StandInIndex, tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """A folder with locks for cu126 on Linux and for the CPU."""
    folder = tmp_path_factory.mktemp("export") / "locked"
    folder.mkdir()
    workshop = Workshop(folder, folder.parent / "caches", index.environment())
    gpu = ("--gpu", "RTX 4090", "--driver", "550.90")
    workshop.document("lock", "torch", "torchvision", "--python", PYTHON, *gpu)
    workshop.document("lock", "torch==2.14.1", "--python", PYTHON, "--backend", "cpu")
    return workshop


@pytest.fixture
def workshop(locked: Workshop, tmp_path: Path) -> Workshop:
    """The same locks in a folder for one test alone."""
    return replace(locked, folder=shutil.copytree(locked.folder, tmp_path / "project"))


def with_uv(workshop: Workshop, *words: str | Path) -> Finished:
    return process.run([uv(), *words], env=workshop.environment, cwd=workshop.folder)


def environment(workshop: Workshop, *more: str) -> Path:
    made = with_uv(workshop, "venv", "--python", sys.executable, "made", *more)
    assert made.ok, made.err
    return workshop.folder / "made" / "bin" / "python"


def held(workshop: Workshop, python: Path) -> set[str]:
    return set(
        with_uv(workshop, "pip", "list", "--format", "freeze", "--python", python).out.split()
    )


def export(workshop: Workshop, *words: str) -> dict[str, Any]:
    data: dict[str, Any] = workshop.document("export", *words)["data"]
    return data


def default_index(workshop: Workshop) -> str:
    return workshop.variables["UV_DEFAULT_INDEX"]


def test_uv_syncs_the_requirements_with_every_hash_and_no_second_index(workshop):
    export(workshop, "requirements", "--lock", "pylock.cu126.toml", "-o", "requirements.txt")
    python = environment(workshop)
    done = with_uv(
        workshop, "pip", "sync", "--require-hashes", "--python", python, "requirements.txt"
    )
    assert done.ok, done.err
    assert {"torch==2.14.1+cu126", "filelock==3.20.0"} <= held(workshop, python)


@pytest.mark.heavy
def test_uv_syncs_the_same_as_from_the_lock_itself(workshop):
    export(workshop, "requirements", "--lock", "pylock.cu126.toml", "-o", "requirements.txt")
    python = environment(workshop)
    assert with_uv(workshop, "pip", "sync", "--python", python, "pylock.cu126.toml").ok
    first = held(workshop, python)
    again = with_uv(
        workshop, "pip", "sync", "--require-hashes", "--python", python, "requirements.txt"
    )
    assert again.ok, again.err
    assert held(workshop, python) == first


def pip_install(workshop: Workshop, file: str) -> Finished:
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--dry-run",
        "--ignore-installed",
        "--no-deps",
        "--require-hashes",
    ]
    words = [*pip, "--index-url", default_index(workshop), "-r", file]
    return process.run(words, env=workshop.environment, cwd=workshop.folder)


def test_pip_takes_the_requirements_with_every_hash(workshop):
    export(workshop, "requirements", "--lock", "pylock.cu126.toml", "-o", "requirements.txt")
    done = pip_install(workshop, "requirements.txt")
    assert done.ok, done.err
    assert "torch-2.14.1+cu126" in done.out


@pytest.mark.heavy
def test_pip_takes_a_package_from_the_address_that_was_asked_for(workshop, index):
    address = f"{index.default.url}/files/filelock-3.20.0-py3-none-any.whl"
    asked = ("torch", f"filelock @ {address}", "--python", PYTHON, "--target", "cpu", "--upgrade")
    workshop.document("lock", *asked)
    export(workshop, "requirements", "--lock", "pylock.cpu.toml", "-o", "requirements.txt")
    assert f"filelock @ {address} " in (workshop.folder / "requirements.txt").read_text(
        encoding="utf-8"
    )
    done = pip_install(workshop, "requirements.txt")
    assert done.ok, done.err


@pytest.mark.heavy
def test_uv_takes_the_requirements_of_each_target_for_its_platform(workshop):
    platforms = {"cu130-windows-x86_64": "windows", "cu130-linux-aarch64": "aarch64-manylinux_2_28"}
    platforms["cpu-macos-arm64"] = "aarch64-apple-darwin"
    targets = [word for target in platforms for word in ("--target", target)]
    workshop.document("lock", "torch", "torchvision", "--python", PYTHON, *targets)
    for target, platform in platforms.items():
        export(workshop, "requirements", "--lock", f"pylock.{target}.toml", "-o", f"{target}.txt")
        words = ("--python-platform", platform, "--python-version", PYTHON, "--target", "there")
        done = with_uv(
            workshop,
            "pip",
            "install",
            "--dry-run",
            "--require-hashes",
            *words,
            "-r",
            f"{target}.txt",
        )
        assert done.ok, done.err


@pytest.mark.heavy
@pytest.mark.parametrize("maker", ["uv", "pip"])
def test_a_lock_of_uvs_or_pips_own_making_is_exported_too(workshop, maker):
    (workshop.folder / "in.txt").write_text("torch\ncowsay\n", encoding="utf-8")
    if maker == "uv":
        made = with_uv(
            workshop,
            "pip",
            "compile",
            "--format",
            "pylock.toml",
            "in.txt",
            "-o",
            "pylock.theirs.toml",
        )
    else:
        pip = [sys.executable, "-m", "pip", "lock", "-r", "in.txt", "-o", "pylock.theirs.toml"]
        words = [*pip, "--index-url", default_index(workshop)]
        made = process.run(words, env=workshop.environment, cwd=workshop.folder)
    assert made.ok, made.err
    export(workshop, "requirements", "--lock", "pylock.theirs.toml", "-o", "requirements.txt")
    done = pip_install(workshop, "requirements.txt")
    assert done.ok, done.err


@pytest.mark.heavy
def test_pip_refuses_them_where_a_file_is_another(workshop):
    text = export(workshop, "requirements", "--lock", "pylock.cu126.toml")["text"]
    torch = text.index("--hash", text.index("torch @"))
    wrong = f"{text[:torch]}--hash=sha256:{'0' * 64}{text[torch + 78 :]}"
    (workshop.folder / "requirements.txt").write_text(wrong, encoding="utf-8")
    done = pip_install(workshop, "requirements.txt")
    assert not done.ok
    assert "DO NOT MATCH THE HASHES" in done.err


@pytest.mark.heavy
def test_pip_takes_condas_pip_section_as_conda_hands_it_over(workshop):
    document = yaml.safe_load(export(workshop, "conda", "--lock", "pylock.cu126.toml")["text"])
    lines = document["dependencies"][-1]["pip"]
    (workshop.folder / "condaenv.txt").write_text("\n".join(lines), encoding="utf-8")
    done = pip_install(workshop, "condaenv.txt")
    assert done.ok, done.err
    assert f"python={PYTHON}" in document["dependencies"]


@pytest.mark.parametrize("ends", mostly_heavy(["\n", "\r\n"], ["\n"]), ids=["lf", "crlf"])
@pytest.mark.parametrize("shape", mostly_heavy(SHAPES, {"index", "groups"}))
def test_uv_locks_the_patched_project_and_the_patch_can_be_undone(workshop, index, shape, ends):
    project = workshop.folder / "pyproject.toml"
    text = PROJECT + SHAPES[shape].format(torch=index.torch_index, default=index.default_index)
    before = text.replace("\n", ends).encode()
    project.write_bytes(before)
    export(workshop, "uv")
    once = project.read_bytes()
    export(workshop, "uv")
    assert project.read_bytes() == once
    locked = with_uv(workshop, "lock", "--python", sys.executable)
    assert locked.ok, locked.err
    assert (torch_of(workshop, "torch-cu126"), torch_of(workshop, "torch-cpu")) == (
        "2.14.1+cu126",
        "2.14.1+cpu",
    )
    export(workshop, "uv", "--remove")
    assert project.read_bytes() == before


def torch_of(workshop: Workshop, group: str) -> str:
    """The torch that uv has locked in a group for this machine; the whole family comes from the group's index."""
    words = ("export", "--frozen", "--format", "pylock.toml", "--no-emit-project", "--group", group)
    done = with_uv(workshop, *words)
    assert done.ok, done.err
    chosen = {
        str(package.name): package
        for package, _ in Pylock.from_dict(tomli.loads(done.out)).select()
    }
    for package in chosen.keys() & {"torch", "torchvision", "triton"}:
        addresses = [wheel.url or "" for wheel in chosen[package].wheels or ()]
        assert all(f"/{group.removeprefix('torch-')}/" in address for address in addresses)
    return str(chosen["torch"].version)


@pytest.mark.heavy
def test_uv_takes_one_group_at_a_time(workshop):
    (workshop.folder / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    export(workshop, "uv")
    done = with_uv(
        workshop,
        "sync",
        "--python",
        sys.executable,
        "--group",
        "torch-cpu",
        "--group",
        "torch-cu126",
    )
    assert not done.ok
    assert "torch-cpu" in done.err
    assert "torch-cu126" in done.err


@pytest.mark.heavy
def test_uv_syncs_the_group_that_was_chosen(workshop):
    (workshop.folder / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    export(workshop, "uv")
    done = with_uv(workshop, "sync", "--python", sys.executable, "--group", "torch-cu126")
    assert done.ok, done.err
    assert "torch==2.14.1+cu126" in held(workshop, workshop.folder / ".venv" / "bin" / "python")
