"""A program whose file on the default index needs a newer driver: its makers' own index has it for an older CUDA."""

import pytest

from gpuinstall.lock.lock import read_lock
from tests.lab.extension_index import ExtensionIndex
from tests.lab.index import StandInIndex
from tests.lab.index_text import publish
from tests.lab.native import native_library
from tests.lab.releases import catalog_index
from tests.lab.workshop import Workshop
from tests.unit.wheels.made import fatbin

RTX_5090 = ("--gpu", "RTX 5090", "--glibc", "2.35", "--python", "3.12", "--driver")
OLD_DRIVER = (*RTX_5090, "570.86.15")


def library(path, cuda):
    code = fatbin(*((2, number, 0) for number in (80, 90, 120))) * 3
    return native_library(path, needs=[f"libcudart.so.{cuda}"], code=code)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The newest vllm, for CUDA 13, and one for CUDA 12."""
    folder = catalog_index(
        tmp_path_factory.mktemp("programs"),
        ["2.10.0", "2.13.0"],
        platforms=["linux-x86_64"],
    )
    for version, cuda, torch in (
        ("0.19.1", "12", "2.10.0"),
        ("0.33.0", "13", "2.13.0"),
    ):
        native = f"vllm/_C.abi3.so  sm_80 sm_90 sm_120; needs libcudart.so.{cuda}"
        publish(folder, f"wheel vllm {version}: torch=={torch}", [native])
    return folder


@pytest.fixture
def own(tmp_path):
    """The makers' index, with the newest for CUDA 12.9."""
    index = ExtensionIndex()
    built = library(tmp_path / "own.so", "12")
    tag = "cp38-abi3-manylinux_2_28_x86_64"
    index.add(
        "cu129",
        "vllm",
        "cu129",
        built,
        version="0.33.0",
        requires="torch==2.13.0",
        tag=tag,
    )
    host = index.host()
    index.url = host.url
    yield index
    host.close()


@pytest.fixture
def workshop(served, own, tmp_path):
    (tmp_path / "project").mkdir()
    with StandInIndex(served) as index:
        mirror = {"GPUINSTALL_VLLM_INDEX": own.url}
        yield Workshop(
            tmp_path / "project", tmp_path / "caches", index.environment() | mirror
        )


def locked(workshop):
    (lock,) = workshop.folder.glob("pylock.*.toml")
    return read_lock(lock).versions


@pytest.mark.parametrize("requirement", ["vllm", "vllm==0.33.0"])
def test_the_newest_comes_from_its_makers_index_for_an_older_driver(
    workshop, own, requirement
):
    done = workshop.run("lock", requirement, *OLD_DRIVER)
    assert done.ok, done.err
    assert locked(workshop)["vllm"] == "0.33.0+cu129"
    assert locked(workshop)["torch"].startswith("2.13.0+cu12")
    assert "/0.33.0/cu129/vllm/" in own.addresses
    assert "vllm 0.33.0+cu129 of its makers' own index runs here" in " ".join(
        done.err.split()
    )

    done = workshop.run("lock", "check")
    assert done.ok, done.err


def test_a_target_of_an_older_cuda_takes_it_too(workshop, own):
    done = workshop.run("lock", "vllm", "--target", "cu129", "--target", "cu130")
    assert done.ok, done.err
    locks = {
        path.name: read_lock(path).versions["vllm"]
        for path in workshop.folder.glob("pylock.*")
    }
    assert locks == {"pylock.cu129.toml": "0.33.0+cu129", "pylock.cu130.toml": "0.33.0"}
    assert workshop.run("lock", "check").ok

    own.files.clear()
    done = workshop.run("lock", "vllm", "--target", "cu129", "--upgrade")
    assert done.ok, done.err
    assert "is incompatible with torch 2.13.0+cu129" in " ".join(done.err.split())
    assert read_lock(workshop.folder / "pylock.cu129.toml").versions["vllm"] == "0.19.1"


def test_it_is_not_asked_if_the_default_index_serves_the_driver(workshop, own):
    assert workshop.run("lock", "vllm", *RTX_5090, "580.95.05").ok
    assert (locked(workshop)["vllm"], own.addresses) == ("0.33.0", [])


def test_an_older_version_is_taken_if_it_has_none(workshop, own):
    own.files.clear()
    done = workshop.run("lock", "vllm", *OLD_DRIVER)
    assert done.ok, done.err
    assert locked(workshop)["vllm"] == "0.19.1"
    assert "vllm 0.19.1 runs here" in done.err


def test_it_is_named_if_it_is_out_of_reach(workshop):
    silent = {**workshop.variables, "GPUINSTALL_VLLM_INDEX": "http://127.0.0.1:9"}
    alone = Workshop(workshop.folder, workshop.caches, silent)
    unreachable = "warning: 127.0.0.1:9 is unreachable: its files of vllm are not known"

    refused = alone.run("lock", "vllm==0.33.0", *OLD_DRIVER)
    assert refused.status == 3
    assert unreachable in " ".join(refused.err.split())
    done = alone.run("lock", "vllm", *OLD_DRIVER)
    assert done.ok
    assert unreachable in " ".join(done.err.split())
