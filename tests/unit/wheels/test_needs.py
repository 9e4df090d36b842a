"""Requirements of native code in wheels."""

import random
import time
import tracemalloc
from collections import Counter

import pytest
from tools.torch_exports import add_release, pack_exports

from gpuinstall.wheels.needs import (
    TableCache,
    built_cuda_majors,
    load_libraries,
    parse_name_cuda,
    read_needs,
    rename_for_cuda,
)
from gpuinstall.wheels.ranges import Limits
from gpuinstall.wheels.torch_abi import Exports, load_exports, select_ordinary_names
from gpuinstall.wheels.wheel_reader import WheelReader
from tests.lab.compiler import skip_without_gnu_layout
from tests.lab.native import GONE, native_library
from tests.unit.wheels.made import Bytes, archive, changed, filler

UNTIL_2_8 = "_ZNK3c106SymInt6sym_neERKS0_"
FROM_2_9 = "_ZNK3c106SymInt22maybe_as_int_slow_pathEv"
FROM_2_10 = "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_jb"
UNTIL_2_11 = (
    "_ZNR5torch7Library4_defEON3c1014FunctionSchemaEPNS1_12OperatorNameE"
    "RKSt6vectorIN2at3TagESaIS8_EENS_17_RegisterOrVerifyE"
)
STABLE = "aoti_torch_abi_version"
STABLE_FROM_2_10, STABLE_FROM_2_13 = "torch_call_dispatcher", "torch_delete_generator"
OF_TORCH = ("libtorch.so", "libc10.so", "libcudart.so.12")
LATE = 400_000
"""Incompressible bytes, longer than the first read of a beginning."""


def needs(*files, more=None):
    held = {f"some/{file.name}": file.read_bytes() for file in files} | (more or {})
    return read_all(WheelReader(Bytes(archive(held))))


def read_all(wheel):
    libraries = [name for name in wheel.members if ".so" in name]
    found, _ = read_needs(TableCache(wheel), libraries)
    return found


def torch_needs(folder, *libraries):
    """Return the requirements on torch of libraries with these symbols."""
    files = []
    for library in libraries:
        name, *undefined = library.split()
        file = native_library(folder / name, undefined=undefined, needs=OF_TORCH)
        files.append(file)
    return needs(*files).torch


MINORS = ("2.1", "2.8", "2.9", "2.10", "2.11", "2.12", "2.13", "2.14", "9.9")


@pytest.mark.parametrize(
    ("libraries", "kind", "verdicts"),
    [
        # Ordinary code is compatible with minor versions that have all its symbols.
        ([f"_C.so {FROM_2_10} {UNTIL_2_11}"], "ordinary", "---++---?"),
        ([f"_C.so {UNTIL_2_8} {FROM_2_9}"], "ordinary", "--------?"),
        ([f"_C.so {GONE}"], "ordinary", "--------?"),
        # One of several libraries for different torch versions must fit.
        (
            [f"pg_2_8.so {UNTIL_2_8}", f"pg_2_11.so {FROM_2_10} {UNTIL_2_11}"],
            "ordinary",
            "++-++---?",
        ),
        # Stable code is compatible with every torch from a minimum.
        ([f"_C.so {STABLE}"], "stable", "--+++++++"),
        ([f"_C.so {STABLE} {STABLE_FROM_2_10}"], "stable", "---++++++"),
        ([f"_C.so {STABLE} {STABLE_FROM_2_13}"], "stable", "------+++"),
        ([f"_a.so {STABLE}", f"_b.so {STABLE_FROM_2_13}"], "stable", "------+++"),
        # An unknown stable symbol only sets a minimum.
        ([f"_C.so {STABLE} torch_that_will_come"], "stable", "--------?"),
        # Code linked to torch without known symbols may need any torch.
        (["_C.so"], "unknown", "?????????"),
    ],
)
def test_code_is_compatible_with_torch_versions(tmp_path, libraries, kind, verdicts):
    torch = torch_needs(tmp_path, *libraries)
    signs = {True: "+", False: "-", None: "?"}

    assert torch.kind == kind
    assert "".join(signs[torch.verdict(minor)] for minor in MINORS) == verdicts


