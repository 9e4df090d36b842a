"""A uv.lock beside the project: the team's versions stay, with torch for this machine; and uv.lock is not touched."""

import pytest

from gpuinstall.base import process, uv
from tests.lab.driver import RTX_4090
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

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
def workshop(workshop, simple, tmp_path, play):
    play(RTX_4090)
    made = workshop
    (made.folder / "pyproject.toml").write_text(PROJECT, "utf-8")
    locked(made)
    make_wheel(simple, "numpy", "2.4.0")
    make_wheel(simple, "markdown", "3.10")
    return Workshop(made.folder, tmp_path / "later", made.variables)


def locked(workshop, *words):
    """Have uv itself write its lock."""
    done = process.run([uv.uv(), "lock", *words], env=workshop.environment, cwd=workshop.folder)
    assert done.ok, done.err


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
