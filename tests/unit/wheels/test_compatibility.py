"""Compatibility of a wheel with GPUs, their driver, and torch."""

from pathlib import Path

import pytest
import tomli
from packaging.version import Version

from gpuinstall.base.requirement import marker_environment, parse_requirement
from gpuinstall.base.values import replace
from gpuinstall.catalog import load_catalog
from gpuinstall.machine.options import machine_from_options
from gpuinstall.machine.vendors import create_rules
from gpuinstall.wheels.compatibility import (
    BuildVerdict,
    Compatibility,
    assess_gpus,
    can_load_with,
    find_missing_code,
    find_missing_libraries,
    find_required_cuda,
    find_undeclared_packages,
    reject_build,
)
from gpuinstall.wheels.inspector import (
    Context,
    Inspector,
    is_required_by_torch,
)
from gpuinstall.wheels.learned.row import Depth, WheelRow, requirements_of_metadata
from gpuinstall.wheels.needs import (
    TorchNeeds,
    find_pinned_cuda,
    parse_label_cuda,
)
from gpuinstall.wheels.package import LibraryCode
from tests.unit.lock.wheels_here import listed

WHEEL = listed("some-1.0-cp312-cp312-manylinux_2_28_x86_64.whl")
PURE = listed("some-1.0-py3-none-any.whl")
MARKERS = marker_environment("linux", "x86_64", "3.14.2")
READING = WheelRow(
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
    """Return GPUs with the rules of a machine that has them."""
    machine = machine_from_options(names, driver)
    rules = create_rules(machine, load_catalog(), {"cuda"})
    return tuple((rules, gpu) for gpu in machine.gpus)


def inspector_for(*names, driver="570.86.15"):
    """Return an inspector for one build."""
    build = "2.14.1+cu126"
    return Inspector({build: build_named(build)}, gpus(*names, driver=driver), MARKERS)


def compatibility(wheel, **fields):
    row = reading(**fields)
    return Compatibility(wheel, {"2.14.1": BuildVerdict(row)}, frozenset({"2.14.1"}))


def reading(**fields):
    """Return an inspected wheel with some other fields.

    Codes are written as ``large sm_70, second sm_80 compute_80``.
    """
    codes = []
    for text in fields.pop("codes", "").split(", "):
        name, *words = text.split() or [""]
        if words:
            codes.append(LibraryCode(f"some/{name}.so", tuple(words)))
    return replace(READING, codes=tuple(codes), **fields)


def build_named(name):
    """Return the catalog's build for Linux on x86-64."""
    [build] = [
        build
        for build in load_catalog().builds_for("linux", "x86_64")
        if build.name == name
    ]
    return build


JUDGED = tomli.loads(Path(__file__).with_name("judged.toml").read_text("utf-8"))


@pytest.mark.parametrize("case", JUDGED["judged"])
def test_inspected_wheel_is_compatible_or_rejected(case):
    gpu, _, driver = case["gpu"].partition(", driver ")
    fields = {**case["wheel"]}
    if "depth" in fields:
        fields["depth"] = Depth[fields["depth"]]
    row = reading(**fields)
    answer = assess_gpus(row, gpus(gpu, driver=driver or "570.86.15"))

    found = answer.rejection.message if answer.rejection else ""
    if answer.warning:
        found = f"doubt: {answer.warning.message}"
    assert found == case["why"]
    # A certain rejection needs no download.
    if row.depth == Depth.METADATA:
        assert answer.is_settled == bool(case["why"])


UNBROUGHT = [
    (("libcublas.so.13", "libcurand.so.10"), ["libcurand.so.10 (nvidia-curand)"]),
    (("libcuda.so.1", "libtorch.so", "libz.so.1"), []),
    (("libcudnn.so.9",), []),
    (("libcudnn.so.8",), ["libcudnn.so.8 (nvidia-cudnn-cu13)"]),
    (("libnvrtc.so.12",), ["libnvrtc.so.12 (nvidia-cuda-nvrtc-cu12)"]),
]


@pytest.mark.parametrize(("needs", "unbrought"), UNBROUGHT)
def test_missing_library_is_reported_with_its_package(needs, unbrought):
    row = reading(cuda="13.0", needs=needs)
    versions = {
        "nvidia-cuda-runtime": "13.0.96",
        "nvidia-cublas": "13.1.0.3",
        "nvidia-cuda-nvrtc": "13.0.88",
        "nvidia-cudnn-cu13": "9.15.1.9",
    }

    assert find_missing_libraries(row, versions) == unbrought
    # torch bundles them, unless it declares them.
    assert find_missing_libraries(row, {"torch": "2.9.0"}) == []


@pytest.mark.parametrize(
    ("fields", "is_settled"),
    [
        ({"requires": ("torch>=2",)}, False),
        ({"codes": "a sm_70"}, False),
        ({"unread": ("some/a.so",), "torch": TorchNeeds("none")}, False),
        (
            {"requires": ("torch>=2",), "torch": TorchNeeds("ordinary", is_part=True)},
            False,
        ),
        ({"requires": ("torchmetrics",)}, True),
        ({"requires": ("torch>=2",), "depth": Depth.WHOLE}, True),
        ({"requires": ("torch>=2",), "torch": TorchNeeds("none")}, True),
        # A GPU without code.
        ({"codes": "a sm_80", "unread": ("some/a.so",)}, False),
        ({"codes": "a sm_80", "unread": ("some/a.so",), "depth": Depth.WHOLE}, True),
        ({"codes": "a sm_70, b sm_80", "unread": ("some/a.so",)}, False),
        ({"codes": "a sm_70, b sm_80", "depth": Depth.WHOLE}, True),
        # The tables show that the libraries have no GPU code.
        ({"torch": TorchNeeds("none"), "depth": Depth.TABLES}, True),
        ({"unread": ("some/a.so",), "depth": Depth.TABLES}, False),
        ({"depth": Depth.METADATA}, False),
    ],
)
def test_inspection_continues_until_gpu_verdict_is_settled(fields, is_settled):
    row = reading(**{"depth": Depth.PART, **fields})

    assert assess_gpus(row, gpus("V100")).is_settled is is_settled


@pytest.mark.parametrize(
    ("cuda", "deepest"),
    [("13.0", Depth.METADATA), ("12.0", Depth.PART), (None, Depth.PART)],
)
def test_wheel_reading_stops_once_compatibility_is_known(cuda, deepest):
    depths = []

    def readings(_build):
        for depth in Depth:
            depths.append(depth)
            unread = ("some/a.so",) if depth < Depth.PART else ()
            fields = {"torch": TorchNeeds("none"), "unread": unread, "depth": depth}
            yield reading(cuda=cuda, codes="a sm_89", **fields)

    inspector = inspector_for("RTX 4090")
    list(inspector.steps(WHEEL, readings, Context(), Depth.WHOLE))

    assert depths[-1] == deepest


def test_wheel_reading_stops_at_byte_limit():
    def readings(_build):
        for depth in Depth:
            yield reading(codes="a sm_70", unread=("some/a.so",), depth=depth)

    inspector = inspector_for("RTX 4090")
    *_, found = inspector.steps(WHEEL, readings, Context(), Depth.PART)

    verdict = found.verdicts["2.14.1+cu126"]
    assert (found.row.depth, verdict.rejection) == (Depth.PART, None)
    assert verdict.warning
    assert verdict.warning.code == "no-code"


@pytest.mark.parametrize(
    ("newest", "wheel", "fields", "code"),
    [
        # A pure wheel is no older version of a program with compiled code.
        ("2", PURE, {}, "no-compiled-code"),
        ("2", PURE, {"requires": ("torch",)}, "no-compiled-code"),
        ("2", WHEEL, {}, "no-compiled-code"),
        ("2", PURE, {"system": "any"}, None),
        ("2", WHEEL, {"system": "any"}, None),
        ("2", PURE, {"depth": Depth.METADATA}, None),
        # A placeholder has neither code nor requirements.
        ("", PURE, {"requires": ("torch",)}, None),
        ("", PURE, {}, "placeholder"),
        ("", WHEEL, {"requires": ("torch",)}, "placeholder"),
    ],
)
def test_release_without_libraries_does_not_replace_compiled_release(
    newest, wheel, fields, code
):
    found = find_missing_code(
        compatibility(wheel, **fields), Version(newest) if newest else None
    )
    assert (found and found.code) == code


@pytest.mark.parametrize(
    ("requirement", "is_required"),
    [
        ("nvidia-cufft-cu12==11.3.0.4", True),
        ("nvidia-cufft-cu12<11", False),
        ("nvidia-cublas-cu12", False),
    ],
)
def test_wheel_required_by_torch_is_recognized(requirement, is_required):
    name = "nvidia_cufft_cu12-11.3.0.4-py3-none-manylinux_2_17_x86_64.whl"
    wheel = listed(name)

    required = [parse_requirement(requirement)]
    assert is_required_by_torch(wheel, required) is is_required


def test_cuda_mismatch_without_torch_is_a_warning():
    build = "2.14.1+cu130"
    inspector = Inspector(
        {build: build_named(build)}, gpus("RTX 4090", driver="580.95.05"), MARKERS
    )
    row = reading(package="cupy-cuda12x", cuda="12.0", torch=TorchNeeds("none"))

    verdict = inspector.assess(WHEEL, {build: row}, Context()).verdicts[build]
    assert verdict.rejection is None
    assert verdict.warning
    assert verdict.warning.code == "own-cuda"


OF_PROCESS = [
    # A linked or opened runtime.
    ({"needs": ("libcudart.so.12",)}, 12),
    ({"needs": ("libcublas.so.13", "libcudart.so.13")}, 13),
    ({"opens": ("libcudart.so.12",)}, 12),
    ({"opens": ("cudart64_13.dll",)}, 13),
    # Another string, or two runtimes.
    ({"opens": ("libcublas.so.12",)}, None),
    ({"needs": ("libcudart.so.12", "libcublas.so.13")}, None),
    ({"opens": ("libcudart.so.12", "libcudart.so.13")}, None),
    # A bundled runtime counts only if it was found.
    ({"cuda": "12.0"}, None),
    ({"package": "spconv-cu118", "has_runtime": True, "torch": TorchNeeds()}, None),
    ({"package": "spconv-cu118", "has_runtime": True}, None),
    (
        {"package": "spconv-cu118", "has_runtime": True, "requires": ("torch",)},
        11,
    ),
    ({"package": "spconv-cu118", "codes": "a sm_70", "torch": TorchNeeds()}, 11),
    (
        {
            "package": "spconv-cu118",
            "has_runtime": True,
            "torch": TorchNeeds("stable", "2.9"),
        },
        11,
    ),
    # Two major versions in one wheel.
    ({"package": "some-cu12", "cudas": (12, 13)}, None),
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
        {
            "package": "ctranslate2",
            "version": "4.8.3",
            "has_runtime": True,
            "torch": TorchNeeds(),
        },
        12,
    ),
    # A name, a label, and a vendor's statement.
    ({"package": "some-cu13"}, 13),
    ({"package": "cupy-cuda12x"}, 12),
    ({"file": "some-1.0+cu128torch2.9-cp312-cp312-linux_x86_64.whl"}, 12),
    ({"package": "ctranslate2", "version": "4.8.5"}, 12),
    # One library for each CUDA: torch's CUDA suffices.
    ({"package": "bitsandbytes", "needs": ("libcublas.so.12",)}, None),
]


