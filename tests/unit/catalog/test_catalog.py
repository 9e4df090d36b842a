"""Consistency of the catalog: each row has a source and a date."""

import re
from collections import Counter
from datetime import date

import pytest
import tomli
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version
from tools.catalog_check import find_errors

from gpuinstall.base.versions import CPU, ComputeCapability
from gpuinstall.catalog import data_files, load_catalog
from gpuinstall.catalog.data_files import read_data
from gpuinstall.catalog.drivers import load_drivers
from gpuinstall.catalog.gpus import load_gpus, load_products
from gpuinstall.machine.nvidia.code import split_code
from tests.frozen import read_frozen

FILES = ("builds.toml", "drivers.toml", "hashes.toml")


def rows(table):
    """Return all rows of all lists of tables in a file."""
    lists = [value for value in table.values() if isinstance(value, list)]
    return [row for items in lists for row in items if isinstance(row, dict)]


def keys(row):
    """Return the evidence keys of a row; a build has one for each platform."""
    platforms = [
        value[2]
        for value in row.values()
        if isinstance(value, list) and len(value) == 3
    ]
    return " ".join([row.get("evidence", ""), *platforms]).split()


@pytest.mark.parametrize("name", FILES)
def test_catalog_rows_and_evidence_match(name):
    table = read_data(name)
    singles = [
        value
        for value in table.values()
        if isinstance(value, dict) and "evidence" in value
    ]
    described = [*rows(table), *singles]

    assert rows(table)
    assert [row for row in described if not keys(row)] == []
    assert {key for row in described for key in keys(row)} == set(table["evidence"])
    for evidence in table["evidence"].values():
        assert evidence["source"]
        assert date.fromisoformat(evidence["date"]) <= date.fromisoformat(
            load_catalog().date
        )


def test_every_catalog_build_has_required_fields():
    for build in load_catalog().builds:
        is_for_gpus = build.backend != CPU
        toolkit = ".".join(map(str, build.toolkit or ()))
        assert bool(build.code) == bool(toolkit) == is_for_gpus, build.name
        assert build.backend.kind != "cuda" or build.backend.version == toolkit
        assert build.pythons, build.name
        assert all(re.fullmatch(r"3\.\d+t?", python) for python in build.pythons)
        assert (build.glibc is not None) == (build.os == "linux"), build.name


def test_catalog_capabilities_are_in_the_gpu_table():
    known = {product.capability for product in load_products()}
    code = {
        code.capability
        for build in load_catalog().builds
        for code in split_code(build.code)[0]
    }
    drivers = load_catalog().drivers

    assert code <= known
    assert {
        *drivers.tegra,
        *drivers.run_time_compilers,
        *drivers.first_drivers,
        *drivers.families,
        *drivers.unified_memory,
    } <= known
    assert {
        chip.capability for chip in drivers.jetsons.values()
    } <= drivers.unified_memory.keys()


def test_default_index_has_one_build_per_platform():
    served = Counter(
        (build.torch, build.os, build.arch)
        for build in load_catalog().builds
        if build.on_default_index
    )

    assert set(served.values()) == {1}
    assert {
        ("linux", "x86_64"),
        ("linux", "aarch64"),
        ("windows", "x86_64"),
        ("macos", "arm64"),
    } <= {(os, arch) for _, os, arch in served}


def test_driver_branches_are_sorted_by_cuda():
    branches = load_catalog().drivers.branches

    assert list(branches) == sorted(branches)
    assert [cuda for _, cuda in branches] == sorted(cuda for _, cuda in branches)


def test_torch_family_names_are_normalized():
    assert {
        canonicalize_name(name) for name in load_catalog().family
    } == load_catalog().family
    assert {
        "torch",
        "torchvision",
        "torchaudio",
        "triton",
        "xformers",
    } <= load_catalog().family


def test_every_chip_has_generation_and_minimum_driver():
    drivers = load_drivers()
    told = drivers.first_drivers.keys() | drivers.tegra.keys()
    chips = {ComputeCapability.parse(text) for text in load_gpus()["chips"].values()}

    assert [chip for chip in chips if drivers.generation(chip) is None] == []
    assert [
        chip for chip in chips if chip > min(drivers.first_drivers) and chip not in told
    ] == []


