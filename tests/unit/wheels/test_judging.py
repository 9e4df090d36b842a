"""What a reading means for GPUs, their driver and torch: a table for each rule."""

import pytest

from gpuinstall.base.values import replace
from gpuinstall.catalog import load_catalog
from gpuinstall.machine.vendors import rules_for
from gpuinstall.machine.words import machine_in_words
from gpuinstall.wheels.judging import (
    judge_file,
    judge_reading,
    loads_beside,
    misfit_beside,
    process_cuda,
    unbrought_libraries,
    unreadable_ptx,
)
from gpuinstall.wheels.learned.row import Depth, LearnedRow
from gpuinstall.wheels.needs import (
    TorchNeeds,
    label_cuda,
    pinned_cuda,
)
from gpuinstall.wheels.package import LibraryCode

READING = LearnedRow(
    package="some",
    version="1.0",
    backend="cu126",
    platform="linux-x86_64",
    file="some-1.0-cp312-cp312-manylinux_2_28_x86_64.whl",
    url="https://index.example/some.whl",
    size=9,
    bytes=9,
    learned="2026-11-20T10:00:00+00:00",
    depth=Depth.WHOLE,
)


def gpus(*names, driver="570.86.15"):
    """GPUs by name, with the rules of a machine that has them."""
    machine = machine_in_words(names, driver)
    rules = rules_for(machine, load_catalog(), {"cuda"})
    return tuple((rules, gpu) for gpu in machine.gpus)


def reading(**fields):
    """A reading that differs in some fields; its codes are written as ``large sm_70, second sm_80 compute_80``."""
    codes = []
    for text in fields.pop("codes", "").split(", "):
        name, *words = text.split() or [""]
        if words:
            codes.append(LibraryCode(f"some/{name}.so", tuple(words)))
    return replace(READING, codes=tuple(codes), **fields)


def build_named(name):
    """The build of the catalogue for Linux and x86-64."""
    [build] = [
        build
        for build in load_catalog().builds_for("linux", "x86_64")
        if build.name == name
    ]
    return build


