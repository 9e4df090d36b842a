"""Which architectures the packages beside torch have code for."""

import re
from pathlib import Path

import pytest
import tomli

import gpuinstall.wheels
from gpuinstall.wheels.gpu_code import FatbinCode, read_containers, read_fatbins
from gpuinstall.wheels.members import load_members
from gpuinstall.wheels.package import deciding_libraries, read_package
from gpuinstall.wheels.wheel_reader import WheelReader
from tests.lab.native import native_library
from tests.unit.wheels.made import Bytes, archive, fatbin, filler, library

A, F = 0x100000, 0x200000
BASE = fatbin("sm_75 sm_90a sm_100f compute_100 compute_120f")
BASE_NAMES = ("sm_75", "sm_90a", "sm_100f", "compute_100", "compute_120f")
PTX = b"//\n.version 8.4\n.target sm_75\n.address_size 64\n.visible .entry scale("
OTHER_NAMES = [f"other_{number}" for number in range(16)]
"""A table of symbols has as many at least."""


def _pieces(data, size):
    return [data[start : start + size] for start in range(0, len(data), size)]


def _read(files, package, cuda=None, *, whole=False):
    wheel = WheelReader(Bytes(archive(files)))
    return read_package(wheel, package, may_have_code=True, cuda=cuda, whole=whole)


def _codes(files, package, cuda=None, *, whole=False):
    """The libraries that answer for a package, with their architectures."""
    codes = _read(files, package, cuda, whole=whole).codes
    return {code.library: code.architectures for code in codes}


def test_what_is_still_to_be_linked_hides_no_other_code_of_its_container():
    [code] = read_containers([fatbin("sm_80 link_80 compute_80")])

    assert code.architectures == ("sm_80", "compute_80")


@pytest.mark.parametrize("size", [1, 7, 64, 1000, 1 << 20])
def test_containers_are_read_however_they_come(size):
    data = filler(5000) + BASE + filler(100) + fatbin("sm_80") + BASE
    found = [code.architectures for code in read_containers(_pieces(data, size))]
    assert found == [BASE_NAMES, ("sm_80",), BASE_NAMES]


@pytest.mark.parametrize(
    "broken",
    [
        BASE[:-1],  # cut
        BASE[:8]
        + (len(BASE) - 17).to_bytes(8, "little")
        + BASE[16:],  # shorter than its entries
        BASE[:8] + (1 << 62).to_bytes(8, "little") + BASE[16:],  # endless
        fatbin("other_75"),
        fatbin("sm_7500"),
        BASE[:16],
        fatbin(""),
    ],
)
def test_what_only_looks_like_a_container_counts_for_nothing(broken):
    assert list(read_containers([broken])) == []


def test_single_kernels_for_other_architectures_do_not_count():
    odd, small = fatbin("sm_70 sm_75"), fatbin("sm_90a")
    assert (
        read_fatbins([odd, small, BASE, BASE, small, BASE, small]).architectures
        == BASE_NAMES
    )
    assert read_fatbins([BASE, BASE, small]).architectures == BASE_NAMES
    assert read_fatbins([]) == FatbinCode()


def test_a_library_is_what_most_of_its_containers_are():
    linked_in = fatbin("sm_75 sm_80 compute_80")
    own = fatbin("sm_75 sm_80 sm_90")
    pieces = [linked_in] * 20 + [own] * 67
    assert read_fatbins(pieces, whole=True).architectures == ("sm_75", "sm_80", "sm_90")
    of_each = [fatbin(f"sm_{number}") for number in (70, 80, 90)] * 9
    assert read_fatbins(of_each, whole=True).architectures == (
        "sm_70",
        "sm_80",
        "sm_90",
    )


@pytest.mark.parametrize("whole", [False, True])
def test_kernels_for_one_chip_make_the_others_no_rarer(whole):
    shared = fatbin("sm_70 sm_75 sm_80")
    chip = fatbin("sm_90a")
    pieces = [chip] * 40 + [shared] * 9 + [chip] * 40
    expected = ("sm_70", "sm_75", "sm_80", *(["sm_90a"] if whole else []))
    assert read_fatbins(pieces, whole=whole).architectures == expected


def test_rare_kernels_for_one_chip_do_not_count():
    shared = fatbin("sm_70 sm_75")
    pieces = [shared] * 9 + [fatbin("sm_90a")] * 2
    assert read_fatbins(pieces, whole=True).architectures == ("sm_70", "sm_75")