@pytest.mark.parametrize(("fields", "cuda"), OF_PROCESS)
def test_wheel_facts_determine_its_required_cuda(fields, cuda):
    assert find_required_cuda(reading(**fields)) == cuda


@pytest.mark.parametrize(
    ("version", "libraries", "builds"),
    [
        ("0.45.0", "126 130", {"2.14.1+cu126", "2.15.0+cu130"}),
        ("0.45.0", "118 125 128", set()),
        ("0.50.2", "118 128", {"2.14.1+cu126", "2.13.0+cu129"}),
        ("0.50.2", "130", {"2.15.0+cu130", "2.15.0+cu132"}),
    ],
)
def test_build_needs_the_library_that_a_package_loads(version, libraries, builds):
    paths = [f"bitsandbytes/libbitsandbytes_cuda{one}.so" for one in libraries.split()]
    row = reading(
        package="bitsandbytes", version=version, unread=tuple(paths), system="any"
    )
    names = ("2.14.1+cu126", "2.13.0+cu129", "2.15.0+cu130", "2.15.0+cu132")
    rejections = {
        name: reject_build(
            row, None, build_named(name), versions={}, environment=MARKERS
        )
        for name in names
    }

    assert {name for name, why in rejections.items() if why is None} == builds
    refused = {name: why.message for name, why in rejections.items() if why}
    assert all(
        message.endswith(f"it has no library for CUDA {name[-3:-1]}.{name[-1]}")
        for name, message in refused.items()
    )


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
def test_cuda_is_read_from_a_label(label, cuda):
    assert parse_label_cuda(label) == cuda


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
        (["nvidia-nccl-cu13; python_version >= '3.14'"], 13),
        (["nvidia-nccl-cu13; python_full_version < '3.14.2'"], None),
    ],
)
def test_cuda_is_read_from_metadata(requires, cuda):
    requirements = requirements_of_metadata(requires)
    assert find_pinned_cuda(requirements, MARKERS) == cuda