TWO_CUDAS = ("libcudart.so.12", "libcudart.so.13")
FOR_EACH_CUDA = "c_cu124 sm_80, c_cu126 sm_80, c_cu130 sm_90, d sm_90"
WITH_FAST_WAY = "main sm_80, flash_attn_3 sm_90a"
PART = {"depth": Depth.PART, "is_whole": False}
UNREAD = {"depth": Depth.METADATA}
JUDGED = [
    # One library.
    ("V100", {"codes": "a sm_70"}, ""),
    (
        "V100",
        {"codes": "a sm_80 sm_90"},
        "has no code for V100: some/a.so is compiled for sm_80 sm_90",
    ),
    (
        "V100",
        {"codes": "a sm_90a"},
        "has no code for V100: some/a.so is compiled for sm_90a",
    ),
    # PTX runs on what is newer, whatever its own minor.
    ("V100", {"codes": "a sm_60 compute_60"}, ""),
    (
        "V100",
        {"codes": "a sm_80 compute_80"},
        "has no code for V100: some/a.so is compiled for sm_80 compute_80",
    ),
    # Most of the libraries have to lack it; where as many have it a warning says so. The one at fault is named.
    ("V100", {"codes": "a sm_70, b sm_70, c sm_90a"}, ""),
    (
        "V100",
        {"codes": "large sm_70, second sm_80"},
        "doubt: may have no code for V100: some/second.so is compiled for sm_80, and its other libraries have code",
    ),
    (
        "V100",
        {"codes": "large sm_70, second sm_80, third sm_80 sm_90"},
        "has no code for V100: some/second.so is compiled for sm_80",
    ),
    # Those that are one for each CUDA count as one.
    ("H100", {"codes": FOR_EACH_CUDA}, ""),
    (
        "P40",
        {"codes": FOR_EACH_CUDA},
        "has no code for Tesla P40: some/c_cu124.so is compiled for sm_80",
    ),
    # A part that a package does without speaks for a GPU alone, unless the package is named after it.
    ("RTX 4090", {"codes": WITH_FAST_WAY}, ""),
    (
        "H100",
        {"codes": WITH_FAST_WAY},
        "doubt: may have no code for H100: some/main.so is compiled for sm_80, and its other libraries have code",
    ),
    (
        "V100",
        {"codes": WITH_FAST_WAY},
        "has no code for V100: some/main.so is compiled for sm_80",
    ),
    (
        "RTX 4090",
        {"package": "flash-attn-3", "codes": "flash_attn_3 sm_90a"},
        "has no code for GeForce RTX 4090: some/flash_attn_3.so is compiled for sm_90a",
    ),
    # Code for single chips may stand beside that of another package.
    (
        "RTX 4090",
        {"codes": "a sm_90a sm_100a"},
        "has no code for GeForce RTX 4090: some/a.so is compiled for sm_90a sm_100a",
    ),
    (
        "RTX 4090",
        {"codes": "a sm_90a sm_100a", "needs": ("libothers.so",)},
        "doubt: has no code for GeForce RTX 4090: some/a.so is compiled for sm_90a sm_100a",
    ),
    # A part of a file excludes nothing.
    (
        "V100",
        {"codes": "a sm_80", **PART},
        "doubt: may have no code for V100: the part of some/a.so that was read is compiled for sm_80, the rest was not read",
    ),
    # Where no code tells a chip, its description does.
    (
        "V100",
        {"lowest": "7.5"},
        "doubt: may not run on V100: its description asks for compute capability 7.5 or newer",
    ),
    ("RTX 4090", {"lowest": "7.5"}, ""),
    ("V100", {"lowest": "7.5", "codes": "a sm_70"}, ""),
    # A chip in a name speaks for those of its major.
    ("A100", {"package": "some-cuda12-sm80"}, ""),
    ("RTX 4090", {"package": "some-cuda12-sm80"}, ""),
    (
        "H100",
        {"package": "some-cuda12-sm80"},
        "doubt: may not run on H100: its name says sm_80",
    ),
    # Of libraries for two CUDAs a driver has to run one.
    ("RTX 3090", {"needs": TWO_CUDAS}, ""),
    (
        "RTX 3090, driver 470.256.02",
        {"needs": TWO_CUDAS},
        "does not run on driver 470.256.02: it is for CUDA 12 and 13, and CUDA 12.x needs driver 525.60.13 or newer",
    ),
    # The CUDA of a name, a label or METADATA is certain: the driver does not run it, or it has no code for the chip.
    (
        "RTX 4090",
        {"cuda": "13.0", **UNREAD},
        "does not run on driver 570.86.15: it is for CUDA 13, and CUDA 13.x needs driver 580 or newer",
    ),
    ("RTX 4090, driver 580.95.05", {"cuda": "13.0", **UNREAD}, ""),
    (
        "RTX 4090, driver 470.256.02",
        {"cuda": "12.0", **UNREAD},
        "does not run on driver 470.256.02: it is for CUDA 12, and CUDA 12.x needs driver 525.60.13 or newer",
    ),
    ("RTX 4090, driver 535.183.01", {"cuda": "10.0", **UNREAD}, ""),
    (
        "V100, driver 580.95.05",
        {"cuda": "13.0", **UNREAD},
        "has no code for V100: it is for CUDA 13, which has none below sm_75",
    ),
    ("V100, driver 580.95.05", {"cuda": "12.0", **UNREAD}, ""),
    (
        "Tesla K80, driver 535.183.01",
        {"cuda": "12.0", **UNREAD},
        "has no code for Tesla K80: it is for CUDA 12, which has none below sm_50",
    ),
    ("V100, driver 470.256.02", UNREAD, ""),
    # Libraries for Windows alone run nowhere else.
    (
        "RTX 4090",
        {"system": "windows", **UNREAD},
        "has libraries for Windows alone, although its file some-1.0-cp312-cp312-manylinux_2_28_x86_64.whl is for any platform",
    ),
    (
        "RTX 4090",
        {"system": "windows", "platform": "windows-x86_64", **UNREAD},
        "",
    ),
]


@pytest.mark.parametrize(("there", "fields", "why"), JUDGED)
def test_what_a_reading_means_for_a_gpu(there, fields, why):
    gpu, _, driver = there.partition(", driver ")
    row = reading(**fields)
    answer = judge_reading(row, gpus(gpu, driver=driver or "570.86.15"))

    told = f"doubt: {answer.doubt}" if answer.doubt else answer.excluded
    assert told == why
    # What is certain is settled before a byte is read.
    if row.depth == Depth.METADATA:
        assert answer.is_settled == bool(why)


