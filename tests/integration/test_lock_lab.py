"""Locks for a team, made against the stand-in index by the command line and real uv."""

from __future__ import annotations

import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import tomli

from gpuinstall.base import process, uv
from gpuinstall.lock.lock import compare_versions, parse
from gpuinstall.lock.target import Target
from tests.lab.cases import mostly_heavy
from tests.lab.driver import FakeDriver, FakeGpu
from tests.lab.index import StandInIndex
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

SIX = ("cu126", "cu130", "cu130-windows-x86_64", "cu130-linux-aarch64", "cpu", "cpu-macos-arm64")
LINUX_GPU = {"cu126", "cu130", "cu130-linux-aarch64"}
NOTHING = FakeDriver(nvml_missing=True, cu_missing=True)


@pytest.fixture
def workshop(stand_in: StandInIndex, tmp_path: Path) -> Workshop:
    folder = tmp_path / "project"
    folder.mkdir()
    return Workshop(folder, tmp_path / "caches", stand_in.environment())


def lock_six(workshop: Workshop, *more: str) -> list[dict[str, str]]:
    targets = [word for target in SIX for word in ("--target", target)]
    locks: list[dict[str, str]] = workshop.document("lock", *more, *targets)["data"]["locks"]
    return locks


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


def test_locks_that_still_serve_are_left_alone_without_a_request(workshop, stand_in):
    lock_six(workshop)
    stand_in.forget()
    assert {lock["status"] for lock in lock_six(workshop)} == {"unchanged"}
    assert stand_in.log == []


@pytest.mark.heavy
def test_each_lock_resolves_for_its_own_platform_and_is_refused_elsewhere(
    workshop,
):
    lock_six(workshop)
    python = parse("x", workshop.lock("pylock.cpu.toml")).python or ""
    made = process.run(uv.create(find(python), workshop.folder / "env"), env=workshop.environment)
    assert made.ok, made.err
    interpreter = workshop.folder / "env" / "bin" / "python"
    for name in SIX:
        target = Target.parse(name)
        lock = workshop.folder / target.filename
        words = [str(uv.uv()), "pip", "sync", "--dry-run", "--python", str(interpreter), str(lock)]
        here = process.run(words, env=workshop.environment)
        there = process.run(
            [*words, "--python-platform", target.uv_platform], env=workshop.environment
        )
        assert there.ok, there.err
        assert here.ok is ((target.os, target.arch) == ("linux", "x86_64")), here.err
    lock = workshop.folder / "pylock.cu130-windows-x86_64.toml"
    by_pip = process.run(
        [sys.executable, "-m", "pip", "--python", interpreter, "install", "--dry-run", "-r", lock]
    )
    assert not by_pip.ok
    envelope = workshop.document("sync", "--target", "cu130-windows-x86_64", exit_code=6)
    assert envelope["errors"][0]["code"] == "lock-does-not-fit"


def find(python: str) -> Path:
    from gpuinstall.machine.pythons import find_python

    found = find_python(python)
    if found is None:
        pytest.skip(f"no Python {python} here")
    return found


@pytest.mark.parametrize("new", mostly_heavy(["cu132", "cu130"], ["cu132"]))
def test_targets_that_have_no_torch_in_common_are_named_and_can_each_have_their_newest(
    workshop, new
):
    words = ("lock", "--target", "cu118", "--target", new)
    envelope = workshop.document(*words, exit_code=3)
    assert envelope["data"] == {"newest": {"cu118": "2.7.1", new: "2.15.0"}}
    assert envelope["errors"][0]["code"] == "targets-disagree"
    assert "per-target = " in envelope["errors"][0]["hint"]
    done = workshop.run(*words)
    assert "cu118 torch 2.7.1" in done.err
    text = '[tool.gpuinstall]\nper-target = "newest"\n'
    (workshop.folder / "pyproject.toml").write_text(text, encoding="utf-8")
    locks = workshop.document(*words)["data"]["locks"]
    assert [lock["torch"] for lock in locks] == ["2.7.1+cu118", f"2.15.0+{new}"]


def test_a_package_that_one_target_cannot_have_new_is_old_for_all(workshop, stand_in_folder):
    simple = stand_in_folder / "simple"
    make_wheel(simple, "plotter", "1.0")
    make_wheel(simple, "plotter", "2.0", "py3-none-manylinux_2_28_x86_64")
    words = ("lock", "torch", "plotter", "--target", "cpu", "--target", "cpu-macos-arm64")
    data = workshop.document(*words)["data"]
    assert data["differences"] == []
    assert parse("x", workshop.lock("pylock.cpu.toml")).versions["plotter"] == "1.0"


