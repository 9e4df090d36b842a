"""Locks for a team, made against the stand-in index by the command line and real uv."""

from collections import Counter
from dataclasses import replace

import tomli

from gpuinstall.lock.lock import parse
from gpuinstall.lock.target import Target

SIX = ("cu126", "cu130", "cu130-windows-x86_64", "cu130-linux-aarch64", "cpu", "cpu-macos-arm64")
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
    assert {target for target in SIX if "triton" in parse("x", first[target]).versions} == LINUX_GPU
    assert len({parse("pylock.x.toml", text).python for text in first.values()}) == 1
    other = replace(workshop, caches=tmp_path / "other")
    lock_six(other, "torch", "numpy", "--upgrade")
    assert {target: workshop.lock(Target.parse(target).filename) for target in SIX} == first
    sent = [asked for asked in stand_in.log if asked.path.endswith(".whl") and asked.sent]
    assert {
        Counter(asked.path for asked in sent)[path] for path in {asked.path for asked in sent}
    } == {2}