UNBROUGHT = [
    (("libcublas.so.13", "libcurand.so.10"), ["libcurand.so.10 (nvidia-curand)"]),
    (("libcuda.so.1", "libtorch.so", "libz.so.1"), []),
]


@pytest.mark.parametrize(("needs", "unbrought"), UNBROUGHT)
def test_a_library_that_no_package_of_a_lock_has_is_named_with_its_package(
    needs, unbrought
):
    row = reading(cuda="13.0", needs=needs)
    versions = {"nvidia-cuda-runtime": "13.0.96", "nvidia-cublas": "13.1.0.3"}

    assert unbrought_libraries(row, versions) == unbrought
    # torch has them in its own wheel, as far as is known.
    assert unbrought_libraries(row, {"torch": "2.9.0"}) == []


@pytest.mark.parametrize(
    ("driver", "versions", "cuda"),
    [
        ("550.54.15", {"nvidia-cuda-nvrtc-cu12": "12.9.86"}, "12.9"),
        ("550.54.15", {"nvidia-cuda-nvrtc-cu12": "12.4.127"}, ""),
        ("550.54.15", {"nvidia-cuda-nvrtc-cu12": "12"}, ""),
        ("550.54.15", {}, "12.6"),
        ("580.95.05", {"nvidia-cuda-nvrtc-cu12": "12.9.86"}, ""),
    ],
)
def test_what_nvrtc_writes_while_it_runs_has_to_be_read_by_the_driver(
    driver, versions, cuda
):
    row = reading(cuda="12.0", writes_ptx=True)
    build = build_named("2.14.1+cu126")
    here = gpus("H100", driver=driver)

    answer = unreadable_ptx(row, build, here, versions)

    why = (
        f"may not run on driver {driver}: NVRTC {cuda} compiles its kernels to PTX "
        f"while it runs, which needs a driver for CUDA {cuda}"
    )
    assert answer == (why if cuda else "")
    assert unreadable_ptx(replace(row, writes_ptx=False), build, here, versions) == ""


@pytest.mark.parametrize(
    ("fields", "is_settled"),
    [
        ({"requires": ("torch>=2",)}, False),
        ({"codes": "a sm_70"}, False),
        ({"is_whole": False, "torch": TorchNeeds("none")}, False),
        (
            {"requires": ("torch>=2",), "torch": TorchNeeds("ordinary", is_part=True)},
            False,
        ),
        ({"requires": ("torchmetrics",)}, True),
        ({"requires": ("torch>=2",), "depth": Depth.WHOLE}, True),
        ({"requires": ("torch>=2",), "torch": TorchNeeds("none")}, True),
        # A GPU that has no code.
        ({"codes": "a sm_80", "is_whole": False}, False),
        ({"codes": "a sm_80", "is_whole": False, "depth": Depth.WHOLE}, True),
        ({"codes": "a sm_70, b sm_80", "is_whole": False}, False),
        ({"codes": "a sm_70, b sm_80", "depth": Depth.WHOLE}, True),
    ],
)
def test_where_the_tables_of_code_are_unread_more_is_read(fields, is_settled):
    row = reading(**{"depth": Depth.PART, **fields})

    assert judge_reading(row, gpus("V100")).is_settled is is_settled


@pytest.mark.parametrize(
    ("cuda", "deepest"),
    [("13.0", Depth.METADATA), ("12.0", Depth.PART), (None, Depth.PART)],
)
def test_no_more_is_read_than_settles(cuda, deepest):
    depths = []

    def read(depth):
        depths.append(depth)
        torch = TorchNeeds("none")
        return reading(cuda=cuda, torch=torch, codes="a sm_89", depth=depth)

    judge_file(read, gpus("RTX 4090"))

    assert depths[-1] == deepest


