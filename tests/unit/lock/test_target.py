import pytest
from packaging.markers import Marker

from gpuinstall.base.errors import UsageError
from gpuinstall.lock.file.target import Target

CU126 = Target("cu126")
ARM = Target("cu130", "linux", "aarch64")
WINDOWS = Target("cu130", "windows")
MACOS = Target("cpu", "macos", "arm64")
TARGETS = {
    "cu126": CU126,
    "cpu": Target("cpu"),
    "cu130-windows-x86_64": WINDOWS,
    "cu130-linux-aarch64": ARM,
    "cpu-macos-arm64": MACOS,
    # The standard forbids other dots in the name.
    "rocm7-2": Target("rocm7.2"),
    "rocm7-2-linux-aarch64": Target("rocm7.2", "linux", "aarch64"),
}


def test_lock_name_parses_to_its_target():
    assert {str(target): target for target in TARGETS.values()} == TARGETS
    assert {text: Target.parse(text) for text in TARGETS} == TARGETS
    assert Target.parse("rocm7.2") == TARGETS["rocm7-2"]
    assert MACOS.filename == "pylock.cpu-macos-arm64.toml"


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
def test_malformed_target_is_rejected(text):
    with pytest.raises(UsageError) as caught:
        Target.parse(text)
    assert caught.value.code == "target-malformed"


def test_target_rejects_wheels_with_incompatible_tags():
    rows = (
        (CU126, "cp312-cp312-manylinux_2_28_x86_64", True),
        (CU126, "cp312-cp312-manylinux2014_x86_64", True),
        (CU126, "cp312-cp312-linux_x86_64", True),
        (CU126, "py3-none-any", True),
        (CU126, "cp38-abi3-manylinux1_x86_64", True),
        (CU126, "cp312-cp312-manylinux_2_31_x86_64", False),
        (Target("cu126", glibc="2.17"), "cp312-cp312-manylinux_2_28_x86_64", False),
        (CU126, "cp312-cp312t-manylinux_2_28_x86_64", False),
        (CU126, "cp311-cp311-manylinux_2_28_x86_64", False),
        (CU126, "cp312-cp312-win_amd64", False),
        (ARM, "cp312-cp312-manylinux_2_28_aarch64", True),
        (WINDOWS, "cp312-cp312-win_amd64", True),
        (MACOS, "cp312-none-macosx_11_0_arm64", True),
        (MACOS, "cp312-none-macosx_14_0_arm64", True),
        (MACOS, "cp312-none-macosx_15_0_arm64", False),
    )
    wrong = []
    for target, wheel, fits in rows:
        if (wheel in map(str, target.tags("3.12"))) is not fits:
            wrong.append((str(target), wheel))
    assert wrong == []


def test_target_marker_matches_only_its_platform():
    targets = (CU126, ARM, WINDOWS, MACOS)
    for one in targets:
        marker = Marker(one.marker)
        held = [two for two in targets if marker.evaluate(two.environment("3.12"))]
        assert held == [one]
