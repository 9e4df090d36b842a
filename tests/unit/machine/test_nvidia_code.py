"""Which code a chip runs."""

import pytest
from packaging.version import Version

from gpuinstall.base.versions import Backend, ComputeCapability, CudaVersion
from gpuinstall.catalog import Build
from gpuinstall.catalog.loader import code_names
from gpuinstall.machine.nvidia.driver import code_for
from gpuinstall.machine.protocol import Code
from tests.frozen import frozen_catalog


def runs(
    code,
    chip,
    *,
    toolkit="13.0",
    driver="13.0",
    cudnn=None,
):
    """The name of the code that a chip runs, or the slug of why it runs none."""
    build = Build(
        Version("2.9.0"),
        Backend.parse("cu130"),
        "linux",
        "x86_64",
        code=code_names(code),
        toolkit=CudaVersion.parse(toolkit),
        libraries=(("cudnn", cudnn),) if cudnn else (),
    )
    cuda = CudaVersion.parse(driver) if driver else None
    found = code_for(
        build, ComputeCapability.parse(chip), frozen_catalog().drivers, cuda
    )
    return found.name if isinstance(found, Code) else found.code


@pytest.mark.parametrize(
    ("code", "chip", "found"),
    [
        ("80 86", "8.9", "sm_86"),
        ("80 86", "8.0", "sm_80"),
        ("86", "8.0", "no-code"),
        ("75 80 90", "12.0", "no-code"),
        ("90a", "9.0", "sm_90a"),
        ("100a", "10.3", "no-code"),
        ("100f", "10.3", "sm_100f"),
        ("100f", "10.7", "no-code"),
        ("100", "10.7", "sm_100"),
        ("103f", "10.0", "no-code"),
        ("120f", "12.1", "sm_120f"),
        ("100 120", "12.1", "sm_120"),
    ],
)
def test_sass_runs_on_its_own_major_from_its_minor_on(code, chip, found):
    assert runs(code, chip) == found


@pytest.mark.parametrize("chip", ["5.3", "6.2", "7.2", "8.7"])
def test_a_tegra_chip_runs_no_code_of_its_desktop_relatives(chip):
    assert runs("50 60 70 80 86", chip, toolkit="12.6") == "no-code"
    assert (
        runs(chip.replace(".", ""), chip, toolkit="12.6")
        == f"sm_{chip.replace('.', '')}"
    )


def test_orin_runs_server_code_from_the_toolkit_on_that_unified_them():
    assert runs("80", "8.7", toolkit="13.0") == "no-code"
    assert runs("80", "8.7", toolkit="13.2") == "sm_80"


def test_ptx_runs_on_anything_newer_if_the_driver_compiles_it():
    assert runs("80 +90", "12.0", toolkit="12.9", driver="13.0") == "compute_90"
    assert runs("80 +90", "12.0", toolkit="12.9", driver="12.9") == "compute_90"
    assert (
        runs("80 +90", "12.0", toolkit="12.9", driver="12.8")
        == "driver-too-old-for-ptx"
    )
    assert (
        runs("80 +90", "12.0", toolkit="12.9", driver=None) == "driver-too-old-for-ptx"
    )
    assert runs("80 +90", "7.5", toolkit="12.9") == "no-code"


def test_sass_is_taken_before_ptx():
    assert runs("90 120 +90", "12.0") == "sm_120"


def test_a_library_in_the_wheel_without_code_for_the_chip_counts_as_the_wheel():
    assert runs("37 50", "3.7", cudnn="9.1.0.70") == "no-cudnn-code"
    assert runs("37 50", "3.7", cudnn="8.7.0.84") == "sm_37"
    assert runs("50", "3.7", cudnn="9.1.0.70") == "no-code"