OF_PROCESS = [
    # What it is linked to, or opens as its runtime.
    ({"needs": ("libcudart.so.12",)}, 12),
    ({"needs": ("libcublas.so.13", "libcudart.so.13")}, 13),
    ({"opens": ("libcudart.so.12",)}, 12),
    ({"opens": ("cudart64_13.dll",)}, 13),
    # Another string alone, or two answers.
    ({"opens": ("libcublas.so.12",)}, None),
    ({"needs": ("libcudart.so.12", "libcublas.so.13")}, None),
    ({"opens": ("libcudart.so.12", "libcudart.so.13")}, None),
    # A runtime of its own.
    ({"cuda": "12.0"}, None),
    (
        {"package": "some-cu11", "codes": "a sm_70", "torch": TorchNeeds()},
        None,
    ),
    ({"package": "some-cu11", "codes": "a sm_70"}, None),
    (
        {
            "package": "ctranslate2",
            "version": "4.8.5",
            "codes": "a sm_70",
            "opens": ("libcublas.so.12",),
        },
        12,
    ),
    (
        {"package": "some-cu11", "codes": "a sm_70", "requires": ("torch",)},
        11,
    ),
    (
        {"package": "some-cu11", "codes": "a sm_70", "depth": Depth.PART},
        11,
    ),
    # A name, a label, a maker's statement.
    ({"package": "some-cu13"}, 13),
    ({"package": "cupy-cuda12x"}, 12),
    ({"file": "some-1.0+cu128torch2.9-cp312-cp312-linux_x86_64.whl"}, 12),
    ({"package": "ctranslate2", "version": "4.8.5"}, 12),
    # One library for each CUDA: that of torch needs nothing more.
    ({"package": "bitsandbytes", "needs": ("libcublas.so.12",)}, None),
    ({"package": "bitsandbytes", "needs": ("libcublas.so.11",)}, 11),
]


@pytest.mark.parametrize(("fields", "cuda"), OF_PROCESS)
def test_the_cuda_that_a_process_has_to_have(fields, cuda):
    assert process_cuda(reading(**fields)) == cuda


@pytest.mark.parametrize(
    ("label", "cuda"),
    [
        ("cu130", 13),
        ("cu12", 12),
        ("cu118", 11),
        ("cu12.8.torch.2.11", 12),
        ("cu13.0torch2.11", 13),
        ("pt29cu128", 12),
        ("d20260121.cu130torch2.10.0", 13),
        ("e1560d84.2.8torch.cu128", 12),
        ("cpu", None),
        ("rocm7.2", None),
        ("cu12.cu13", None),
        (None, None),
    ],
)
def test_the_cuda_of_a_label(label, cuda):
    assert label_cuda(label) == cuda


@pytest.mark.parametrize(
    ("requires", "cuda"),
    [
        (["nvidia-nccl-cu13>=2", "numpy"], 13),
        (["nvidia-nccl-cu13; sys_platform == 'linux'"], 13),
        (["nvidia-nccl-cu13; sys_platform == 'win32'"], None),
        (["nvidia-nccl-cu13; platform_machine == 'aarch64'", "nvidia-cublas-cu12"], 12),
        (["nvidia-nccl-cu13; extra == 'cuda'"], None),
        (["nvidia-nccl-cu13", "nvidia-cublas-cu12"], None),
        (["nvidia-nccl-cu13; not a marker"], None),
    ],
)
def test_the_cuda_that_metadata_requires(requires, cuda):
    assert pinned_cuda(requires, "linux-x86_64") == cuda


def test_symbols_of_torch_are_told_on():
    needs = TorchNeeds("ordinary", fits=("2.9",), judged=("2.8", "2.9"))

    assert judge_reading(reading(torch=needs), gpus("RTX 4090")).torch == needs


@pytest.mark.parametrize(
    ("build", "is_older_abi", "loads"),
    [
        ("2.6.0+cu124", True, True),
        ("2.6.0+cu126", True, False),
        ("2.6.0+cu126", False, None),
    ],
)
def test_the_build_with_newer_strings_does_not_load_code_with_older_ones(
    build, is_older_abi, loads
):
    minors = ("2.5", "2.6")
    needs = TorchNeeds("ordinary", None, minors, minors, is_older_abi)

    assert loads_beside(needs, build_named(build)) is loads


@pytest.mark.parametrize(
    ("others", "why"),
    [
        ({}, "is incompatible with torch 2.14.1+cu130: it is for CUDA 12"),
        ({"some-libs-cu13": "1.0"}, None),
        (
            {"other-libs-cu13": "1.0"},
            "is incompatible with torch 2.14.1+cu130: it is for CUDA 12",
        ),
    ],
)
def test_what_comes_for_each_cuda_is_chosen_when_it_is_loaded(others, why):
    build = build_named("2.14.1+cu130")
    row = reading(package="some-libs-cu12", cuda="12.0")
    judgement = judge_reading(row, gpus("RTX 4090", driver="580.95.05"))

    assert misfit_beside(row, judgement, build, others) == why
