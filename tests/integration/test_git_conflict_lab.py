"""Two people add a package each: git's conflict in a lock is named, and one command takes both requests together."""

import shlex
import shutil

import pytest
import tomli

from gpuinstall.base import process
from tests.lab.driver import FakeDriver
from tests.lab.projects import commit
from tests.lab.workshop import Workshop

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="no git here")
LOCK = "pylock.cpu.toml"


def git(workshop, *words):
    who = ("-c", "user.name=lab", "-c", "user.email=lab@index.example")
    return process.run(["git", "-C", workshop.folder, *who, *words], env=workshop.environment)


def inputs(workshop):
    return set(tomli.loads(workshop.lock(LOCK))["tool"]["gpuinstall"]["inputs"])


@pytest.fixture
def workshop(stand_in, tmp_path, play):
    """A branch where a colleague added cowsay, to be merged into one where numpy was added."""
    play(FakeDriver(nvml_missing=True, cu_missing=True))
    (tmp_path / "project").mkdir()
    made = Workshop(tmp_path / "project", tmp_path / "caches", stand_in.environment())
    made.document("lock", "torch==2.13.0", "--target", "cpu", "--target", "cu126")
    commit(made.folder)
    assert git(made, "checkout", "-q", "-b", "colleague").ok
    made.document("lock", "cowsay")
    commit(made.folder)
    assert git(made, "checkout", "-q", "main").ok
    made.document("lock", "numpy")
    commit(made.folder)
    return made


def test_a_conflict_is_named_and_lock_takes_both_requests(workshop):
    assert not git(workshop, "merge", "-q", "colleague").ok
    assert "<<<<<<<" in workshop.lock(LOCK)
    error = workshop.document("sync", exit_code=6)["errors"][0]
    assert (error["code"], error["hint"].startswith("gpuinstall lock && git add -u ")) == (
        "lock-in-conflict",
        True,
    )
    advised = [
        error["hint"].partition("   #")[0],
        workshop.run("doctor").out.splitlines()[-1].removeprefix("first: "),
    ]
    assert advised[0].removeprefix("gpuinstall ") == advised[1].partition("gpuinstall ")[2]
    done = workshop.run("lock")
    assert done.status == 0, done.err
    assert len(git(workshop, "diff", "--name-only", "--diff-filter=U").out.split()) == 2
    assert git(workshop, *shlex.split(advised[0].partition("&& git ")[2])).ok
    assert git(workshop, "diff", "--name-only", "--diff-filter=U").out == ""
    assert f"Merged both requests of {LOCK}" in " ".join(done.err.split())
    assert inputs(workshop) == {"torch==2.13.0", "numpy", "cowsay"}
    held = {
        package["name"] for package in tomli.loads(workshop.lock("pylock.cu126.toml"))["packages"]
    }
    assert held >= {"torch", "numpy", "cowsay"}
    assert workshop.document("lock", "check", "--offline")["status"] == "success"
    assert git(workshop, "commit", "-q", "-m", "both").ok