@pytest.mark.heavy
def test_a_package_without_a_common_version_is_reported(workshop, stand_in_folder):
    simple = stand_in_folder / "simple"
    make_wheel(simple, "plotter", "1.0", "py3-none-macosx_11_0_arm64")
    make_wheel(simple, "plotter", "2.0", "py3-none-manylinux_2_28_x86_64")
    words = ("lock", "torch", "plotter", "--target", "cpu", "--target", "cpu-macos-arm64")
    cpu, mac = workshop.document(*words, "--upgrade")["data"]["differences"]
    assert (cpu["package"], cpu["target"], cpu["version"]) == ("plotter", "cpu", "2.0")
    assert "plotter" in cpu["why"]
    assert mac == {
        "package": "plotter",
        "target": "cpu-macos-arm64",
        "version": "1.0",
        "why": "the newest for this target",
    }
    assert "Apart       plotter 1.0 for cpu-macos-arm64" in workshop.run(*words, "--upgrade").out


@pytest.mark.heavy
def test_a_package_that_is_apart_does_not_keep_another_apart(workshop, stand_in_folder):
    simple = stand_in_folder / "simple"
    make_wheel(simple, "plotter", "1.0", "py3-none-macosx_11_0_arm64")
    make_wheel(simple, "plotter", "2.0", "py3-none-manylinux_2_28_x86_64")
    make_wheel(simple, "painter", "1.0")
    make_wheel(simple, "painter", "2.0", "py3-none-manylinux_2_28_x86_64")
    words = (
        "lock",
        "torch",
        "plotter",
        "painter",
        "--target",
        "cpu",
        "--target",
        "cpu-macos-arm64",
    )
    assert {each["package"] for each in workshop.document(*words)["data"]["differences"]} == {
        "plotter"
    }
    assert parse("x", workshop.lock("pylock.cpu.toml")).versions["painter"] == "1.0"


@pytest.mark.heavy
def test_targets_meet_at_the_newest_version_that_all_have(workshop, stand_in_folder):
    simple = stand_in_folder / "simple"
    linux, mac = "py3-none-manylinux_2_28_x86_64", "py3-none-macosx_11_0_arm64"
    for version, tag in (("1.0", linux), ("1.0", mac), ("1.5", mac), ("2.0", linux)):
        make_wheel(simple, "plotter", version, tag)
    words = ("lock", "torch", "plotter", "--target", "cpu", "--target", "cpu-macos-arm64")
    assert workshop.document(*words)["data"]["differences"] == []
    assert parse("x", workshop.lock("pylock.cpu.toml")).versions["plotter"] == "1.0"


def test_recorded_machines_get_the_fewest_locks_that_serve_them(workshop, play):
    machines = {
        "gtx1080": FakeDriver((FakeGpu("NVIDIA GeForce GTX 1080", cc="6.1"),)),
        "rtx4090": FakeDriver((FakeGpu(),), driver="535.183.01", cuda=12020),
        "a100": FakeDriver((FakeGpu("NVIDIA A100", cc="8.0"),)),
        "none": NOTHING,
    }
    for name, driver in machines.items():
        play(driver)
        (workshop.folder / f"{name}.json").write_text(
            workshop.run("probe", "--json").out, encoding="utf-8"
        )
    words = [word for name in machines for word in ("--machine", f"{name}.json")]
    locks = workshop.document("lock", *words)["data"]["locks"]
    assert {lock["target"] for lock in locks} == {"cu126", "cpu"}


def test_check_says_fresh_or_stale_and_why(workshop, stand_in, stand_in_folder):
    workshop.document("lock", "torch", "--target", "cu126")
    stand_in.forget()
    assert workshop.document("lock", "check", "--offline")["data"]["locks"][0]["status"] == "fresh"
    assert stand_in.log == []
    assert workshop.document("lock", "check")["data"]["locks"][0]["status"] == "fresh"
    other = workshop.document("lock", "check", "--offline", "torch", "numpy", exit_code=6)
    assert other["data"]["locks"][0]["reasons"][0]["code"] == "inputs-changed"
    (stand_in_folder / "simple" / "filelock-3.20.0-py3-none-any.whl").unlink()
    make_wheel(
        stand_in_folder / "simple",
        "filelock",
        "3.20.0",
        modules={"filelock/__init__.py": "import os"},
    )
    fresh = replace(workshop, caches=workshop.folder.parent / "fresh")
    changed = fresh.document("lock", "check", exit_code=6)
    assert changed["data"]["locks"][0]["reasons"][0]["code"] == "hash-differs"
    (stand_in_folder / "simple" / "filelock-3.20.0-py3-none-any.whl").unlink()
    gone = replace(workshop, caches=workshop.folder.parent / "gone").document(
        "lock", "check", exit_code=6
    )
    assert gone["data"]["locks"][0]["reasons"][0]["code"] == "withdrawn"
    assert gone["errors"][0]["code"] == "lock-stale"