@pytest.mark.parametrize("whole", [False, True])
def test_each_library_of_a_module_answers(whole):
    files = {
        "some/large.so": library(fatbin("sm_90 sm_100a") * 3, 90_000),
        "some/small.so": library(fatbin("sm_70 compute_80") * 3, 40_000),
        "other/large.so": library(fatbin("sm_61") * 3, 80_000),
        "some.libs/libcusolver.so.12": library(fatbin("sm_50") * 3, 200_000),
    }
    assert _codes(files, "some", whole=whole) == {
        "some/large.so": ("sm_90", "sm_100a"),
        "some/small.so": ("sm_70", "compute_80"),
    }


@pytest.mark.parametrize(("little", "libraries"), [(16 << 20, 12), (0, 4)])
def test_a_part_is_the_same_whatever_was_read_before(monkeypatch, little, libraries):
    monkeypatch.setattr("gpuinstall.wheels.package._LITTLE", little)
    files = {
        f"some/{number}.so": library(fatbin("sm_80 sm_90") * 4)
        for number in range(12)
    }
    part = _read(files, "some")
    assert (len(part.codes), part.is_whole) == (libraries, False)
    assert _read(files, "some", whole=True).is_whole


@pytest.mark.parametrize("package", ["some-name-cu12", "some-name-gpu", "some-name"])
def test_the_module_that_a_package_is_named_after_answers_for_it(package):
    files = {
        "some_name/own.so": library(fatbin("sm_70") * 3, 40_000),
        "some_name_extra/other.so": library(fatbin("sm_90") * 3, 90_000),
    }
    assert _codes(files, package) == {"some_name/own.so": ("sm_70",)}
    files["some_name/own.so"] = library(b"", 40_000)
    assert _codes(files, package) == {}
    del files["some_name/own.so"]
    assert _codes(files, package) == {"some_name_extra/other.so": ("sm_90",)}


def test_a_part_that_a_module_does_without_is_read_last():
    files = {
        "dewy/lib_attn.so": library(fatbin("sm_80 sm_120") * 3, 90_000),
        "dewy/lib_flash_attn3.so": library(fatbin("sm_90a") * 3, 50_000),
    }
    own = {"dewy/lib_attn.so": ("sm_80", "sm_120")}
    assert _codes(files, "dewy") == own
    assert _codes(files, "dewy", whole=True) == {
        **own,
        "dewy/lib_flash_attn3.so": ("sm_90a",),
    }


def test_plugins_decide_if_there_is_nothing_else():
    files = {
        "torchcodec/libtorchcodec_core4.so": library(fatbin("sm_70") * 3, 90_000),
        "torchcodec/libtorchcodec_core5.so": library(fatbin("sm_70") * 3, 80_000),
    }
    bundled = "torchcodec.libs/libavif-e4168294.so.16.4.2"
    assert deciding_libraries("torchcodec", [*files, bundled]) == list(files)
    assert deciding_libraries("torchcodec", [*files, "torchcodec/_C.so"]) == [
        "torchcodec/_C.so"
    ]
    assert deciding_libraries("torchao", ["torchao/_C.so"]) == []
    own = ["open3d/libOpen3D.so.0.20", "open3d/pybind.cpython-312-x86_64-linux-gnu.so"]
    ops = ["open3d/open3d_torch_ops.so", "open3d/cpu/open3d_tf_ops.so"]
    assert deciding_libraries("open3d", [*own, *ops]) == own


def test_what_a_module_is_linked_to_is_part_of_it(tmp_path):
    module = native_library(
        tmp_path / "m.so", needs=["libown-0b3e2b5d.so.1", "libcublas.so.12"]
    )
    code = fatbin("sm_75 sm_80") * 3
    own = native_library(tmp_path / "own.so", code=code)
    files = {
        "some/_some.so": module.read_bytes(),
        "some_cu12.libs/libown-0b3e2b5d.so.1": own.read_bytes(),
        "some_cu12.libs/libcublas.so.12": library(fatbin("sm_50") * 3, 200_000),
        "some_cu12.libs/libother.so.1": library(fatbin("sm_60") * 3, 300_000),
    }
    linked = "some_cu12.libs/libown-0b3e2b5d.so.1"
    assert _codes(files, "some-cu12") == {linked: ("sm_75", "sm_80")}


