"""Ordinary inputs: projects, repositories, files, constraints, groups, out of folders and repositories of their own."""

import shutil

import pytest
import tomli

from tests.lab.driver import NO_GPU
from tests.lab.projects import commit, make_project, make_repository
from tests.lab.workshop import Workshop

NEEDS_GIT = pytest.mark.skipif(shutil.which("git") is None, reason="no git here")


@pytest.fixture
def workshop(stand_in, tmp_path, play):
    play(NO_GPU)
    return Workshop(
        make_project(tmp_path / "our-thing", "our-thing", requires=["cowsay"]),
        tmp_path / "caches",
        stand_in.environment(),
    )


def packages(workshop, name="pylock.cpu.toml"):
    return {package["name"]: package for package in tomli.loads(workshop.lock(name))["packages"]}


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
    assert "no hash pins tool @ git+file://" in done.out
    (tmp_path / "tool" / "tool.py").write_text("HERE = 2\n", "utf-8")
    commit(tmp_path / "tool")
    workshop.document("lock", "check", "torch", form.format(tmp_path / "tool"))
    workshop.document("sync")
    assert workshop.python("import tool; print(tool.SAID.count('='))") == "5"
