"""A uv.lock beside the project: the team's versions stay, with torch for this machine; and uv.lock is not touched."""

import pytest
import tomli

from gpuinstall.base import process, uv
from tests.integration.test_install_lab import RTX_4090
from tests.lab.projects import make_project
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

LOCK = "pylock.cu126.toml"
PROJECT = """\
[project]
name = "thing"
version = "1"
requires-python = ">=3.10"
dependencies = ["torch<2.14", "numpy", "rich"]
"""


@pytest.fixture
def simple(stand_in_folder):
    folder = stand_in_folder / "simple"
    make_wheel(folder, "torch", "2.13.0", requires=["filelock"])
    make_wheel(folder, "rich", "14.2.0", requires=["markdown"])
    make_wheel(folder, "markdown", "3.9")
    return folder


@pytest.fixture
def workshop(stand_in, simple, tmp_path, play):
    play(RTX_4090)
    (tmp_path / "project").mkdir()
    made = Workshop(tmp_path / "project", tmp_path / "caches", stand_in.environment())
    (made.folder / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    locked(made)
    make_wheel(simple, "numpy", "2.4.0")
    make_wheel(simple, "markdown", "3.10")
    return Workshop(made.folder, tmp_path / "later", made.variables)


def locked(workshop, *words):
    """Have uv itself write its lock."""
    done = process.run([uv.uv(), "lock", *words], env=workshop.environment, cwd=workshop.folder)
    assert done.ok, done.err


def versions(workshop):
    return {
        package["name"]: package.get("version", "")
        for package in tomli.loads(workshop.lock(LOCK))["packages"]
    }


@pytest.mark.heavy
def test_uv_run_stays_with_the_build_in_a_shell_that_knows_it_and_is_seen_elsewhere(
    workshop,
):
    workshop.document("sync")
    asked = [str(uv.uv()), "run", "python", "-c", "import torch; print(torch.__version__)"]
    known = workshop.document("shellenv")["data"]["variables"]
    kept = process.run(asked, env={**workshop.environment, **known}, cwd=workshop.folder)
    assert kept.out == "2.13.0+cu126\n", kept.err
    assert workshop.run("run", "true").status == 0
    swapped = process.run(asked, env=workshop.environment, cwd=workshop.folder)
    assert swapped.ok, swapped.err
    refused = workshop.run("run", "true")
    assert refused.status == 6
    assert "torch is 2.13.0 instead of 2.13.0+cu126" in " ".join(refused.err.split())
    assert workshop.run("sync").status == 0
    assert workshop.run("run", "true").status == 0


def test_torch_stays_until_a_program_moves_it(workshop, simple):
    make_project(workshop.folder, "thing", requires=["torch", "numpy", "rich"])
    locked(workshop, "--upgrade-package", "torch==2.13.0")
    done = workshop.run("install")
    assert done.status == 0, done.err
    assert versions(workshop)["torch"] == "2.13.0+cu126", (
        "although the project itself is in no lock"
    )
    make_wheel(simple, "newer", "1.0", requires=["torch==2.14.1"])
    workshop.document("install", "newer")
    workshop.document("remove", "newer")
    assert versions(workshop)["torch"] == "2.14.1+cu126", (
        "as the environment has it, and not as uv.lock"
    )
