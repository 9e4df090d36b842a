"""Architectures of packages with GPU code."""

import random
import re
from pathlib import Path

import pytest
import tomli

import gpuinstall.wheels
from gpuinstall.wheels.gpu_code import Fatbins, read_containers
from gpuinstall.wheels.members import load_members
from gpuinstall.wheels.package import PackageReader, find_deciding_libraries
from gpuinstall.wheels.wheel_reader import WheelReader
from tests.lab.compiler import skip_without_gnu_layout
from tests.lab.native import native_library
from tests.unit.wheels.made import Bytes, archive, fatbin, filler, library

WORDS = "sm_75 sm_90a sm_100f compute_100 compute_120f"
BASE = fatbin(WORDS)

ANSWERING = """
# Each library of a module answers.
some
> some/large.so 90 kB: sm_90 sm_100a
> some/small.so 40 kB: sm_70 compute_80
- other/large.so 80 kB: sm_61
- some.libs/libcusolver.so.12 200 kB: sm_50

# The module that a package is named after answers, however it says that it is for GPUs.
some-name-cu12
> some_name/own.so 40 kB: sm_70
- some_name_extra/other.so 90 kB: sm_90

# It answers without code too.
some-name-gpu
- some_name/own.so 40 kB:
- some_name_extra/other.so 90 kB: sm_90

# Another module answers if there is none of that name.
some-name
> some_name_extra/other.so 90 kB: sm_90

# A part that a module does without is read last.
dewy
> dewy/lib_attn.so 90 kB: sm_80 sm_120
whole dewy/lib_flash_attn3.so 50 kB: sm_90a

# A part that others do without answers for the package that is named after it.
flash-attn-3
> flash_attn_3/_C.so 50 kB: sm_90a

# It does not answer for those others.
vllm
- flash_attn_3/_C.so 50 kB: sm_90a

# An unknown package is answered for by all that has GPU code.
some
whole some/fa3/flash_attn_3_cuda.so 90 kB: sm_90a
- some.libs/libjpeg-1.so.8 60 kB:
> some/_C.abi3.so 40 kB: sm_75 sm_90a sm_100f compute_100 compute_120f
> some/small.so 5 kB: sm_80
- some/data.bin 80 kB: sm_80

# Modules for other Pythons are copies.
some
- some/_C.cpython-312-x86_64-linux-gnu.so 90 kB: sm_80
> some/_C.cpython-314t-x86_64-linux-gnu.so 90 kB: sm_80

# Only the files directly in auditwheel's folder are bundled libraries of others.
some
> _some.so 90 kB: sm_90
> Other.libs/lib/plugins/libSomeCUDA.so 40 kB: sm_80
- Other.libs/libjpeg-0b3e2b5d.so.8 60 kB: sm_50

# One library answers for cuDNN.
nvidia-cudnn-cu12
- larger.so 400 kB: sm_90a
> nvidia/cudnn/lib/libcudnn_cnn.so.9 9 kB: sm_75

# On Windows it has another name.
nvidia-cudnn-cu13
- larger.so 400 kB: sm_90a
> nvidia/cudnn/bin/cudnn_cnn64_9.dll 9 kB: sm_75

# One answers for torchvision,
torchvision
- larger.so 400 kB: sm_90a
> torchvision/_C_stable.so 9 kB: sm_75

# for torchaudio,
torchaudio
- larger.so 400 kB: sm_90a
> torchaudio/lib/libtorchaudio.so 9 kB: sm_75

# and for vLLM.
vllm
- larger.so 400 kB: sm_90a
> vllm/_C_stable_libtorch.abi3.so 9 kB: sm_75

# Of one library for each CUDA that of torch's own is selected,
bitsandbytes beside CUDA 12.6
- bitsandbytes/libbitsandbytes_cuda121.so 9 kB: sm_71
> bitsandbytes/libbitsandbytes_cuda126.so 9 kB: sm_76
- bitsandbytes/libbitsandbytes_cuda128.so 9 kB: sm_78
- bitsandbytes/libbitsandbytes_cuda130.so 9 kB: sm_80

# else the nearest below it,
bitsandbytes beside CUDA 12.9
- bitsandbytes/libbitsandbytes_cuda126.so 9 kB: sm_76
> bitsandbytes/libbitsandbytes_cuda128.so 9 kB: sm_78
- bitsandbytes/libbitsandbytes_cuda130.so 9 kB: sm_80

# else the nearest above it,
bitsandbytes beside CUDA 12.0
- bitsandbytes/libbitsandbytes_cuda118.so 9 kB: sm_68
> bitsandbytes/libbitsandbytes_cuda121.so 9 kB: sm_71
- bitsandbytes/libbitsandbytes_cuda126.so 9 kB: sm_76

# of the same major.
bitsandbytes beside CUDA 13.2
- bitsandbytes/libbitsandbytes_cuda128.so 9 kB: sm_78
> bitsandbytes/libbitsandbytes_cuda130.so 9 kB: sm_80

# A CUDA may have a library for older chips.
bitsandbytes beside CUDA 12.6
> bitsandbytes/libbitsandbytes_cuda123.so 9 kB: sm_75
> bitsandbytes/libbitsandbytes_cuda123_nocublaslt.so 9 kB: sm_70

# None is of no CUDA.
bitsandbytes
- bitsandbytes/libbitsandbytes_cuda128.so 9 kB: sm_75
"""
"""Packages and their libraries: ``>`` decides, ``whole`` after a full read."""