def test_own_soname_is_not_needed(tmp_path):
    skip_without_gnu_layout()
    plain = native_library(
        tmp_path / "some.cpython-312-x86_64-linux-gnu.so",
        undefined=[f"symbol_{number}" for number in range(20)],
        needs=["libcudart.so.12", "libother.so"],
        soname="libsome.so",
        code=random.Random(0).randbytes(LATE),
    )

    # The dynamic section follows the GPU code.
    assert needs(plain).needs == ("libcudart.so.12",)


def test_older_cxx_abi_is_detected(tmp_path):
    older = "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs"
    newer = "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"

    assert torch_needs(tmp_path, f"old.so {older}").torches.endswith(
        "with the older C++ ABI"
    )
    assert not torch_needs(tmp_path, f"new.so {newer}").is_older_abi


def test_weak_and_defined_symbols_are_ignored(tmp_path):
    helper = native_library(tmp_path / "libhelper.so", defines=["_ZN2at9my_helperEv"])
    library = native_library(
        tmp_path / "_C.so",
        undefined=[
            STABLE,
            "_ZN2at9my_helperEv",
            "_ZN5torch6stable6TensorC1Ev",
            "_ZN9extension3runERN2at6TensorE",
        ],
        weak=["_ZTHN3c1014some_thread_lcE"],
        needs=OF_TORCH,
    )

    assert needs(library, helper).torch.kind == "stable"


def test_torch_symbols_are_unknown_for_other_processors(tmp_path):
    data = bytearray(
        native_library(tmp_path / "_C.so", undefined=[FROM_2_9]).read_bytes()
    )
    data[18:20] = (183).to_bytes(2, "little")

    torch = needs(more={"some/_C.so": bytes(data)}).torch

    assert (torch.kind, torch.fits, torch.verdict("2.9")) == ("ordinary", (), None)


def test_highest_symbol_version_determines_required_glibc(tmp_path):
    found = needs(
        native_library(tmp_path / "a.so", glibc="2.32"),
        native_library(tmp_path / "b.so", glibc="2.9"),
    )

    assert found.glibc == "2.32"


@pytest.mark.parametrize(
    ("libraries", "cudas"),
    [
        ("libcublas.so.12 libcufft.so.11 libcusparse.so.12", {12}),
        # A library of two CUDA versions identifies neither.
        ("libcudart.so.10.2 libcufft.so.10", {10}),
        ("libcublas.so.13 libcudart.so.12", {12, 13}),
    ],
)
def test_linked_libraries_determine_cuda(tmp_path, libraries, cudas):
    found = needs(native_library(tmp_path / "a.so", needs=libraries.split()))

    assert {*found.cudas} == cudas
    assert " ".join(found.needs) == libraries
    assert found.torch.kind == "none"


@pytest.mark.parametrize(
    ("linked", "opened", "of_ptx", "cudas"),
    [
        # Linked libraries take precedence over PTX.
        ({13}, (), {12}, (13,)),
        ({13}, (), (), (13,)),
        ({12, 13}, (), {12}, (12, 13)),
        ((), (), {12}, (12,)),
        ((), (), {12, 13}, (12, 13)),
        # A string counts only on Windows.
        ((), ("libcublas.so.12",), (), ()),
        ((), ("cudart64_12.dll",), (), (12,)),
    ],
)
def test_linked_libraries_take_precedence_over_ptx(linked, opened, of_ptx, cudas):
    assert built_cuda_majors(linked, opened, of_ptx) == cudas