def test_code_is_looked_for_beside_a_bundled_runtime_though_nothing_says_cuda():
    files = {
        "some/own.so": library(fatbin("sm_80") * 3, 90_000),
        "some.libs/libcudart-c64a25f3.so.12.3.101": b"",
    }
    wheel = WheelReader(Bytes(archive(files)))
    facts = read_package(wheel, "some", may_have_code=False)
    assert [code.library for code in facts.codes] == ["some/own.so"]


def test_code_is_looked_for_where_a_runtime_is_linked_in_though_nothing_says_cuda(
    tmp_path,
):
    own = native_library(
        tmp_path / "own.so",
        undefined=["mkfifo", "nftw", *OTHER_NAMES],
        code=fatbin("sm_80") * 3,
    )
    wheel = WheelReader(Bytes(archive({"some/own.so": own.read_bytes()})))

    facts = read_package(wheel, "some", may_have_code=False)

    assert [code.library for code in facts.codes] == ["some/own.so"]


def test_what_lies_in_files_of_its_own_is_code():
    files = {
        "some/kernels/gemm.fatbin": fatbin("sm_70 sm_80"),
        "some/kernels/trace.ptx": PTX,
        "some/kernels/README": b"what they do",
    }

    assert _codes(files, "some") == {
        "some/kernels/gemm.fatbin": ("sm_70", "sm_80"),
        "some/kernels/trace.ptx": ("compute_75",),
    }


@pytest.mark.parametrize("size", [1, 7, 64, 1 << 20])
def test_ptx_that_lies_in_a_library_as_text_is_code(size):
    by_hand = PTX.removeprefix(b"//").replace(b"sm_75", b"sm_90")
    others = filler(100) + PTX.replace(b"sm_75", b"sm_90a") + by_hand * 4
    data = filler(5000) + PTX + others + PTX

    code = read_fatbins(_pieces(data, size), whole=True)

    assert (code.architectures, code.isa) == (("compute_75",), (8, 4))


def test_ptx_as_text_counts_for_nothing_beside_containers():
    assert read_fatbins([PTX, BASE, PTX]).architectures == BASE_NAMES


def test_packages_that_do_not_go_together_are_known():
    members = load_members()
    [clash] = members.clashes({"onnxruntime": "1.20.1", "onnxruntime-gpu": "1.20.1"})
    assert clash.startswith(
        "onnxruntime 1.20.1 and onnxruntime-gpu 1.20.1 do not go together"
    )
    [clash] = members.clashes(
        {"nvidia-cudnn-cu12": "9.1.0", "nvidia-cudnn-cu13": "9.2.0"}
    )
    assert "write the same files" in clash
    versions = {"ctranslate2": "4.4.0", "nvidia-cudnn-cu12": "9.1.0.70"}
    assert list(members.clashes(versions))
    assert not list(members.clashes({**versions, "ctranslate2": "4.5.0"}))
    assert not list(members.clashes({**versions, "nvidia-cudnn-cu12": "8.9.7.29"}))


@pytest.mark.parametrize(
    ("isa", "cuda"),
    [
        ((6, 5), 10),
        ((7, 0), 11),
        ((7, 8), 11),
        ((8, 7), 12),
        ((9, 0), 13),
        ((9, 9), 13),
    ],
)
def test_the_isa_of_its_ptx_tells_the_cuda_that_wrote_it(isa, cuda):
    made = fatbin("sm_75 compute_80 isa {}.{}".format(*isa)) + fatbin("sm_90")
    assert _read({"xformers/_C.so": made * 3}, "xformers", "13.0").cuda == cuda


def test_the_libraries_that_its_strings_name_are_told_but_not_taken_for_its_cuda():
    named = b"\0libcudart.so.13\0" + fatbin("sm_90") * 3
    code = _read({"vllm/_C.abi3.so": named}, "vllm", "12.9")
    assert (code.cuda, code.opens) == (None, ("libcudart.so.13",))


@pytest.mark.parametrize(
    ("names", "writes"),
    [(b"\0nvrtcGetPTX\0", True), (b"\0nvrtcGetPTX\0nvrtcGetCUBIN\0", False)],
)
def test_what_opens_nvrtc_by_name_to_have_ptx_written_is_told(names, writes):
    files = {"vllm/_C.abi3.so": b"\0libnvrtc.so.12" + names}
    assert _read(files, "vllm", "12.9").writes_ptx is writes