@pytest.mark.heavy
def test_check_reads_the_requirements_files_again_that_an_installation_was_made_from(
    workshop, play
):
    play(FakeDriver((FakeGpu(),), driver="535.183.01", cuda=12020))
    file = workshop.folder / "requirements.txt"
    file.write_text("torch\n", encoding="utf-8")
    workshop.document("install", "-r", "requirements.txt")
    assert workshop.document("lock", "check", "--offline")["data"]["locks"][0]["status"] == "fresh"
    file.write_text("torch\ncowsay\n", encoding="utf-8")
    stale = workshop.document("lock", "check", "--offline", exit_code=6)["data"]["locks"][0]
    assert [reason["code"] for reason in stale["reasons"]] == ["inputs-changed"]


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


@pytest.mark.heavy
def test_check_reads_the_requirements_files_again_that_a_lock_was_made_from(
    workshop,
):
    file, lock = workshop.folder / "requirements.txt", workshop.folder / "pylock.cpu.toml"
    file.write_text("torch\n", encoding="utf-8")
    words = ("lock", "numpy", "-r", "requirements.txt", "--target", "cpu")
    workshop.document(*words)
    before = lock.read_text(encoding="utf-8")
    assert workshop.document("lock", "check")["data"]["locks"][0]["status"] == "fresh"
    assert workshop.document(*words)["data"]["locks"][0]["status"] == "unchanged"
    file.write_text("torch\ncowsay\n", encoding="utf-8")
    stale = workshop.document("lock", "check", "--offline", exit_code=6)
    assert stale["data"]["locks"][0]["reasons"] == [
        {"code": "inputs-changed", "message": "requirements.txt has changed since it was made"}
    ]
    assert stale["errors"][0]["hint"] == "gpuinstall lock -r requirements.txt"
    assert "first: gpuinstall lock" in workshop.run("doctor").out.splitlines()
    refused = workshop.document("sync", exit_code=6)["errors"][0]
    assert (refused["code"], refused["message"]) == (
        "lock-stale",
        "pylock.cpu.toml is stale: requirements.txt has changed since it was made",
    )
    file.unlink()
    gone = workshop.document("lock", "check", "--offline", exit_code=6)
    assert [reason["code"] for reason in gone["data"]["locks"][0]["reasons"]] == ["inputs-gone"]
    assert (
        gone["errors"][0]["hint"] == "gpuinstall lock --only torch numpy   # or put the file back"
    )
    assert workshop.document("lock", "check", "torch", "numpy", "--offline")["status"] == "success"
    only = ("lock", "--only", "torch", "numpy", "--target", "cpu")
    assert workshop.document(*only)["data"]["locks"][0]["status"] == "written"
    assert workshop.document("lock", "check", "--offline")["status"] == "success"
    file.write_text("torch\n", encoding="utf-8")
    workshop.document(*words)
    assert lock.read_text(encoding="utf-8") == before
    file.write_text("torch\ncowsay\n", encoding="utf-8")
    workshop.document("lock", "-r", "requirements.txt")
    assert workshop.document("lock", "check", "--offline")["status"] == "success"


def test_a_lock_with_odd_evidence_is_one_whose_making_is_unknown(workshop):
    workshop.document("lock", "torch", "--target", "cpu")
    lock = workshop.folder / "pylock.cpu.toml"
    text = lock.read_text(encoding="utf-8")
    for inputs in ("5", '["torch==", 7]', "{}"):
        odd = re.sub(
            r"inputs = \[.*?\]", f"inputs = {inputs}\nrequirements-files = 3", text, flags=re.DOTALL
        )
        assert odd != text
        lock.write_text(odd, encoding="utf-8")
        (stale,) = workshop.document("lock", "check", "--offline", exit_code=6)["data"]["locks"]
        assert {reason["code"] for reason in stale["reasons"]} == {"edited"}
        assert (
            workshop.document("lock", "torch", "--target", "cpu")["data"]["locks"][0]["status"]
            == "unchanged"
        )