def test_indirectly_linked_libraries_determine_cuda(tmp_path):
    module = native_library(tmp_path / "_C.so", needs=["libown.so"])
    own = native_library(tmp_path / "libown.so", needs=["libcudart.so.12"])
    other = native_library(tmp_path / "other.so", needs=["libcudart.so.13"])
    files = {f"some/{path.name}": path.read_bytes() for path in (module, own, other)}

    wheel = WheelReader(Bytes(archive(files)))
    found, paths = read_needs(TableCache(wheel), ["some/_C.so"])

    assert found.cudas == (12,)
    assert {*paths} == {"some/_C.so", "some/libown.so"}


def test_bundled_libraries_are_not_required(tmp_path):
    own = "libcudart-0b3e2b5d.so.12.4.127"
    library = native_library(
        tmp_path / "_C.so", needs=[own, "libmine.so.1", "libc.so.6", "libcuda.so.1"]
    )

    found = needs(
        library, more={f"some.libs/{own}": b"", "some.libs/libmine.so.1.2": b""}
    )

    assert (found.needs, found.cudas) == (("libcuda.so.1",), (12,))


def test_large_library_is_read_only_partially(tmp_path):
    skip_without_gnu_layout()
    names = [f"other_{number}" for number in range(30)]
    library = native_library(
        tmp_path / "_C.so",
        undefined=[STABLE, *names],
        needs=OF_TORCH,
        code=filler(LATE * 20),
    )
    held = Bytes(archive({"some/_C.so": library.read_bytes()}))
    wheel = WheelReader(held)

    found = read_all(wheel)

    assert (found.torch.oldest, found.cudas) == ("2.9", (12,))
    assert wheel.bytes_read < 400_000 < held.size


def test_library_without_early_symbols_is_read_completely(tmp_path):
    noise = random.Random(0).randbytes(LATE)
    data = native_library(
        tmp_path / "_C.so", undefined=[STABLE], needs=OF_TORCH, code=noise
    ).read_bytes()
    small = WheelReader(Bytes(archive({"some/_C.so": data})))
    large = WheelReader(
        Bytes(archive({"some/_C.so": data + random.Random(1).randbytes(11 << 20)}))
    )

    assert read_all(small).torch.kind == "stable"
    assert read_all(large).torch.kind == "unknown"
    assert large.bytes_read < 400_000
    assert (
        read_needs(TableCache(large), large.members, to_the_end=True)[0].torch.kind
        == "stable"
    )
    before = large.bytes_read
    assert b"".join(large.stream("some/_C.so")).startswith(data)
    assert large.bytes_read == before


def test_torch_requirement_is_unknown_with_unread_library(tmp_path):
    read = native_library(tmp_path / "_C.so", undefined=[FROM_2_10], needs=OF_TORCH)
    noise = random.Random(0)
    unread = native_library(
        tmp_path / "_D.so",
        undefined=[UNTIL_2_11],
        needs=OF_TORCH,
        code=noise.randbytes(LATE),
    )
    files = {
        "some/_C.so": read.read_bytes(),
        "some/_D.so": unread.read_bytes() + noise.randbytes(11 << 20),
    }
    wheel = WheelReader(Bytes(archive(files)))

    part = read_needs(TableCache(wheel), wheel.members)[0].torch
    whole = read_needs(TableCache(wheel), wheel.members, to_the_end=True)[0].torch

    minors = ("2.9", "2.10", "2.12")
    assert [*map(part.verdict, minors)] == [False, None, None]
    assert [*map(whole.verdict, minors)] == [False, True, False]


def test_own_cuda_library_with_late_tables_is_unread(tmp_path):
    # patchelf moved the tables of cuDensityMat 0.7.
    noise = random.Random(0).randbytes(11 << 20)
    data = native_library(
        tmp_path / "libcudensitymat.so.0", needs=["libcurand.so.10"], code=noise
    ).read_bytes()
    path = "cuquantum/lib/libcudensitymat.so.0"
    wheel = WheelReader(Bytes(archive({path: data})))

    part = read_needs(TableCache(wheel), [path])[0]
    whole = read_needs(TableCache(wheel), [path], to_the_end=True)[0]

    assert not part.torch.is_known
    assert (whole.needs, whole.torch.is_known) == (("libcurand.so.10",), True)


