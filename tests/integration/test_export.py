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


def uv_project(workshop: Workshop):
    """Make the folder a project with the tables that are written for it."""
    project = workshop.folder / "pyproject.toml"
    project.write_text(PROJECT + export(workshop, "uv")["text"], encoding="utf-8")


def test_uv_locks_a_project_with_the_tables(workshop):
    uv_project(workshop)
    locked = with_uv(workshop, "lock", "--python", sys.executable)
    assert locked.ok, locked.err
    assert (torch_of(workshop, "torch-cu126"), torch_of(workshop, "torch-cpu")) == (
        "2.14.1+cu126",
        "2.14.1+cpu",
    )


def torch_of(workshop: Workshop, group: str) -> str:
    """The torch that uv has locked in a group for this machine; the whole family comes from the group's index."""
    form = ("--frozen", "--format", "pylock.toml", "--no-emit-project")
    words = ("export", *form, "--no-default-groups", "--group", group)
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
def test_uv_run_takes_the_build_for_gpus_and_another_is_chosen(workshop):
    uv_project(workshop)
    show = ("python", "-c", "import torch; print(torch.__version__)")
    both = with_uv(workshop, "sync", "--python", sys.executable, "--group", "torch-cpu")
    assert not both.ok
    assert "torch-cpu" in both.err
    assert "torch-cu126" in both.err
    unasked = with_uv(workshop, "run", "--python", sys.executable, *show)
    assert unasked.out == "2.14.1+cu126\n", unasked.err
    other = ("--no-default-groups", "--group", "torch-cpu")
    chosen = with_uv(workshop, "run", "--python", sys.executable, *other, *show)
    assert chosen.out == "2.14.1+cpu\n", chosen.err
