"""Locks for a team, made against the stand-in index by the command line and real uv."""

import re
from collections import Counter
from dataclasses import replace

import pytest
import tomli

from gpuinstall.lock.lock import parse
from gpuinstall.lock.target import Target
from tests.lab.workshop import Workshop

SIX = ("cu126", "cu130", "cu130-windows-x86_64", "cu130-linux-aarch64", "cpu", "cpu-macos-arm64")
LINUX_GPU = {"cu126", "cu130", "cu130-linux-aarch64"}


@pytest.fixture
def workshop(stand_in, tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    return Workshop(folder, tmp_path / "caches", stand_in.environment())


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
    assert {target for target in SIX if "triton" in parse("x", first[target]).versions} == LINUX_GPU
    assert len({parse("pylock.x.toml", text).python for text in first.values()}) == 1
    other = replace(workshop, caches=tmp_path / "other")
    lock_six(other, "torch", "numpy", "--upgrade")
    assert {target: workshop.lock(Target.parse(target).filename) for target in SIX} == first
    sent = [asked for asked in stand_in.log if asked.path.endswith(".whl") and asked.sent]
    assert {
        Counter(asked.path for asked in sent)[path] for path in {asked.path for asked in sent}
    } == {2}


def test_check_names_what_a_lock_lacks_of_what_its_packages_demand(workshop):
    workshop.document("lock", "torch", "--target", "cu126")
    lock = workshop.folder / "pylock.cu126.toml"
    head, *packages = lock.read_text(encoding="utf-8").split("[[packages]]\n")
    kept = [package for package in packages if not package.startswith('name = "filelock"')]
    assert len(kept) == len(packages) - 1
    lock.write_text("[[packages]]\n".join((head, *kept)), encoding="utf-8")
    stale = workshop.document("lock", "check", exit_code=6)["data"]["locks"][0]
    assert [reason["code"] for reason in stale["reasons"]] == ["edited", "incomplete"]
    assert stale["reasons"][1]["message"] == "filelock, required by its packages, is missing"


def test_a_lock_with_an_odd_record_is_refused_and_made_again(workshop):
    workshop.document("lock", "torch", "--target", "cpu")
    lock = workshop.folder / "pylock.cpu.toml"
    text = lock.read_text(encoding="utf-8")
    for inputs in ("5", '["torch==", 7]', "{}"):
        odd = re.sub(
            r"inputs = \[.*?\]", f"inputs = {inputs}\nrequirements-files = 3", text, flags=re.DOTALL
        )
        assert odd != text
        lock.write_text(odd, encoding="utf-8")
        (error,) = workshop.document("lock", "check", "--offline", exit_code=6)["errors"]
        assert error["code"] == "lock-malformed"
        assert error["hint"].startswith("gpuinstall lock --upgrade")
    workshop.document("lock", "torch", "--target", "cpu", "--upgrade")
    assert workshop.document("lock", "check", "--offline")["status"] == "success"
