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


def libraries(**codes):
    """The code of libraries by name, as words: ``fa3`` is a part that a package does without."""
    names = {"fa3": "some/flash_attn_3.so"}
    return tuple(
        LibraryCode(names.get(name, f"some/{name}.so"), tuple(words.split()))
        for name, words in codes.items()
    )


LACKING = [
    # One library.
    ("sm_80 sm_90", "", "", "V100"),
    ("sm_70", "", "", ""),
    # PTX runs on what is newer, whatever its own minor.
    ("sm_60 compute_60", "", "", ""),
    ("sm_80 compute_80", "", "", "V100"),
    # Most of the libraries have to lack it.
    ("sm_80", "sm_70", "", ""),
    ("sm_80", "sm_70", "sm_80", "V100"),
    ("sm_70", "sm_70", "sm_90a", ""),
    ("sm_90a", "", "", "V100"),
]


@pytest.mark.parametrize(("a", "b", "c", "lacking"), LACKING)
def test_most_libraries_must_lack_code(a, b, c, lacking):
    codes = [one for one in libraries(a=a, b=b, c=c) if one.architectures]
    answer = judge_reading(replace(READING, codes=tuple(codes)), gpus("V100"))

    assert ("V100" in answer.excluded) == bool(lacking)


def test_code_for_single_chips_beside_that_of_another_package_is_doubtful_alone():
    fast = replace(READING, codes=libraries(a="sm_90a sm_100a"))
    beside = replace(fast, needs=("libothers.so",))

    assert judge_reading(fast, gpus("RTX 4090")).excluded
    answer = judge_reading(beside, gpus("RTX 4090"))
    assert (answer.excluded, bool(answer.doubt)) == ("", True)


@pytest.mark.parametrize(
    ("codes", "gpu", "why"),
    [
        (
            "",
            "V100",
            "may not run on V100: its description asks for compute capability 7.5 or newer",
        ),
        ("", "RTX 4090", ""),
        # The code tells more.
        ("sm_70", "V100", ""),
    ],
)
def test_where_no_code_tells_a_chip_its_description_does(codes, gpu, why):
    own = libraries(a=codes) if codes else ()
    row = replace(READING, codes=own, lowest="7.5")

    assert judge_reading(row, gpus(gpu)).doubt == why


@pytest.mark.parametrize(
    ("gpu", "why"),
    [
        ("A100", ""),
        ("RTX 4090", ""),
        ("H100", "may not run on H100: its name says sm_80"),
    ],
)
def test_a_chip_in_a_name_speaks_for_those_of_its_major(gpu, why):
    codes = libraries(a="sm_80 compute_80")
    row = replace(READING, package="some-cuda12-sm80", codes=codes)

    assert judge_reading(row, gpus(gpu)).doubt == why


UNBROUGHT = [
    (("libcublas.so.13", "libcurand.so.10"), ["libcurand.so.10 (nvidia-curand)"]),
    (("libcuda.so.1", "libtorch.so", "libz.so.1"), []),
]


@pytest.mark.parametrize(("needs", "unbrought"), UNBROUGHT)
def test_a_library_that_no_package_of_a_lock_has_is_named_with_its_package(
    needs, unbrought
):
    reading = replace(READING, cuda="13.0", needs=needs)
    versions = {"nvidia-cuda-runtime": "13.0.96", "nvidia-cublas": "13.1.0.3"}

    assert unbrought_libraries(reading, versions) == unbrought
    # torch has them in its own wheel, as far as is known.
    assert unbrought_libraries(reading, {"torch": "2.9.0"}) == []


def test_where_as_many_have_code_as_lack_it_a_warning_says_so():
    tied = replace(READING, codes=libraries(large="sm_70", second="sm_80"))
    answer = judge_reading(tied, gpus("V100"))

    assert (answer.excluded, answer.is_settled) == ("", True)
    assert answer.doubt == (
        "may have no code for V100: some/second.so is compiled for sm_80, "
        "and its other libraries have code"
    )
    part = replace(tied, is_whole=False, depth=Depth.PART)
    assert not judge_reading(part, gpus("V100")).is_settled


@pytest.mark.parametrize(("gpu", "lacking"), [("H100", ""), ("P40", "P40")])
def test_libraries_that_are_one_for_each_cuda_count_as_one(gpu, lacking):
    codes = libraries(c_cu124="sm_80", c_cu126="sm_80", c_cu130="sm_90", d="sm_90")
    answer = judge_reading(replace(READING, codes=codes), gpus(gpu))

    assert (lacking in answer.excluded, answer.doubt) == (True, "")


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
    row = replace(READING, cuda="12.0", writes_ptx=True)
    build = next(one for one in load_catalog().builds if one.name == "2.14.1+cu126")
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
        ({"codes": libraries(a="sm_70")}, False),
        ({"is_whole": False, "torch": TorchNeeds("none")}, False),
        (
            {"requires": ("torch>=2",), "torch": TorchNeeds("ordinary", is_part=True)},
            False,
        ),
        ({"requires": ("torchmetrics",)}, True),
        ({"requires": ("torch>=2",), "depth": Depth.WHOLE}, True),
        ({"requires": ("torch>=2",), "torch": TorchNeeds("none")}, True),
    ],
)
def test_where_the_tables_of_code_are_unread_more_is_read(fields, is_settled):
    row = replace(READING, **{"depth": Depth.PART, **fields})

    assert judge_reading(row, gpus("V100")).is_settled is is_settled