def _pieces(data, size):
    return [data[start : start + size] for start in range(0, len(data), size)]


def _read(files, package="some", cuda=None, *, whole=False, may_have_code=True):
    wheel = WheelReader(Bytes(archive(files)))
    reader = PackageReader(wheel, package, may_have_code=may_have_code, cuda=cuda)
    return reader.read_code(whole=whole)


def _codes(*args, **how):
    """Return the deciding libraries of a package, with their architectures."""
    return {code.library: code.architectures for code in _read(*args, **how).codes}


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("paragraph", ANSWERING.strip().split("\n\n"))
def test_libraries_that_determine_compatibility_are_found(paragraph, whole):
    _, asked, *lines = paragraph.splitlines()
    package, _, cuda = asked.partition(" beside CUDA ")
    files = {}
    answering = {}
    for line in lines:
        mark, name, size, _, *words = line.split()
        files[name] = library(fatbin(" ".join(words)) * 3, int(size) * 1000)
        if mark == ">" or (mark == "whole" and whole):
            answering[name] = tuple(words)

    assert _codes(files, package, cuda, whole=whole) == answering


def test_unlinked_device_code_is_ignored():
    [code] = read_containers([fatbin("sm_80 link_80 compute_80")])

    assert code.architectures == ("sm_80", "compute_80")


@pytest.mark.parametrize("size", [1, 7, 64, 1000, 1 << 20])
def test_fatbin_containers_are_read_in_pieces(size):
    data = filler(5000) + BASE + filler(100) + fatbin("sm_80") + BASE
    found = [
        " ".join(code.architectures) for code in read_containers(_pieces(data, size))
    ]

    assert found == [WORDS, "sm_80", WORDS]


@pytest.mark.parametrize(
    "broken",
    [
        BASE[:-1],
        BASE[:16],
        # Shorter than its entries, and endless.
        BASE[:8] + (len(BASE) - 17).to_bytes(8, "little") + BASE[16:],
        BASE[:8] + (1 << 62).to_bytes(8, "little") + BASE[16:],
        fatbin("other_75"),
        fatbin("sm_7500"),
        fatbin(""),
    ],
)
def test_malformed_fatbin_container_is_ignored(broken):
    assert list(read_containers([broken])) == []


