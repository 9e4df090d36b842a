import json

import pytest

from gpuinstall.base.errors import InstallationError
from gpuinstall.lock.file.lock import LockedFile, list_locked_files, placeholder_hash
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


def test_wheels_for_other_backends_or_tags_are_excluded():
    right = torch()
    others = (
        torch("2.14.1+cu130"),
        torch("2.14.1+cpu"),
        torch(tag="cp311-cp311-manylinux_2_28_x86_64"),
        torch(tag="cp312-cp312-win_amd64"),
    )
    assert select_best_wheels((*others, right), "cu126", TAGS) == (right,)


def test_unlabeled_wheel_has_backend_of_its_page():
    name = "triton-3.8.0-cp312-cp312-manylinux_2_28_x86_64.whl"
    here, other = listed(name, backend="cu126"), listed(name, backend="cu130")
    assert select_best_wheels((other, here), "cu126", TAGS) == (here,)
    assert select_best_wheels((listed(name),), "cu126", TAGS) == (listed(name),)


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


def test_all_versions_with_compatible_wheels_are_kept():
    assert (
        len(
            select_best_wheels(
                (torch("2.14.1+cu126"), torch("2.13.0+cu126")), "cu126", TAGS
            )
        )
        == 2
    )


def test_locked_files_have_no_placeholder_hash():
    stand_in = placeholder_hash(TORCH.url)
    listed_packages = packages(
        {"name": "numpy", "wheels": [{"url": NUMPY, "hashes": {"sha256": HASH}}]},
        {
            "name": "torch",
            "wheels": [{"url": TORCH.url, "hashes": {"sha256": stand_in}}],
        },
        # No hash can pin these.
        {"name": "mine", "vcs": {"type": "git", "path": ".", "commit-id": "0"}},
        {"name": "ours", "directory": {"path": "."}},
    )
    assert list_locked_files(listed_packages) == (
        LockedFile("numpy", NUMPY, HASH),
        LockedFile("torch", TORCH.url),
    )


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
