"""Locks from awkward places: a bare index, a closed one, a silent one, one that changes, somebody else's lock."""

import re
import sys
from base64 import b64encode
from dataclasses import replace

import pytest
import tomli

from tests.lab.driver import FakeDriver, FakeGpu
from tests.lab.host import UNAUTHORIZED
from tests.lab.index import Habits, StandInIndex
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

A100 = FakeDriver((FakeGpu("NVIDIA A100-SXM4-80GB", cc="8.0"),))
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
SILENT = {"GPUINSTALL_TORCH_INDEX": "http://127.0.0.1:9/whl"}


def workshop(index, folder):
    (folder / "project").mkdir()
    return Workshop(folder / "project", folder / "caches", index.environment())


@pytest.fixture
def bench(stand_in, tmp_path):
    return workshop(stand_in, tmp_path)


def test_an_index_without_hashes_metadata_and_ranges_still_locks(
    stand_in_folder, tmp_path, play
):
    play(A100)
    with StandInIndex(stand_in_folder, Habits(metadata=False, ranges=False)) as index:
        here = workshop(index, tmp_path)
        here.document("lock", "torch", "torchvision", "--target", "cu126")
        assert "0" * 32 not in here.lock("pylock.cu126.toml")
        assert here.document("sync")["data"]["verdict"]["status"] == "passed"
        wheels = {
            name: sent
            for name, sent in index.sent().items()
            if name.startswith(("torch", "triton"))
        }
        assert {name.partition("-")[0] for name in wheels} == {
            "torch",
            "torchvision",
            "triton",
        }
        assert all(sent <= 2 * index.size(name) for name, sent in wheels.items())


def test_a_transitive_member_of_the_family_comes_from_its_own_source(
    bench, stand_in, stand_in_folder
):
    make_wheel(stand_in_folder / "simple", "triton", "99.0")
    make_wheel(stand_in_folder / "simple", "torchvision", "99.0", requires=["torch"])
    bench.document("lock", "torch", "torchvision", "numpy", "--target", "cu126")
    packages = {
        each["name"]: each
        for each in tomli.loads(bench.lock("pylock.cu126.toml"))["packages"]
    }
    for name in ("torch", "torchvision", "triton"):
        assert all(
            f"{stand_in.r2.url}/whl/cu126/" in entry["url"]
            for entry in packages[name]["wheels"]
        )
    assert packages["triton"]["version"] == "3.8.0"
    assert packages["numpy"]["wheels"][0]["url"].startswith(stand_in.default.url)


def test_credentials_of_a_torch_index_open_it_and_stay_out_of_sight(
    stand_in_folder, tmp_path
):
    with StandInIndex(stand_in_folder, Habits(absolute=False)) as index:
        respond, wanted = (
            index.torch.respond,
            f"Basic {b64encode(b'me:s3cr3t').decode()}",
        )

        def closed(path, headers):
            return (
                respond(path, headers)
                if headers.get("authorization") == wanted
                else UNAUTHORIZED
            )

        index.torch.respond = closed
        here = workshop(index, tmp_path)
        refused = here.refusal("lock", "torch", "--target", "cu126", exit_code=4)
        assert "user name and password" in refused["hint"]
        named = {
            **here.variables,
            "GPUINSTALL_TORCH_INDEX": index.torch_index.replace("//", "//me:s3cr3t@"),
        }
        here = replace(here, variables=named)
        done = here.run("lock", "torch", "--target", "cu126", "--verbose")
        assert done.status == 0, done.err
        synced = here.run("sync", "--target", "cu126", "--verbose")
        assert synced.status == 0, synced.err
        inside = "".join(
            path.read_text()
            for path in (here.folder / ".venv").glob("*.*")
            if path.is_file()
        )
        seen = (
            done.out,
            done.err,
            synced.out,
            synced.err,
            here.lock("pylock.cu126.toml"),
            inside,
        )
        assert not any("s3cr3t" in text for text in seen)


@pytest.mark.heavy
def test_two_files_of_one_name_are_both_brought_for_machines_without_a_network(
    bench, stand_in, stand_in_folder, tmp_path, play
):
    play(A100)
    for wheel in (stand_in_folder / "whl" / "cu126").glob(
        "triton-3.8.0-*manylinux*x86_64.whl"
    ):
        wheel.unlink()
        tag = wheel.name.removeprefix("triton-3.8.0-").removesuffix(".whl")
        make_wheel(
            wheel.parent, "triton", "3.8.0", tag, modules={"triton/cu126.py": ""}
        )
    bench.document("lock", "torch==2.14.1", "--target", "cu126", "--target", "cu130")
    files = bench.document("lock", "download", str(tmp_path / "wheels"))["data"][
        "files"
    ]
    assert len([name for name in files if "triton" in name]) == 2
    stand_in.forget()
    words = ("--offline", "--wheels", str(tmp_path / "wheels"))
    for target in ("cu126", "cu130"):
        elsewhere = replace(bench, caches=tmp_path / target)
        chosen = elsewhere.document(
            "sync", "--target", target, "--venv", f".{target}", *words
        )["data"]["chosen"]
        assert chosen == f"pylock.{target}.toml"
    assert stand_in.log == []


@pytest.mark.heavy
def test_files_are_brought_only_into_a_folder_and_only_as_they_were_locked(
    bench, stand_in_folder
):
    wheels = {
        **bench.variables,
        "UV_FIND_LINKS": str(stand_in_folder / "whl" / "cpu"),
        **SILENT,
    }
    here = replace(bench, variables=wheels)
    here.document("lock", "torch==2.14.1", "--target", "cpu")
    (bench.folder / "file").write_text("in the way", "utf-8")
    blocked = here.refusal("lock", "download", "file", exit_code=4)
    assert blocked["code"] == "not-writable"
    assert here.document("lock", "download", "wheels")["data"]["files"]
    torch = next(
        (stand_in_folder / "whl" / "cpu").glob(
            f"torch-2.14.1+cpu-cp{PYTHON.replace('.', '')}-*x86_64.whl"
        )
    )
    (bench.folder / "wheels" / torch.name).unlink()
    torch.unlink()
    torch.write_bytes(b"another")
    assert (
        here.refusal("lock", "download", "wheels", exit_code=4)["code"]
        == "hash-mismatch"
    )
    torch.unlink()
    assert (
        here.refusal("lock", "download", "wheels", exit_code=4)["code"]
        == "file-unreadable"
    )
    assert not (bench.folder / "wheels" / torch.name).exists()
    lock = bench.folder / "pylock.cpu.toml"
    lock.write_text(
        re.sub(
            'sha256 = "(.{64})"', r'sha512 = "\1\1"', lock.read_text("utf-8"), count=1
        ),
        "utf-8",
    )
    assert (
        here.refusal("lock", "download", "wheels", exit_code=6)["code"]
        == "lock-unhashed"
    )