@pytest.mark.parametrize(
    ("containers", "part", "whole"),
    [
        ("", "", ""),
        # Single kernels for other architectures do not count.
        (f"1 sm_70 sm_75, 1 sm_90a, 2 {WORDS}, 1 sm_90a, 1 {WORDS}", WORDS, WORDS),
        (f"2 {WORDS}, 1 sm_90a", WORDS, WORDS),
        # Most containers decide.
        (
            "20 sm_75 sm_80 compute_80, 67 sm_75 sm_80 sm_90",
            "sm_75 sm_80 compute_80",
            "sm_75 sm_80 sm_90",
        ),
        ("9 sm_70, 9 sm_80, 9 sm_90", "sm_70 sm_80 sm_90", "sm_70 sm_80 sm_90"),
        # Kernels for one architecture do not make others rare, and do not count if rare.
        (
            "40 sm_90a, 9 sm_70 sm_75 sm_80, 40 sm_90a",
            "sm_70 sm_75 sm_80",
            "sm_70 sm_75 sm_80 sm_90a",
        ),
        ("9 sm_70 sm_75, 2 sm_90a", "sm_70 sm_75", "sm_70 sm_75"),
    ],
)
def test_architectures_are_those_of_most_fatbin_containers(containers, part, whole):
    pieces = []
    for text in filter(None, containers.split(", ")):
        count, _, words = text.partition(" ")
        pieces += [fatbin(words)] * int(count)

    for is_whole, expected in ((False, part), (True, whole)):
        fatbins = Fatbins(pieces)
        code = fatbins.read(whole=is_whole)
        assert " ".join(code.architectures) == expected


@pytest.mark.parametrize(
    ("words", "represents"), [("sm_70 sm_80", True), ("sm_70 compute_100", False)]
)
def test_single_architectures_do_not_represent_a_library(words, represents):
    # cuTENSOR 2.8 sorts its containers by architecture.
    fatbins = Fatbins([fatbin(words)] * 20)

    fatbins.read(whole=True)

    assert fatbins.is_representative is represents


@pytest.mark.parametrize(("little", "libraries"), [(16 << 20, 12), (0, 4)])
def test_partial_read_includes_all_small_libraries(monkeypatch, little, libraries):
    monkeypatch.setattr("gpuinstall.wheels.package._LITTLE", little)
    code = library(fatbin("sm_80 sm_90") * 4)
    files = {f"some/{number}.so": code for number in range(12)}
    part = _read(files)

    assert (len(part.codes), part.is_whole) == (libraries, False)
    assert _read(files, whole=True).is_whole


def test_all_small_libraries_without_code_are_read():
    code = library(filler(900))
    answer = _read({f"some/{number}.so": code for number in range(9)})

    assert (answer.codes, answer.is_whole) == ((), True)


def test_linked_library_is_read_with_its_module(tmp_path):
    needs = ["libown-0b3e2b5d.so.1", "libcublas.so.12"]
    module = native_library(tmp_path / "m.so", needs=needs)
    own = native_library(tmp_path / "own.so", code=fatbin("sm_75 sm_80") * 3)
    linked = "some_cu12.libs/libown-0b3e2b5d.so.1"
    files = {
        "some/_some.so": module.read_bytes(),
        linked: own.read_bytes(),
        "some_cu12.libs/libcublas.so.12": library(fatbin("sm_50") * 3, 200_000),
        "some_cu12.libs/libother.so.1": library(fatbin("sm_60") * 3, 300_000),
    }

    assert _codes(files, "some-cu12") == {linked: ("sm_75", "sm_80")}


def test_other_modules_need_libraries_of_the_same_cuda(tmp_path):
    files = {}
    for path, *needs in (
        ("cupy/cufft.so", "libcufft.so.12"),
        ("cupy_backends/curand.so", "libcurand.so.10", "libown.so"),
        ("cupy_backends/older.so", "libcublas.so.12"),
        ("cupy_backends/cuda/libs/cutensor.so", "libcutensor.so.2"),
    ):
        library = native_library(tmp_path / "library.so", needs=needs)
        files[path] = library.read_bytes()

    answer = _read(files, "cupy-cuda13x")

    assert answer.needs == ("libcufft.so.12", "libcurand.so.10")
    assert answer.cudas == (13,)


