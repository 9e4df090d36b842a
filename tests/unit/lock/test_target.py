import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.base.values import replace
from gpuinstall.lock.file.target import Target
from gpuinstall.machine.vendors import VENDORS


@pytest.mark.parametrize(
    ("target", "filename"),
    [
        (Target("cu126"), "pylock.cu126.toml"),
        (Target("cpu"), "pylock.cpu.toml"),
        (Target("cu130", "windows"), "pylock.cu130-windows-x86_64.toml"),
        (Target("cu130", "linux", "aarch64"), "pylock.cu130-linux-aarch64.toml"),
        (Target("cpu", "macos", "arm64"), "pylock.cpu-macos-arm64.toml"),
    ],
)
def test_the_lock_is_named_after_its_target_and_the_name_reads_back(target, filename):
    assert target.filename == filename
    assert Target.parse(str(target)) == target


@pytest.mark.parametrize(
    "text",
    [
        "",
        "cu",
        "cu12.6",
        "hip6.3",
        "cu126-linux",
        "cu126-beos-x86_64",
        "cu126 ",
        "../cpu",
    ],
)
def test_anything_else_is_no_target(text):
    with pytest.raises(UsageError) as caught:
        Target.parse(text)
    assert caught.value.code == "target-malformed"


@pytest.mark.parametrize(
    ("target", "wheel", "fits"),
    [
        (Target("cu126"), "cp312-cp312-manylinux_2_28_x86_64", True),
        (Target("cu126"), "cp312-cp312-manylinux2014_x86_64", True),
        (Target("cu126"), "cp312-cp312-linux_x86_64", True),
        (Target("cu126"), "py3-none-any", True),
        (Target("cu126"), "cp38-abi3-manylinux1_x86_64", True),
        (Target("cu126"), "cp312-cp312-manylinux_2_31_x86_64", False),
        (Target("cu126", glibc="2.17"), "cp312-cp312-manylinux_2_28_x86_64", False),
        (Target("cu126"), "cp312-cp312t-manylinux_2_28_x86_64", False),
        (Target("cu126"), "cp311-cp311-manylinux_2_28_x86_64", False),
        (Target("cu126"), "cp312-cp312-win_amd64", False),
        (
            Target("cu126", "linux", "aarch64"),
            "cp312-cp312-manylinux_2_28_aarch64",
            True,
        ),
        (Target("cu126", "windows"), "cp312-cp312-win_amd64", True),
        (Target("cpu", "macos", "arm64"), "cp312-none-macosx_11_0_arm64", True),
        (Target("cpu", "macos", "arm64"), "cp312-none-macosx_14_0_arm64", True),
        (Target("cpu", "macos", "arm64"), "cp312-none-macosx_15_0_arm64", False),
    ],
)
def test_only_wheels_of_its_platform_and_python_fit(target, wheel, fits):
    assert (wheel in {str(tag) for tag in target.tags("3.12")}) is fits


def test_the_marker_holds_on_its_platform_and_nowhere_else():
    from packaging.markers import Marker

    targets = [
        Target("cu130"),
        Target("cu130", "linux", "aarch64"),
        Target("cu130", "windows"),
        Target("cpu", "macos", "arm64"),
    ]
    for one in targets:
        for other in targets:
            assert Marker(one.marker).evaluate(dict(other.environment("3.12"))) is (
                one == other
            )


def test_a_backend_whose_tag_has_dots_is_spelled_without_them_in_the_name_of_its_lock(
    monkeypatch,
):
    monkeypatch.setitem(VENDORS, "amd", replace(VENDORS["nvidia"], kind="rocm"))
    target = Target.parse("rocm7-2")
    assert (target.backend, target.filename) == ("rocm7.2", "pylock.rocm7-2.toml")
    assert Target.parse(str(replace(target, arch="aarch64"))) == replace(
        target, arch="aarch64"
    )
    assert Target.parse("rocm7.2") == target
