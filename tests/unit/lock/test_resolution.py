import json

import pytest

from gpuinstall.base.errors import InstallationError
from gpuinstall.lock.file.lock import LockedFile
from gpuinstall.lock.file.target import Target
from gpuinstall.lock.resolve.members import select_best_wheels
from gpuinstall.lock.uv.resolution import (
    check_family_wheels,
    check_provenance,
    use_page_files,
)
from tests.unit.lock.wheels_here import listed, packages, torch

TAGS = Target("cu126").tags("3.12")
HASH = "1" * 64
TORCH = torch()
NUMPY = "https://default.example/numpy-2.3.4-py3-none-any.whl"


def strays(package, url):
    """Return whether a file is rejected with a page of torch."""
    try:
        check_provenance([LockedFile(package, url)], {"torch": (TORCH,)})
    except InstallationError as error:
        return error.code == "wrong-source" and package in error.message
    return False


def test_file_not_on_its_index_page_is_detected():
    elsewhere = "https://default.example"
    assert not strays("torch", TORCH.url)
    assert not strays("numpy", NUMPY)
    strayed = (
        ("torch", f"{elsewhere}/torch-2.14.1-cp312-cp312-manylinux_2_28_x86_64.whl"),
        ("torch", f"{TORCH.url}x"),
        ("numpy", TORCH.url),
    )
    assert [file for file in strayed if not strays(*file)] == []


def test_file_of_selected_index_replaces_resolved_file():
    best = listed("triton-3.8.0-cp312-cp312-manylinux_2_28_x86_64.whl")
    own = listed("triton-3.8.0-cp312-cp312-manylinux_2_27_x86_64.whl")
    given = [{"url": best.url, "hashes": {"sha256": HASH}}]
    [package] = packages({"name": "triton", "version": "3.8.0", "wheels": given})

    [taken] = use_page_files([package], {"triton": (own,)})
    assert [wheel.url for wheel in taken.wheels or ()] == [own.url]
    assert use_page_files([package], {"triton": (best,)}) == [package]


def test_best_wheel_of_first_source_is_selected():
    old, new = (
        torch(tag="cp312-cp312-manylinux_2_17_x86_64"),
        torch(tag="cp312-cp312-manylinux_2_28_x86_64"),
    )
    assert select_best_wheels((old, new), "cu126", TAGS) == (new,)
    first, second = (
        torch(source="https://first.example"),
        torch(source="https://second.example"),
    )
    assert select_best_wheels((first, second), "cu126", TAGS) == (first,)


@pytest.mark.parametrize("kind", ["vcs", "directory", "archive", "sdist"])
def test_pytorch_package_without_wheel_is_rejected(kind):
    hashes = {"sha256": HASH}
    source = {
        "vcs": {"type": "git", "path": ".", "commit-id": "0"},
        "directory": {"path": "."},
        "archive": {"url": "https://default.example/x.zip", "hashes": hashes},
        "sdist": {"url": "https://default.example/NAME-1.0.tar.gz", "hashes": hashes},
    }[kind]

    def package(name):
        text = json.dumps(source).replace("NAME", name)
        return {"name": name, kind: json.loads(text)}

    wheel = {"name": "torch", "wheels": [{"url": TORCH.url, "hashes": hashes}]}
    check_family_wheels(packages(package("mine"), wheel), {"torch"})
    with pytest.raises(InstallationError) as caught:
        check_family_wheels(packages(package("torch")), {"torch"})
    assert caught.value.code == "wrong-source"