@pytest.mark.parametrize(
    ("more", "is_whole"),
    [
        ({}, True),
        ({"av.libs/libcudart-c64a25f3.so.12": b""}, False),
        ({"av/kernels.cubin": b""}, False),
    ],
)
def test_wheel_without_gpu_signs_is_read_partly(tmp_path, more, is_whole):
    names = [f"other_{number}" for number in range(16)]
    module = native_library(
        tmp_path / "m.so", needs=["libavcodec-0b3e2b5d.so.62"], undefined=names
    )
    files = {f"av/_{number}.so": module.read_bytes() for number in range(12)}
    bundled = "av.libs/libavcodec-0b3e2b5d.so.62"
    packed = Bytes(archive({**files, bundled: library(size=900_000), **more}))
    wheel = WheelReader(packed)
    facts = PackageReader(wheel, "av", may_have_code=False).read_tables()

    assert facts.is_whole == is_whole
    # Without such a sign, libraries of other projects are not read.
    assert (wheel.bytes_read < 200_000) == is_whole


def test_gpu_code_in_a_section_is_found(tmp_path):
    names = [f"other_{number}" for number in range(16)]
    section = fatbin("sm_80") * 3 + b"\0.nv_fatbin\0"
    module = native_library(tmp_path / "m.so", code=section, undefined=names)
    wheel = WheelReader(Bytes(archive({"some/own.so": module.read_bytes()})))
    reader = PackageReader(wheel, "some", may_have_code=False)

    assert not reader.read_tables().is_whole
    [code] = reader.read_code(whole=False).codes
    assert code.architectures == ("sm_80",)


def test_separate_gpu_code_files_are_read():
    files = {
        "some/kernels/gemm.fatbin": fatbin("sm_70 sm_80"),
        "some/kernels/README": b"what they do",
    }

    assert _codes(files) == {"some/kernels/gemm.fatbin": ("sm_70", "sm_80")}


@pytest.mark.parametrize(
    ("versions", "why"),
    [
        (
            "onnxruntime 1.20.1, onnxruntime-gpu 1.20.1",
            "onnxruntime 1.20.1 and onnxruntime-gpu 1.20.1 conflict",
        ),
        (
            "nvidia-cudnn-cu12 9.1.0, nvidia-cudnn-cu13 9.2.0",
            "write the same files",
        ),
        ("ctranslate2 4.4.0, nvidia-cudnn-cu12 9.1.0.70", "conflict"),
        ("ctranslate2 4.5.0, nvidia-cudnn-cu12 9.1.0.70", ""),
        ("ctranslate2 4.4.0, nvidia-cudnn-cu12 8.9.7.29", ""),
    ],
)
def test_conflicting_package_variants_are_reported(versions, why):
    find_conflicts = [
        *load_members().find_conflicts(dict(map(str.split, versions.split(", "))))
    ]

    assert len(find_conflicts) == bool(why)
    assert why in "".join(find_conflicts)


@pytest.mark.parametrize(
    ("isa", "cuda"),
    [
        ("6.5", 10),
        ("7.0", 11),
        ("7.8", 11),
        ("8.7", 12),
        ("9.0", 13),
        ("9.9", 13),
    ],
)
def test_ptx_isa_version_determines_cuda_major(isa, cuda):
    code = fatbin(f"sm_75 compute_80 isa {isa}") + fatbin("sm_90")

    assert _read({"xformers/_C.so": code * 3}, "xformers").cudas == (cuda,)


@pytest.mark.parametrize(
    ("libraries", "cudas"),
    [
        ("a 8.4, b 8.7", (12,)),
        # One major version for each folder, or for each library.
        ("a 8.4, b 9.0", (12, 13)),
        ("cu12/a 8.4, cu13/a 8.4", (12, 13)),
        ("cu12/a 8.4", (12,)),
    ],
)
def test_both_cuda_majors_of_a_wheel_are_found(libraries, cudas):
    files = {}
    for text in libraries.split(", "):
        name, isa = text.split()
        files[f"some/{name}.so"] = library(fatbin(f"sm_80 compute_80 isa {isa}") * 3)

    assert _read(files).cudas == cudas