def test_highly_compressed_library_is_not_read():
    bomb = WheelReader(
        Bytes(archive({"some/_C.so": b"\x7fELF\2\1" + bytes(120 << 20)})),
        Limits(inflated=1 << 30),
    )
    tracemalloc.start()

    assert read_all(bomb).torch.kind == "unknown"

    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 << 20


def test_damaged_library_does_not_imply_wrong_torch(tmp_path):
    names = [UNTIL_2_11, FROM_2_10, *(f"other_{number}" for number in range(40))]
    library = native_library(
        tmp_path / "_C.so", undefined=names, needs=OF_TORCH
    ).read_bytes()
    outcomes, started = Counter[frozenset[str]](), time.process_time()
    peak = 0
    for seed in range(500):
        held = archive({"some/_C.so": changed(random.Random(seed), library)})
        if seed % 5 == 0:
            tracemalloc.start()
        torch = read_all(WheelReader(Bytes(held))).torch
        peak = max(peak, tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        outcomes[
            frozenset(minor for minor in load_exports().minors if torch.verdict(minor))
        ] += 1
    assert outcomes.keys() == {frozenset(), frozenset({"2.10", "2.11"})}
    assert peak < 100 << 20
    assert time.process_time() - started < 60


@pytest.mark.parametrize(
    ("library", "cuda", "package"),
    [
        ("libcublas.so.12", 12, "nvidia-cublas-cu12"),
        ("libcublas.so.12", 13, "nvidia-cublas"),
        ("libcublas.so.12", None, None),
        ("libcudnn_cnn.so.9", 13, "nvidia-cudnn-cu13"),
        ("libsycl.so.8", None, "intel-sycl-rt"),
    ],
)
def test_package_of_a_library_depends_on_cuda(library, cuda, package):
    row = load_libraries().row(library)

    assert row
    assert row.package_for(cuda) == package
    assert load_libraries().row("libmine.so.1") is None


@pytest.mark.parametrize(
    ("package", "cuda", "other"),
    [
        ("cupy-cuda13x", 13, "cupy-cuda12x"),
        ("some-cu128", 12, "some-cu128"),
        ("openmm-cuda-12", 12, "openmm-cuda-12"),
        ("nvidia-cublas-cu13", 13, "nvidia-cublas-cu12"),
        ("some-cuda", None, None),
        ("some-cu-12", None, None),
        ("some-12", None, None),
    ],
)
def test_package_name_determines_its_cuda_variant(package, cuda, other):
    assert (parse_name_cuda(package), rename_for_cuda(package, 12)) == (cuda, other)


def test_symbol_export_table_survives_a_round_trip():
    older = add_release(Exports((), frozenset(), {}), "2.1", [b"_ZN2at1aEv"])
    table = add_release(older, "2.2", [b"_ZN2at1aEv"], [b"_ZN2at1bEv"])
    again = Exports.unpack(pack_exports(table))

    assert again == table
    names = (b"_ZN2at1aEv", b"_ZN2at1bEv", b"_ZN2at1cEv", b"_ZN2at4cuda1dEv")
    # The device library, with b and possibly d, was not read in 2.1.
    fitting = [["2.1", "2.2"], ["2.1", "2.2"], [], ["2.1"]]
    assert [table.compatible_minors([name]) for name in names] == fitting
    assert table.compatible_minors(names) == []


def test_torch_cpp_symbols_are_recognized():
    torchs = b"_ZN2at4sizeEv _ZNK3c106SymInt6sym_neERKS0_ _ZTVN5torch3nn6ModuleE _ZNR5torch7Library4_defEv THPVariableClass"
    others = b"_ZN4attn3runERN2at6TensorE _ZSt4moveIRN2at6TensorEE at _ZN5torch6stable6TensorC1Ev"

    names = (torchs + b" " + others).split()
    assert select_ordinary_names(names) == {*torchs.split()}