@pytest.mark.parametrize(
    ("version", "cuda", "floor", "ceiling"),
    [
        ("8.5.0.96", 11, "None", "8.9"),
        ("8.6.0.163", 11, "None", "9.0"),
        ("8.7.0.84", 11, "3.5", "9.0"),
        ("8.9.2.26", 12, "3.5", "9.0"),
        ("9.1.0.70", 11, "5.0", "9.0"),
        ("9.1.0.70", 12, "5.0", "None"),
        ("9.11.0.98", 12, "7.5", "None"),
        ("9.28.0.42", 13, "7.5", "None"),
    ],
)
def test_cudnn_version_determines_supported_gpu_range(version, cuda, floor, ceiling):
    drivers = load_drivers()

    assert str(drivers.cudnn_floor(version)) == floor
    assert str(drivers.cudnn_ceiling(version, cuda)) == ceiling


def test_catalog_rows_do_not_contradict_each_other():
    assert [*find_errors()] == []
    assert [*find_errors(read_frozen)] == []


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        (
            'torchvision = "0.29.2 0.29.1"',
            'torchvision = "0.99.0"',
            "releases: torch 2.14.1: torchvision 0.99.0 has no row in companions",
        ),
        (
            '"2.15.0", tag = "cu134"',
            '"2.15.0", tag = "cx134"',
            "builds: torch 2.15.0 cx134: 'cx134' is not a backend such as cu126 or cpu",
        ),
        (
            '"2.15.0", tag = "cu134"',
            '"99.0.0", tag = "cu134"',
            "builds: torch 99.0.0 cu134: torch 99.0.0 has no row in releases",
        ),
        (
            'linux_x86_64 = "cu132"',
            'linux_x86_64 = "cu990"',
            "releases: torch 2.15.0: the default index has cu990, which has no row in builds",
        ),
    ],
)
def test_contradicting_row_is_an_error_of_its_file(old, new, error):
    text = (data_files.TABLES / "builds.toml").read_text("utf-8")
    assert old in text
    changed = tomli.loads(text.replace(old, new, 1))

    def read(name):
        return changed if name == "builds.toml" else read_data(name)

    assert f"builds.toml: {error}" in [*find_errors(read)]


def test_every_release_has_builds_for_each_system():
    catalog = load_catalog()
    for torch in catalog.releases:
        builds = [build for build in catalog.builds if build.torch == torch]
        assert any(build.on_default_index for build in builds), torch
        assert {"linux", "windows", "macos"} == {build.os for build in builds}


def test_every_cuda_version_has_a_minimum_driver():
    builds = load_catalog().builds
    majors = {
        build.toolkit[0]
        for build in builds
        if build.toolkit and build.backend.kind == "cuda"
    }

    assert majors <= set(load_catalog().drivers.floors)


def test_every_pci_id_and_product_is_well_formed():
    table = read_data("gpus.toml")

    assert all(re.fullmatch("[0-9a-f]{4}", device) for device in table["pci"])
    assert all(product.name.strip() for product in load_products())


def test_every_hash_belongs_to_a_released_wheel():
    for row in read_data("hashes.toml")["wheels"]:
        name, version, *_ = parse_wheel_filename(row["file"])
        assert name in load_catalog().family
        assert (
            name != "torch" or Version(version.base_version) in load_catalog().releases
        )
        assert re.fullmatch("[0-9a-f]{64}", row["sha256"])


def test_undeclared_dependency_of_triton_is_listed():
    undeclared = load_catalog().find_undeclared_packages
    assert undeclared({"torch": "2.6.0", "triton": "3.2.0"}) == ("setuptools",)
    assert undeclared({"torch": "2.6.0", "triton": "3.2.0", "setuptools": "80.0"}) == ()
    assert undeclared({"torch": "2.7.0", "triton": "3.3.0"}) == ()
    assert undeclared({"torch": "2.6.0+cpu"}) == ()


def test_windows_on_arm_has_one_gpu_build():
    catalog = load_catalog()
    builds = catalog.builds_for("windows", "arm64")
    (own,) = [build for build in builds if build.backend != CPU]
    assert (own.name, own.pythons, own.code) == ("2.14.0+cu134", ("3.13",), ("sm_121",))
    assert own.index(catalog.torch_index) == "https://pypi.nvidia.com/nvtorch_oot"
    seen = {
        (package, build.name)
        for (package, version), companion in catalog.companions.items()
        for build in builds
        if companion.may_have_wheel_for(build)
        and companion.is_known_to_be_listed(build)
    }
    assert seen == {("torchvision", own.name), ("torchaudio", own.name)}