def test_a_part_that_a_package_does_without_speaks_for_a_gpu_alone():
    both = replace(READING, codes=libraries(main="sm_80", fa3="sm_90a"))
    own = replace(READING, package="flash-attn-3", codes=libraries(fa3="sm_90a"))

    assert judge_reading(both, gpus("RTX 4090")).excluded == ""
    assert judge_reading(both, gpus("H100")).excluded == ""
    assert "V100" in judge_reading(both, gpus("V100")).excluded
    assert "RTX 4090" in judge_reading(own, gpus("RTX 4090")).excluded


def test_the_library_at_fault_is_named_and_not_the_largest():
    codes = libraries(large="sm_70", second="sm_80", third="sm_80 sm_90")
    answer = judge_reading(replace(READING, codes=codes), gpus("V100"))

    assert answer.excluded == (
        "has no code for V100: some/second.so is compiled for sm_80"
    )


def test_a_part_of_a_file_excludes_nothing():
    part = replace(
        READING, codes=libraries(a="sm_80"), is_whole=False, depth=Depth.PART
    )
    answer = judge_reading(part, gpus("V100"))

    assert (answer.excluded, answer.is_settled) == ("", False)
    assert answer.doubt == (
        "may have no code for V100: the part of some/a.so that was read is compiled for sm_80, "
        "the rest was not read"
    )
    assert judge_reading(replace(part, depth=Depth.WHOLE), gpus("V100")).is_settled


CERTAIN = [
    # A driver against the CUDA of a name, a label, METADATA.
    ("13.0", "RTX 4090", "570.86.15", "CUDA 13.x needs driver 580 or newer"),
    ("13.0", "RTX 4090", "580.95.05", ""),
    ("12.0", "RTX 4090", "470.256.02", "CUDA 12.x needs driver 525.60.13 or newer"),
    ("10.0", "RTX 4090", "535.183.01", ""),
    # CUDA 13 has no code below sm_75.
    ("13.0", "V100", "580.95.05", "CUDA 13, which has none below sm_75"),
    ("12.0", "V100", "580.95.05", ""),
    ("12.0", "Tesla K80", "535.183.01", "CUDA 12, which has none below sm_50"),
    (None, "V100", "470.256.02", ""),
]


@pytest.mark.parametrize(("cuda", "gpu", "driver", "why"), CERTAIN)
def test_what_is_certain_is_settled_before_a_byte_is_read(cuda, gpu, driver, why):
    row = replace(READING, cuda=cuda, depth=Depth.METADATA)
    answer = judge_reading(row, gpus(gpu, driver=driver))

    assert bool(answer.excluded) == bool(why)
    assert answer.excluded.endswith(why)
    assert answer.is_settled == bool(why)


@pytest.mark.parametrize(
    ("cuda", "deepest"),
    [("13.0", Depth.METADATA), ("12.0", Depth.PART), (None, Depth.PART)],
)
def test_no_more_is_read_than_settles(cuda, deepest):
    depths = []

    def read(depth):
        depths.append(depth)
        row = replace(READING, cuda=cuda, torch=TorchNeeds("none"))
        return replace(row, codes=libraries(a="sm_89"), depth=depth)

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
        {"package": "some-cu11", "codes": libraries(a="sm_70"), "torch": TorchNeeds()},
        None,
    ),
    ({"package": "some-cu11", "codes": libraries(a="sm_70")}, None),
    (
        {
            "package": "ctranslate2",
            "version": "4.8.5",
            "codes": libraries(a="sm_70"),
            "opens": ("libcublas.so.12",),
        },
        12,
    ),
    (
        {"package": "some-cu11", "codes": libraries(a="sm_70"), "requires": ("torch",)},
        11,
    ),
    (
        {"package": "some-cu11", "codes": libraries(a="sm_70"), "depth": Depth.PART},
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
    assert process_cuda(replace(READING, **fields)) == cuda


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


def test_libraries_for_windows_alone_run_nowhere_else():
    row = replace(READING, system="windows", depth=Depth.TABLES)
    there = replace(row, platform="windows-x86_64")

    assert "for Windows alone" in judge_reading(row, gpus("RTX 4090")).excluded
    assert judge_reading(there, gpus("RTX 4090")).excluded == ""


def test_symbols_of_torch_are_told_on():
    needs = TorchNeeds("ordinary", fits=("2.9",), judged=("2.8", "2.9"))

    assert judge_reading(replace(READING, torch=needs), gpus("RTX 4090")).torch == needs


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
    [built] = [
        one
        for one in load_catalog().builds
        if f"{one.torch}+{one.backend.tag}" == build and one.os == "linux"
        if one.arch == "x86_64"
    ]

    assert loads_beside(needs, built) is loads


@pytest.mark.parametrize(
    ("needs", "driver", "why"),
    [
        (("libcudart.so.12", "libcudart.so.13"), "570.86.15", ""),
        (
            ("libcudart.so.12", "libcudart.so.13"),
            "470.256.02",
            "does not run on driver 470.256.02: it is for CUDA 12 and 13, and CUDA 12.x needs driver 525.60.13 or newer",
        ),
    ],
)
def test_of_libraries_for_two_cudas_a_driver_has_to_run_one(needs, driver, why):
    row = replace(READING, needs=needs)

    assert judge_reading(row, gpus("RTX 3090", driver=driver)).excluded == why


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
    build = next(
        build for build in load_catalog().builds if build.name == "2.14.1+cu130"
    )
    row = replace(READING, package="some-libs-cu12", cuda="12.0")
    judgement = judge_reading(row, gpus("RTX 4090", driver="580.95.05"))

    assert misfit_beside(row, judgement, build, others) == why