def test_a_library_that_the_wheel_brings_under_a_new_name_is_not_told_as_opened():
    named = b"\0libcudart.so.12\0" + fatbin("sm_90") * 3
    files = {"some/_C.so": named, "some.libs/libcudart-0b3e2b5d.so.12.8.90": b""}
    assert _read(files, "some", "12.9").opens == ()


@pytest.mark.parametrize(
    ("package", "member"),
    [
        ("nvidia-cudnn-cu12", "nvidia/cudnn/lib/libcudnn_cnn.so.9"),
        ("nvidia-cudnn-cu13", "nvidia/cudnn/bin/cudnn_cnn64_9.dll"),
        ("torchvision", "torchvision/_C_stable.so"),
        ("torchaudio", "torchaudio/lib/libtorchaudio.so"),
        ("vllm", "vllm/_C_stable_libtorch.abi3.so"),
    ],
)
def test_the_library_that_answers_for_a_package(package, member):
    other = library(fatbin("sm_90a") * 3)
    files = {"larger.so": other, member: BASE * 3}
    assert _codes(files, package) == {member: BASE_NAMES}


@pytest.mark.parametrize(
    ("cuda", "chosen"),
    [("12.6", 126), ("12.9", 128), ("12.0", 118 + 3), ("13.0", 130), ("13.2", 130)],
)
def test_one_library_for_each_cuda(cuda, chosen):
    files = {
        f"bitsandbytes/libbitsandbytes_cuda{number}.so": fatbin(f"sm_{number - 50}")
        for number in (118, 121, 126, 128, 130)
    }
    name = f"bitsandbytes/libbitsandbytes_cuda{chosen}.so"
    assert _codes(files, "bitsandbytes", cuda) == {name: (f"sm_{chosen - 50}",)}


def test_a_cuda_may_have_a_library_for_older_chips():
    first = "bitsandbytes/libbitsandbytes_cuda123.so"
    second = "bitsandbytes/libbitsandbytes_cuda123_nocublaslt.so"
    files = {first: fatbin("sm_75"), second: fatbin("sm_70") * 2}
    codes = _codes(files, "bitsandbytes", "12.6")
    assert codes == {first: ("sm_75",), second: ("sm_70",)}


@pytest.mark.parametrize(
    "cuda",
    [
        None,
        "twelve",
    ],
)
def test_no_library_for_this_cuda(cuda):
    files = {"bitsandbytes/libbitsandbytes_cuda128.so": BASE}
    assert _codes(files, "bitsandbytes", cuda) == {}


def test_many_small_libraries_without_code_are_all_read():
    names = [f"some/{number}.so" for number in range(9)]
    answer = _read({name: library(filler(900)) for name in names}, "some")
    assert (answer.codes, answer.is_whole) == ((), True)


def test_an_unknown_package_is_answered_for_by_its_largest_library_with_gpu_code():
    files = {
        "some/fa3/flash_attn_3_cuda.so": library(fatbin("sm_90a"), 90_000),
        "some.libs/libjpeg-1.so.8": library(b"", 60_000),
        "some/_C.abi3.so": library(BASE, 40_000),
        "some/small.so": fatbin("sm_80"),
        "some/data.bin": library(fatbin("sm_80"), 80_000),
    }
    assert _codes(files, "some") == {
        "some/_C.abi3.so": BASE_NAMES,
        "some/small.so": ("sm_80",),
    }


def test_every_row_has_its_evidence():
    table = tomli.loads(
        (Path(gpuinstall.wheels.__file__).parent / "members.toml").read_text("utf-8")
    )
    rows = [
        *table["members"],
        *table["optional"],
        *table["stated"].values(),
        *table["pairs"],
    ]
    assert {row["evidence"] for row in rows} == set(table["evidence"])
    assert all(re.compile(row.get("member", "") + row.get("part", "")) for row in rows)
    assert len(load_members().members) == len(table["members"])


def test_a_part_that_others_do_without_answers_for_the_package_that_is_named_after_it():
    files = {"flash_attn_3/_C.so": filler(5000) + fatbin("sm_90a") * 3}

    assert _codes(files, "flash-attn-3") == {"flash_attn_3/_C.so": ("sm_90a",)}
    assert _codes(files, "vllm") == {}
    assert not load_members().is_spare("flash-attn-3", "flash_attn_3/_C.so")
    assert load_members().is_spare("vllm", "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so")