@pytest.mark.parametrize(
    ("build", "is_older_abi", "loads"),
    [
        ("2.6.0+cu124", True, True),
        ("2.6.0+cu126", True, False),
        ("2.6.0+cu126", False, None),
    ],
)
def test_older_extension_is_incompatible_with_newer_abi(build, is_older_abi, loads):
    minors = ("2.5", "2.6")
    needs = TorchNeeds("ordinary", None, minors, minors, is_older_abi)

    assert can_load_with(needs, build_named(build)) is loads


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
def test_cuda12_package_is_accepted_next_to_cuda13_package(others, why):
    build = build_named("2.14.1+cu130")
    row = reading(package="some-libs-cu12", cuda="12.0")

    found = reject_build(row, None, build, versions=others, environment=MARKERS)
    assert (found and found.message) == why


NEEDS = ("libcutensor.so.2", "libcudss.so.0", "libcutensornet.so.2", "libnvinfer.so.10")


def test_undeclared_packages_have_a_stable_order():
    linked = ("tensorrt-cu13-libs", "cutensor-cu12", "cutensornet-cu12", "cudss-cu12")
    row = reading(cuda="12.0", needs=NEEDS)

    assert find_undeclared_packages(row, linked) == (
        "cutensor-cu12",
        "cutensornet-cu12",
        "tensorrt-cu12-libs",
    )
    required = replace(row, requires=("cutensor-cu12>=2",))
    assert find_undeclared_packages(required, linked[:2]) == ("tensorrt-cu12-libs",)
    assert find_undeclared_packages(row, ()) == ()