@pytest.mark.parametrize("damage", mostly_heavy([b"[[packages", b"\xff\xfe"], [b"[[packages"]))
def test_a_damaged_lock_is_refused_and_made_again_as_its_error_says(workshop, damage):
    lock = workshop.folder / "pylock.cpu.toml"
    lock.write_bytes(damage)
    for words in (
        ("lock", "--target", "cpu"),
        ("lock", "check"),
        ("sync",),
        ("lock", "download", "wheels"),
    ):
        assert (
            "gpuinstall lock --upgrade"
            in workshop.document(*words, exit_code=6)["errors"][0]["hint"]
        )
    workshop.document("lock", "--target", "cpu", "--upgrade")
    assert workshop.document("lock", "check", "--offline")["status"] == "success"


def test_a_lock_under_a_name_that_is_no_targets_cannot_be_fresh(workshop):
    workshop.document("lock", "torch", "--target", "cpu")
    (workshop.folder / "pylock.cpu.toml").rename(workshop.folder / "pylock.prod.toml")
    (lock,) = workshop.document("lock", "check", "--offline", exit_code=6)["data"]["locks"]
    assert [reason["code"] for reason in lock["reasons"]] == ["misnamed"]


@pytest.mark.heavy
def test_a_lock_with_a_package_that_no_hash_pins_is_not_synced(workshop, play):
    play(NOTHING)
    workshop.document("lock", "torch", "--target", "cpu")
    lock = workshop.folder / "pylock.cpu.toml"
    evil = '[[packages]]\nname = "evil"\nvcs = { type = "git", url = "https://index.example/e", commit-id = "1" }\n\n'
    lock.write_text(
        lock.read_text(encoding="utf-8").replace("[tool.gpuinstall]", f"{evil}[tool.gpuinstall]"),
        "utf-8",
    )
    refused = workshop.document("sync", exit_code=6)
    assert [misfit["code"] for misfit in refused["data"]["rejected"]] == ["unpinned"]
    assert "evil" in refused["data"]["rejected"][0]["message"]
    assert not (workshop.folder / ".venv").exists()


@pytest.mark.parametrize("words", [("lock",), ("lock", "check"), ("lock", "check", "--offline")])
def test_a_malformed_requirement_is_named_beside_a_lock_too(workshop, words):
    workshop.document("lock", "torch", "--target", "cpu")
    error = workshop.document(*words, "torch==", exit_code=2)["errors"][0]
    assert error["code"] == "requirement-malformed"


def test_only_the_named_package_moves(workshop, stand_in_folder, tmp_path):
    workshop.document("lock", "torch==2.13.0", "numpy", "--target", "cu126")
    before = workshop.folder / "pylock.cu126.toml"
    (tmp_path / before.name).write_text(before.read_text(encoding="utf-8"), encoding="utf-8")
    for name in ("numpy", "filelock"):
        make_wheel(stand_in_folder / "simple", name, "99.0")
    later = replace(workshop, caches=tmp_path / "later")
    words = ("lock", "torch", "numpy", "--target", "cu126", "--upgrade-package", "numpy")
    (workshop.folder / "pylock.cu126.toml").write_text(
        before.read_text(encoding="utf-8").replace("torch==2.13.0", "torch"), encoding="utf-8"
    )
    later.document(*words)
    old = parse("x", (tmp_path / before.name).read_text(encoding="utf-8"))
    changes = compare_versions(old.held, parse("x", before.read_text(encoding="utf-8")).held)
    assert [str(change) for change in changes] == [f"~ numpy {old.versions['numpy']} -> 99.0"]


@pytest.mark.heavy
def test_torch_moves_alone_with_its_family_and_what_it_demands(workshop, stand_in_folder):
    workshop.document("lock", "torch==2.13.0", "torchvision", "numpy", "--target", "cu126")
    make_wheel(stand_in_folder / "simple", "numpy", "99.0")
    lock = workshop.folder / "pylock.cu126.toml"
    before = parse("x", workshop.lock(lock.name)).versions
    words = ("torch", "torchvision", "numpy", "--target", "cu126", "--upgrade-package", "Torch")
    replace(workshop, caches=workshop.folder.parent / "later").document("lock", *words)
    after = parse("x", workshop.lock(lock.name)).versions
    assert {name for name in after if after[name] != before[name]} == {
        "torch",
        "torchvision",
        "triton",
    }


def test_a_lock_from_a_mirror_says_that_it_serves_only_there(workshop):
    mirror = workshop.variables["GPUINSTALL_TORCH_INDEX"]
    done = workshop.run("lock", "--target", "cu126")
    assert done.status == 0, done.err
    [warning] = [line for line in done.err.splitlines() if "can be installed only where" in line]
    assert mirror in warning
    assert mirror in workshop.document("lock", "--target", "cu126")["data"]["locks"][0]["private"]
