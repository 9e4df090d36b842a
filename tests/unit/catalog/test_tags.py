"""What the tags of real wheels say."""

import pytest
from packaging.tags import parse_tag

from gpuinstall.catalog.narrowing import glibc_floor, platforms, python


@pytest.mark.parametrize(
    ("tag", "platform", "name", "floor"),
    [
        ("cp312-cp312-manylinux_2_28_x86_64", ("linux", "x86_64"), "3.12", "2.28"),
        ("cp313-cp313t-manylinux_2_28_aarch64", ("linux", "aarch64"), "3.13t", "2.28"),
        ("cp310-cp310-manylinux2014_aarch64", ("linux", "aarch64"), "3.10", "2.17"),
        ("cp37-cp37m-manylinux1_x86_64", ("linux", "x86_64"), "3.7", "2.5"),
        ("cp312-cp312-linux_x86_64", ("linux", "x86_64"), "3.12", None),
        ("cp311-cp311-win_amd64", ("windows", "x86_64"), "3.11", None),
        ("cp311-cp311-win_arm64", ("windows", "arm64"), "3.11", None),
        ("cp39-none-macosx_11_0_arm64", ("macos", "arm64"), "3.9", None),
    ],
)
def test_tag_of_a_torch_wheel(tag, platform, name, floor):
    tags = parse_tag(tag)
    assert (platforms(tags), python(tags), glibc_floor(tags)) == (
        frozenset({platform}),
        name,
        floor,
    )


def test_lowest_of_several_glibc_floors_counts():
    assert glibc_floor(parse_tag("cp312-cp312-manylinux_2_28_x86_64.manylinux_2_5_x86_64")) == "2.5"


@pytest.mark.parametrize(
    "tag", ["py3-none-any", "cp38-abi3-manylinux_2_28_x86_64", "cp311.cp312-none-win_amd64"]
)
def test_wheel_for_many_pythons_names_none(tag):
    assert python(parse_tag(tag)) is None


@pytest.mark.parametrize(
    "tag", ["py3-none-any", "cp312-cp312-musllinux_1_2_x86_64", "cp312-cp312-linux_s390x"]
)
def test_platform_that_no_plan_is_made_for_is_none(tag):
    assert platforms(parse_tag(tag)) == frozenset()
