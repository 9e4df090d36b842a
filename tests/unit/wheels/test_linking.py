"""Linked libraries of an environment, without loading them."""

import pytest

from gpuinstall.wheels import linking
from gpuinstall.wheels.linking import (
    find_link_faults,
    find_system_libraries,
    read_libraries,
)
from tests.lab.native import native_library
from tests.unit.wheels.test_needs import UNTIL_2_8

EXPORTED = "_ZN2at7presentEv"
TORCH = ("libtorch_cpu.so", "libc10.so")


def place(site, package, path, **how):
    """Install a library of a package."""
    native_library(site / path, **how)
    record = site / f"{package.replace('-', '_')}-1.0.dist-info" / "RECORD"
    record.parent.mkdir(exist_ok=True)
    record.write_text((record.read_text() if record.exists() else "") + f"{path},,\n")


@pytest.fixture
def site(tmp_path):
    """Create torch for CUDA 12 with its libraries."""
    place(
        tmp_path,
        "nvidia-cuda-runtime-cu12",
        "nvidia/cuda_runtime/lib/libcudart.so.12",
        soname="libcudart.so.12",
    )
    place(tmp_path, "torch", "torch/lib/libc10.so", soname="libc10.so")
    cpu = {
        "defines": [EXPORTED],
        "needs": ["libc10.so", "libcudart.so.12"],
        "soname": "libtorch_cpu.so",
    }
    place(tmp_path, "torch", "torch/lib/libtorch_cpu.so", rpath="$ORIGIN", **cpu)
    return tmp_path


def faults(site):
    found = find_link_faults(read_libraries(site), {"libc.so.6", "libm.so.6"})
    return [(fault.reason.code, fault.name, fault.provider) for fault in found]


def test_loader_cache_with_binary_data_is_read(tmp_path, monkeypatch):
    cache = tmp_path / "ld.so.cache"
    cache.write_bytes(
        b"glibc-ld.so.cache1.1\0/\x98\xff\0\0/lib/x86_64-linux-gnu/libz.so.1\0libz.so.1\0/opt/a b/liba.so\0"
    )
    monkeypatch.setattr(linking, "_CACHE", cache)

    assert {"libz.so.1", "liba.so"} <= find_system_libraries()


def test_complete_libraries_have_no_missing_dependencies(site):
    own = {
        "needs": [*TORCH, "libown-12345678.so.1", "libcuda.so.1", "libc.so.6"],
        "undefined": [EXPORTED, "_ZN2at3ownEv"],
    }
    place(site, "some", "some.libs/libown-12345678.so.1", defines=["_ZN2at3ownEv"])
    place(site, "some", "some/_C.so", rpath="$ORIGIN/../some.libs", **own)

    assert faults(site) == []


CUDNN = ("nvidia-cudnn-cu12", "nvidia/cudnn/lib/libcudnn.so.9")
CUDART_13 = ("nvidia-cuda-runtime", "nvidia/cu13/lib/libcudart.so.13")


@pytest.mark.parametrize(
    ("installed", "needs", "found"),
    [
        (None, "libcublas.so.12", "missing-library libcublas.so.12"),
        (CUDNN, "libcudnn.so.9", ""),
        (CUDNN, "libcudnn.so.8", "missing-library libcudnn.so.8"),
        # A library outside the search path.
        (("other", "other/libown.so.1"), "libown.so.1", "missing-library libown.so.1"),
        (CUDART_13, "libcudart.so.13", "other-cuda 13, and torch with 12"),
        (
            CUDART_13,
            "libcudart.so.13 libcudart.so.12",
            "other-cuda 13, and torch with 12",
        ),
    ],
)
def test_faults_of_a_linked_library_are_reported(site, installed, needs, found):
    if installed:
        place(site, *installed, soname=installed[1].rpartition("/")[2])
    place(site, "some", "some/_C.so", needs=needs.split(), rpath="$ORIGIN/elsewhere")

    assert ", ".join(f"{code} {name}" for code, name, _ in faults(site)) == found


def test_missing_dlopen_library_is_reported_if_essential(
    site,
):
    strings = ["libcublas.so.12", "libnccl.so.2"]
    place(
        site,
        "ctranslate2",
        "ctranslate2.libs/libctranslate2-a7a60d30.so.4.8.5",
        strings=strings,
    )

    assert faults(site) == [
        ("missing-library", "libcublas.so.12", "nvidia-cublas-cu12"),
    ]


def test_missing_dependency_of_unused_library_is_ignored(site):
    carried = "torch/lib/libgfortran.so.5"
    place(site, "torch", carried, needs=["libquadmath.so.0"], soname="libgfortran.so.5")

    assert faults(site) == []

    place(site, "torch", "torch/lib/libblas.so", needs=["libgfortran.so.5"])

    assert faults(site) == [("missing-library", "libquadmath.so.0", None)]


def test_symbol_missing_in_torch_is_reported(site):
    place(site, "some", "some/_C.so", needs=TORCH, undefined=[EXPORTED, UNTIL_2_8])

    found = find_link_faults(read_libraries(site), {"libc.so.6"})

    assert [fault.reason.message for fault in found] == [
        f"some/_C.so of some uses {UNTIL_2_8}, which this torch does not have",
    ]


def test_text_files_and_missing_files_are_ignored(site):
    (site / "some-1.0.dist-info").mkdir()
    (site / "some-1.0.dist-info" / "RECORD").write_text(
        "some/gone.so,,\nsome/text.so,,\n../../evil.so,,\n"
    )
    (site / "some").mkdir()
    (site / "some" / "text.so").write_text("INPUT(libc.so.6)")

    assert faults(site) == []
