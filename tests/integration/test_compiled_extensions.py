"""Tests that compile extensions with torch's headers and check linking."""

import subprocess
import time

import pytest

from gpuinstall.wheels.linking import (
    find_link_faults,
    find_system_libraries,
    read_libraries,
)
from gpuinstall.wheels.needs import TableCache, read_needs
from gpuinstall.wheels.wheel_reader import WheelReader
from tests.lab.environments import packages
from tests.lab.native import GONE, native_library
from tests.unit.wheels.made import Bytes, archive
from tests.unit.wheels.test_needs import FROM_2_9, STABLE, UNTIL_2_8

CPU = ("libtorch.so", "libtorch_cpu.so", "libc10.so")
ORDINARY = """
#include <ATen/ATen.h>
#include <c10/util/Logging.h>
#include <torch/library.h>
at::Tensor flat(const at::Tensor& x) {
  TORCH_CHECK(x.sym_numel().sym_ne(0).expect_true(__FILE__, __LINE__), "it is empty");
  return x.view_symint({x.sym_numel()});
}
TORCH_LIBRARY(example, m) { m.def("flat(Tensor x) -> Tensor", &flat); }
"""
STABLE_CODE = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/csrc/stable/ops.h>
using torch::stable::Tensor;
Tensor same(Tensor x) { return torch::stable::empty_like(x); }
void boxed(StableIValue* stack, uint64_t, uint64_t) { stack[0] = from(same(to<Tensor>(stack[0]))); }
STABLE_TORCH_LIBRARY(example, m) { m.def("same(Tensor x) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(example, CPU, m) { m.impl("same", &boxed); }
"""


@pytest.fixture
def site(tmp_path, real_torch):
    """Create a site-packages folder with torch 2.13.0 for the CPU."""
    site = tmp_path / "site"
    site.mkdir()
    for entry in packages(real_torch).iterdir():
        (site / entry.name).symlink_to(entry)
    return site


def put(site, library):
    """Install a library as a separate package."""
    (site / "example").mkdir()
    (site / "example" / "_C.so").write_bytes(library.read_bytes())
    (site / "example-1.0.dist-info").mkdir()
    (site / "example-1.0.dist-info" / "RECORD").write_text("example/_C.so,,\n")
    return site


def on_disk(site):
    """Return the linking problems of the installed package."""
    found = find_link_faults(read_libraries(site), find_system_libraries())
    return [
        (fault.reason.code, fault.name)
        for fault in found
        if fault.candidate.package == "example"
    ]


def before(library):
    """Return the libraries that the package needs, read from its wheel."""
    wheel = WheelReader(Bytes(archive({"example/_C.so": library.read_bytes()})))
    return read_needs(TableCache(wheel), wheel.members)[0].torch


LIES: dict[str, tuple[dict[str, object], str]] = {
    "another minor": ({"undefined": [FROM_2_9, UNTIL_2_8]}, "missing-symbol"),
    "no minor at all": ({"undefined": [GONE]}, "missing-symbol"),
    "a newer stable interface": (
        {"undefined": [STABLE, "torch_that_will_come"]},
        "missing-symbol",
    ),
    "another CUDA": (
        {"undefined": [FROM_2_9], "needs": [*CPU, "libcudart.so.11.0"]},
        "missing-library",
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_incompatible_library_is_detected_after_installation(site, tmp_path, lie):
    how, code = LIES[lie]
    library = native_library(tmp_path / "_C.so", **{"needs": CPU, **how})  # type: ignore[arg-type]

    assert code in {found for found, _ in on_disk(put(site, library))}


def test_compatible_library_passes_link_check_quickly(site, tmp_path):
    put(
        site,
        native_library(tmp_path / "_C.so", undefined=[FROM_2_9, STABLE], needs=CPU),
    )
    started = time.monotonic()

    assert on_disk(site) == []

    assert time.monotonic() - started < 2


def compiled(folder, include, code=ORDINARY):
    """Compile with torch's headers, and leave its symbols undefined."""
    library = folder / "_C.so"
    flags = [
        "-std=c++20",
        "-O1",
        "-shared",
        "-fPIC",
        "-w",
        f"-I{include}",
        f"-I{include}/torch/csrc/api/include",
    ]
    stub = native_library(folder / "stub" / "libtorch.so", soname="libtorch.so")
    words = [
        "g++",
        *flags,
        "-x",
        "c++",
        "-",
        "-o",
        str(library),
        "-x",
        "none",
        "-Wl,--no-as-needed",
        str(stub),
    ]
    subprocess.run(words, input=code, text=True, check=True)
    return library


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("code", "kind"), [(ORDINARY, "ordinary"), (STABLE_CODE, "stable")]
)
def test_compiled_extension_is_compatible_with_real_torch(site, tmp_path, code, kind):
    library = compiled(tmp_path, site / "torch" / "include", code)

    needs = before(library)

    assert needs.kind == kind
    assert needs.verdict("2.13")
    assert on_disk(put(site, library)) == []
