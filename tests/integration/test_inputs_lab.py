"""Ordinary inputs: projects, repositories, files, constraints, groups, out of folders and repositories of their own."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import tomli

from gpuinstall.base import process, uv
from tests.lab.driver import FakeDriver, FakeGpu
from tests.lab.fixtures import Play
from tests.lab.index import StandInIndex
from tests.lab.projects import commit, make_project, make_repository, make_sdist
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

A100 = FakeDriver((FakeGpu("NVIDIA A100-SXM4-80GB", cc="8.0"),))
NOTHING = FakeDriver(nvml_missing=True, cu_missing=True)
NEEDS_GIT = pytest.mark.skipif(shutil.which("git") is None, reason="no git here")


@pytest.fixture
def workshop(stand_in: StandInIndex, tmp_path: Path, play: Play) -> Workshop:
    play(NOTHING)
    return Workshop(
        make_project(tmp_path / "our-thing", "our-thing", requires=["cowsay"]),
        tmp_path / "caches",
        stand_in.environment(),
    )


def packages(workshop: Workshop, name: str = "pylock.cpu.toml") -> dict[str, dict[str, Any]]:
    return {package["name"]: package for package in tomli.loads(workshop.lock(name))["packages"]}


@pytest.mark.parametrize(
    ("words", "directory"),
    [
        ((".",), {"path": "."}),
        (("-e", "."), {"path": ".", "editable": True}),
        (("our-thing @ .",), {"path": "."}),
        (("../our-thing",), {"path": "."}),
    ],
)
def test_a_project_is_locked_by_its_path_from_the_lock_and_what_it_needs_by_hash(
    workshop, words, directory
):
    done = workshop.run("lock", "torch", *words)
    assert done.status == 0, done.err
    found = packages(workshop)
    assert found["our-thing"] == {"name": "our-thing", "directory": directory}
    assert {"torch", "cowsay"} < found.keys()
    assert "no hash pins our-thing (the folder ." in done.out
    assert "every file hashed" not in done.out
    assert str(workshop.folder) not in workshop.lock("pylock.cpu.toml")


@pytest.mark.heavy
def test_a_project_is_installed_where_it_lies_checked_and_left_alone(workshop):
    workshop.document("install", "torch", "-e", ".")
    assert workshop.python("import our_thing; print(our_thing.HERE, our_thing.__file__)").endswith(
        "our_thing.py"
    )
    again = workshop.document("install", "torch", "-e", ".")
    assert again["data"]["environment"]["status"] == "none"
    assert workshop.document("sync")["data"]["environment"]["status"] == "none"
    assert (
        workshop.document("lock", "check", "torch", "-e", ".")["data"]["locks"][0]["status"]
        == "fresh"
    )
    shutil.rmtree(workshop.folder / ".venv")
    done = workshop.run("sync")
    assert done.status == 0, done.err
    assert "no hash pins our-thing (the folder ., editable)" in done.out


@pytest.mark.heavy
@NEEDS_GIT
@pytest.mark.parametrize(
    "form", ["tool @ git+file://{}", "git+file://{}", "git+file://{}@main#egg=tool"]
)
def test_a_branch_that_moves_is_pinned_to_its_commit(workshop, tmp_path, form):
    (workshop.folder / "pyproject.toml").unlink()
    first = make_repository(tmp_path / "tool", "tool")
    done = workshop.run("lock", "torch", form.format(tmp_path / "tool"))
    assert done.status == 0, done.err
    assert packages(workshop)["tool"]["vcs"]["commit-id"] == first
    assert f"no hash pins tool (commit {first[:12]} of file://" in done.out
    (tmp_path / "tool" / "tool.py").write_text("HERE = 2\n", encoding="utf-8")
    commit(tmp_path / "tool")
    workshop.document("lock", "check", "torch", form.format(tmp_path / "tool"))
    workshop.document("sync")
    assert workshop.python("import tool; print(tool.SAID.count('='))") == "5"


@pytest.mark.heavy
@NEEDS_GIT
def test_a_project_in_a_folder_of_a_repository_is_found(workshop, tmp_path):
    make_project(tmp_path / "all" / "inner", "inner")
    commit(tmp_path / "all")
    workshop.document("lock", "torch", f"inner @ git+file://{tmp_path}/all@main#subdirectory=inner")
    assert packages(workshop)["inner"]["vcs"]["subdirectory"] == "inner"


def test_a_wheel_by_address_and_one_by_its_path_are_hashed(workshop, stand_in, stand_in_folder):
    (workshop.folder / "pyproject.toml").unlink()
    make_wheel(stand_in_folder / "simple", "parrot", "2.0")
    make_wheel(workshop.folder / "dist", "owl", "3.0")
    done = workshop.run(
        "lock",
        "torch",
        f"parrot @ {stand_in.default.url}/files/parrot-2.0-py3-none-any.whl",
        "./dist/owl-3.0-py3-none-any.whl",
    )
    assert done.status == 0, done.err
    found = packages(workshop)
    assert found["parrot"]["archive"]["hashes"].keys() == {"sha256"}
    assert found["owl"]["archive"]["path"] == "dist/owl-3.0-py3-none-any.whl"
    assert "every file hashed" in done.out
    workshop.document("sync")
    assert workshop.python("import owl, parrot; print('both')") == "both"


@pytest.mark.heavy
def test_plain_uv_and_pip_install_a_lock_with_a_project(workshop):
    workshop.document("lock", "torch", "-e", ".")
    env = {**workshop.environment, "UV_PREVIEW_FEATURES": "pylock", "UV_NO_CONFIG": "1"}
    python = workshop.folder / "plain" / "bin" / "python"
    assert process.run(
        [uv.uv(), "venv", "-q", "--python", sys.executable, "plain"], env=env, cwd=workshop.folder
    ).ok
    words = [str(uv.uv()), "pip", "sync", "-q", "--python", str(python), "pylock.cpu.toml"]
    done = process.run(words, env=env, cwd=workshop.folder)
    assert done.ok, done.err
    assert process.run([python, "-c", "import our_thing, cowsay, torch"], cwd=workshop.caches).ok


@pytest.mark.parametrize(
    "torch",
    ["torch @ git+https://git.example/torch", "-e torch @ .", "./torch-2.15.0-py3-none-any.whl"],
)
def test_torch_by_address_is_refused(workshop, torch):
    words = torch.split(" ", 1) if torch.startswith("-e") else [torch]
    assert (
        workshop.document("lock", *words, exit_code=2)["errors"][0]["code"]
        == "requirement-by-address"
    )


@pytest.mark.heavy
def test_a_torch_that_a_project_brings_by_address_is_refused(workshop, tmp_path):
    make_project(tmp_path / "fork", "torch", "2.15.0")
    make_project(workshop.folder, "our-thing", requires=[f"torch @ file://{tmp_path}/fork"])
    error = workshop.document("lock", "-e", ".", exit_code=3)["errors"][0]
    assert error["code"] == "requirements-conflict"


def test_constraints_hold_for_torch_and_for_what_turns_up(workshop, stand_in_folder):
    make_wheel(stand_in_folder / "simple", "cowsay", "6.2")
    (workshop.folder / "only.txt").write_text(
        "torch<2.14\ncowsay<6.2\nnever-there==1\n", encoding="utf-8"
    )
    workshop.document("lock", "torch", ".", "-c", "only.txt")
    found = packages(workshop)
    assert (found["torch"]["version"], found["cowsay"]["version"]) == ("2.13.0+cpu", "6.1")
    assert "never-there" not in found
    check = ("lock", "check", "torch", ".", "-c", "only.txt")
    assert workshop.document(*check)["data"]["locks"][0]["status"] == "fresh"
    (workshop.folder / "only.txt").write_text("torch<2.13\n", encoding="utf-8")
    assert workshop.document(*check, exit_code=6)["data"]["locks"][0]["status"] == "stale"


def test_files_lead_to_files_constraints_and_projects(workshop):
    inner = workshop.folder / "requirements"
    inner.mkdir()
    (inner / "base.txt").write_text("-c pins.txt\n-e .   # ours\ntorch\n", encoding="utf-8")
    (inner / "pins.txt").write_text("torch==2.13.*\n", encoding="utf-8")
    (workshop.folder / "all.txt").write_text("-r requirements/base.txt\nnumpy\n", encoding="utf-8")
    workshop.document("lock", "-r", "all.txt")
    found = packages(workshop)
    assert found["torch"]["version"] == "2.13.0+cpu"
    assert {"our-thing", "numpy"} < found.keys()


def test_a_dependency_group_is_asked_for_by_its_name_and_watched(workshop):
    group = (
        '[dependency-groups]\nextra = ["torch<2.15", {include-group = "more"}]\nmore = ["numpy"]\n'
    )
    make_project(workshop.folder, "our-thing", pyproject=group)
    workshop.document("lock", "--group", "extra")
    assert {"torch", "numpy"} < packages(workshop).keys()
    assert packages(workshop)["torch"]["version"] == "2.14.1+cpu"
    make_project(workshop.folder, "our-thing", pyproject=group.replace("numpy", "cowsay"))
    assert (
        workshop.document("lock", "check", exit_code=6)["data"]["locks"][0]["reasons"][0]["code"]
        == "inputs-changed"
    )
    assert (
        workshop.document("lock", "--group", "none", exit_code=2)["errors"][0]["code"]
        == "group-unknown"
    )


def test_the_projects_own_sources_are_taken_from_where_uv_takes_them(workshop, tmp_path):
    make_project(tmp_path / "lib", "lib")
    source = '[tool.uv.sources]\nlib = { path = "../lib", editable = true }\ntorch = { index = "elsewhere" }\n'
    make_project(workshop.folder, "our-thing", requires=["lib", "torch"], pyproject=source)
    workshop.document("lock")
    assert packages(workshop)["lib"]["directory"] == {"path": "../lib", "editable": True}


@pytest.mark.heavy
def test_a_source_distribution_that_needs_no_compiler_is_announced(workshop, stand_in_folder):
    make_sdist(stand_in_folder / "simple", "pure", "1.0")
    done = workshop.run("install", "torch", "pure")
    assert done.status == 0, done.err
    assert "pure 1.0 is built from its sdist" in done.err
    assert workshop.python("import pure; print('here')") == "here"


@pytest.mark.parametrize("command", [("lock",), ("install",), ("install", "--dry-run"), ("plan",)])
def test_a_path_that_is_not_there_is_named_before_anything_else_happens(
    workshop, stand_in, command
):
    said = workshop.document(*command, "./not-here", exit_code=2)["errors"][0]

    assert (said["code"], "./not-here" in said["message"]) == ("requirement-not-there", True)
    assert stand_in.log == []