def test_cuda_is_unknown_if_ptx_library_is_unread(monkeypatch):
    monkeypatch.setattr("gpuinstall.wheels.package._LITTLE", 0)
    code = library(fatbin("sm_80 compute_80 isa 8.4") * 3)
    files = {f"some/{number}.so": code for number in range(9)}

    assert _read(files).cudas == ()
    assert _read(files, whole=True).cudas == (12,)


@pytest.mark.parametrize(
    ("package", "names", "deciding"),
    [
        (
            "nvidia-cufft-cu12",
            "nvidia/cufft/lib/libcufft.so.11 nvidia/cufft/lib/libcufftw.so.11",
            ["nvidia/cufft/lib/libcufft.so.11"],
        ),
        ("nvidia-cufft", "nvidia/cu13/lib/libcufft.so.12", None),
        (
            "nvidia-cudss-cu12",
            "nvidia/cu12/lib/libcudss.so.0 nvidia/cu12/lib/libcudss_commlayer_nccl.so.0",
            ["nvidia/cu12/lib/libcudss.so.0"],
        ),
        ("nvidia-cublas-cu12", "nvidia/cublas/lib/libcublas.so.12", None),
        (
            "some",
            "some/_C.so some/libcufft.so.11 some/libcublas.so.12",
            ["some/_C.so"],
        ),
        # Plugins decide without other libraries.
        (
            "torchcodec",
            "torchcodec/libtorchcodec_core4.so torchcodec.libs/libavif-e4168294.so.16.4.2",
            ["torchcodec/libtorchcodec_core4.so"],
        ),
        (
            "torchcodec",
            "torchcodec/_C.so torchcodec/libtorchcodec_core4.so",
            ["torchcodec/_C.so"],
        ),
        (
            "open3d",
            "open3d/libOpen3D.so.0.20 open3d/open3d_torch_ops.so open3d/cpu/open3d_tf_ops.so",
            ["open3d/libOpen3D.so.0.20"],
        ),
    ],
)
def test_own_libraries_determine_package_compatibility(package, names, deciding):
    found = find_deciding_libraries(package, names.split())

    assert found == (deciding or names.split())


@pytest.mark.parametrize(
    ("bundled", "undefined", "has_runtime"),
    [
        ("some.libs/libcudart-c64a25f3.so.12.3.101", [], True),
        ("some/lib/libcudart.so.12", [], True),
        (None, ["mkfifo", "nftw"], True),
        ("some.libs/libcublas-c64a25f3.so.12.3.101", [], False),
    ],
)
def test_bundled_runtime_is_found(tmp_path, bundled, undefined, has_runtime):
    names = [*undefined, *(f"other_{number}" for number in range(16))]
    own = native_library(tmp_path / "own.so", undefined=names)
    files = {"some/own.so": own.read_bytes()} | ({bundled: b""} if bundled else {})

    assert _read(files).has_runtime is has_runtime


@pytest.mark.parametrize(
    ("strings", "opens"),
    [
        (b"\0libcudart.so.13\0", ("libcudart.so.13",)),
        # The wheel bundles it under another name.
        (b"\0libcudart.so.12\0", ()),
    ],
)
def test_dlopen_library_does_not_determine_cuda(strings, opens):
    files = {
        "some/_C.so": strings + fatbin("sm_90") * 3,
        "some.libs/libcudart-0b3e2b5d.so.12.8.90": b"",
    }
    facts = _read(files)

    assert (facts.cudas, facts.opens) == ((), opens)


class Counted(Bytes):
    """A file in memory that counts its bytes."""

    read = 0

    def stream(self, start, end):
        for piece in super().stream(start, end):
            self.read += len(piece)
            yield piece


