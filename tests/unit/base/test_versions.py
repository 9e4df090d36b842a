from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuinstall.base.versions import ComputeCapability, CudaVersion, DriverVersion


def test_sm_number_becomes_a_compute_capability():
    assert [str(ComputeCapability.from_sm(sm)) for sm in (37, 90, 120)] == [
        "3.7",
        "9.0",
        "12.0",
    ]
    assert ComputeCapability(12, 1).sm == "sm_121"


def test_driver_versions_compare_by_number_not_by_text():
    assert (
        DriverVersion.parse("535.54.03")
        < DriverVersion.parse("535.183.01")
        < DriverVersion.parse("570")
    )
    assert DriverVersion.parse("535.183.01").branch == 535
    assert str(DriverVersion.parse("535.183.01")) == "535.183.01"


@pytest.mark.parametrize(
    ("windows", "driver"),
    [
        ("31.0.15.3623", "536.23"),
        ("32.0.15.6094", "560.94"),
        ("30.0.14.7212", "472.12"),
    ],
)
def test_the_number_of_windows_device_manager_is_the_drivers_own(windows, driver):
    assert DriverVersion.parse(windows) == DriverVersion.parse(driver)


@pytest.mark.parametrize(
    "text", ["banana", "", "-1.2", "12", "12.2.1", "١٢.٢", "1e3.0"]
)
def test_anything_else_is_no_cuda_version(text):
    with pytest.raises(ValueError, match="not a CUDA version"):
        CudaVersion.parse(text)


@pytest.mark.parametrize(
    "text", ["banana", "", "-580", "580.", "580..1", "580.95.05 ", "5"]
)
def test_anything_else_is_no_driver_version(text):
    with pytest.raises(ValueError, match="not a driver version"):
        DriverVersion.parse(text)


@given(st.integers(0, 999), st.integers(0, 99))
def test_what_is_written_is_read_back(major, minor):
    assert CudaVersion.parse(str(CudaVersion(major, minor))) == (major, minor)
    assert ComputeCapability.parse(str(ComputeCapability(major, minor))) == (
        major,
        minor,
    )


@pytest.mark.parametrize(
    "parse", [CudaVersion.parse, ComputeCapability.parse, DriverVersion.parse]
)
@given(text=st.text())
def test_parsers_raise_value_error_and_nothing_else(parse, text):
    with suppress(ValueError):
        assert str(parse(text)) == text
