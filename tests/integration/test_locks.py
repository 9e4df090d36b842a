"""Locks for a team, made against the stand-in index by the command line and real uv."""

from collections import Counter
from dataclasses import replace

import pytest
import tomli

from gpuinstall.base import process, uv
from gpuinstall.lock.lock import parse
from gpuinstall.lock.target import Target
from tests.lab.driver import RTX_4090
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

SIX = (
    "cu126",
    "cu130",
    "cu130-windows-x86_64",
    "cu130-linux-aarch64",
    "cpu",
    "cpu-macos-arm64",
)
LINUX_GPU = {"cu126", "cu130", "cu130-linux-aarch64"}


def lock_six(workshop, *more):
    targets = [word for target in SIX for word in ("--target", target)]
    return workshop.document("lock", *more, *targets)["data"]["locks"]


def test_six_targets_share_one_torch_every_file_hashed_the_same_bytes_again(
    workshop, stand_in, tmp_path
):
    locks = lock_six(workshop, "torch", "numpy", "--upgrade")
    assert [lock["target"] for lock in locks] == list(SIX)
    assert {lock["torch"].partition("+")[0] for lock in locks} == {"2.14.1"}
    first = {target: workshop.lock(Target.parse(target).filename) for target in SIX}
    for text in first.values():
        document = tomli.loads(text)
        assert all(
            entry["hashes"]["sha256"]
            for package in document["packages"]
            for entry in package["wheels"]
        )
        assert all("sdist" not in package for package in document["packages"])
    assert {
        target for target in SIX if "triton" in parse("x", first[target]).versions
    } == LINUX_GPU
    assert len({parse("pylock.x.toml", text).python for text in first.values()}) == 1
    other = replace(workshop, caches=tmp_path / "other")
    lock_six(other, "torch", "numpy", "--upgrade")
    assert {
        target: workshop.lock(Target.parse(target).filename) for target in SIX
    } == first
    sent = [
        asked for asked in stand_in.log if asked.path.endswith(".whl") and asked.sent
    ]
    assert {
        Counter(asked.path for asked in sent)[path]
        for path in {asked.path for asked in sent}
    } == {2}


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
def team(workshop, simple, tmp_path, play):
    play(RTX_4090)
    made = workshop
    (made.folder / "pyproject.toml").write_text(PROJECT, "utf-8")
    locked(made)
    make_wheel(simple, "numpy", "2.4.0")
    make_wheel(simple, "markdown", "3.10")
    return Workshop(made.folder, tmp_path / "later", made.variables)


def locked(team, *words):
    """Have uv itself write its lock."""
    done = process.run([uv.uv(), "lock", *words], env=team.environment, cwd=team.folder)
    assert done.ok, done.err


@pytest.mark.heavy
def test_uv_run_stays_with_the_build_in_a_shell_that_knows_it_and_is_seen_elsewhere(
    team,
):
    team.document("sync")
    asked = [
        str(uv.uv()),
        "run",
        "python",
        "-c",
        "import torch; print(torch.__version__)",
    ]
    known = team.document("shellenv")["data"]["variables"]
    kept = process.run(asked, env={**team.environment, **known}, cwd=team.folder)
    assert kept.out == "2.13.0+cu126\n", kept.err
    assert team.run("run", "true").status == 0
    swapped = process.run(asked, env=team.environment, cwd=team.folder)
    assert swapped.ok, swapped.err
    refused = team.run("run", "true")
    assert refused.status == 6
    assert "torch is 2.13.0 instead of 2.13.0+cu126" in " ".join(refused.err.split())
    assert team.run("sync").status == 0
    assert team.run("run", "true").status == 0