@pytest.fixture
def large(tmp_path):
    """Create a wheel with a large library that has GPU code."""
    skip_without_gnu_layout()
    dice = random.Random(0)
    code = b"".join(fatbin("sm_80 sm_90") + dice.randbytes(9000) for _ in range(300))
    names = [f"other_{number}" for number in range(30)]
    library = native_library(tmp_path / "_C.so", undefined=names, code=code)
    return Counted(archive({"some/_C.so": library.read_bytes()}))


def test_full_read_reuses_bytes_of_partial_read(large):
    package = PackageReader(WheelReader(large), "some", may_have_code=True)

    tables = package.read_tables()
    part = package.read_code(whole=False)
    of_part = large.read
    whole = package.read_code(whole=True)

    assert (tables.is_whole, part.is_whole, whole.is_whole) == (False, False, True)
    assert part.codes == whole.codes
    assert of_part < large.size / 2
    # An unused piece is read again.
    assert large.read <= large.size + (1 << 18)
    again = PackageReader(WheelReader(large), "some", may_have_code=True)
    assert again.read_code(whole=True) == whole


@pytest.mark.parametrize(
    ("limit", "unread"), [(500_000, ()), (100_000, ("some/_C.so",))]
)
def test_code_size_limit_stops_reading(large, monkeypatch, limit, unread):
    monkeypatch.setattr("gpuinstall.wheels.package.CODE_LIMIT", limit)
    package = PackageReader(WheelReader(large), "some", may_have_code=True)

    facts = package.read_code(whole=True)

    # Sixteen containers represent the rest.
    [code] = facts.codes
    assert (code.architectures, facts.unread) == (("sm_80", "sm_90"), unread)
    assert large.read < 1_200_000


def test_tables_beyond_the_code_size_limit_remain_unread(monkeypatch):
    monkeypatch.setattr("gpuinstall.wheels.package.CODE_LIMIT", 500_000)
    monkeypatch.setattr("gpuinstall.wheels.needs._SMALL", 0)
    dice = random.Random(0)
    code = b"".join(fatbin("sm_80 sm_90") + dice.randbytes(9000) for _ in range(300))
    wheel = WheelReader(Bytes(archive({"some/_C.so": code})))
    package = PackageReader(wheel, "some", may_have_code=True)

    part = package.read_code(whole=False)
    whole = package.read_code(whole=True)

    assert whole.codes == part.codes
    assert whole.is_whole


def test_code_size_limit_includes_smaller_libraries(tmp_path, monkeypatch):
    skip_without_gnu_layout()
    monkeypatch.setattr("gpuinstall.wheels.package.CODE_LIMIT", 300_000)
    dice = random.Random(0)
    names = [f"other_{number}" for number in range(30)]
    files = {}
    for name, size in (("large", 900_000), ("b", 9000), ("c", 8000)):
        code = dice.randbytes(size) + fatbin("sm_80 sm_90") * 3
        own = native_library(tmp_path / f"{name}.so", undefined=names, code=code)
        files[f"some/{name}.so"] = own.read_bytes()

    facts = _read(files, whole=True)

    assert facts.unread == ("some/large.so",)
    assert [code.library for code in facts.codes] == ["some/b.so", "some/c.so"]


def test_every_package_row_has_evidence():
    file = Path(gpuinstall.wheels.__file__).parent / "members.toml"
    table = tomli.loads(file.read_text("utf-8"))
    rows = [
        *table["members"],
        *table["optional"],
        *table["stated"].values(),
        *table["pairs"],
        *table["families"],
    ]
    assert {row["evidence"] for row in rows} == set(table["evidence"])
    assert all(re.compile(row.get("member", "") + row.get("part", "")) for row in rows)
    assert len(load_members().members) == len(table["members"])


def test_flash_attention_is_optional_only_in_vllm():
    is_optional = load_members().is_optional

    assert is_optional("vllm", "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so")
    assert not is_optional("flash-attn-3", "flash_attn_3/_C.so")
