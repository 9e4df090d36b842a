from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuinstall.base.versions import (
    Backend,
    ComputeCapability,
    CudaVersion,
    DriverVersion,
)

PARSERS = [Backend.parse, ComputeCapability.parse, CudaVersion.parse]
PARSERS += [DriverVersion.parse]


def test_sm_number_is_parsed_as_compute_capability():
    capabilities = [str(ComputeCapability.from_sm(sm)) for sm in (37, 90, 120)]
    assert capabilities == ["3.7", "9.0", "12.0"]
    assert ComputeCapability(12, 1).sm == "sm_121"


def test_driver_versions_compare_by_number():
    older, newer, branch = map(DriverVersion.parse, ("535.54.03", "535.183.01", "570"))
    assert older < newer < branch
    assert (newer.branch, str(newer)) == (535, "535.183.01")


def test_windows_driver_number_is_converted():
    drivers = {
        "31.0.15.3623": "536.23",
        "32.0.15.6094": "560.94",
        "30.0.14.7212": "472.12",
    }
    assert {windows: str(DriverVersion.parse(windows)) for windows in drivers} == (
        drivers
    )


@pytest.mark.parametrize(
    ("tag", "kind", "version"),
    [
        ("cpu", "cpu", None),
        ("cu126", "cuda", "12.6"),
        ("cu92", "cuda", "9.2"),
        ("rocm7.2", "rocm", "7.2"),
        ("rocm5.4.2", "rocm", "5.4.2"),
        ("xpu", "xpu", None),
    ],
)
def test_backend_tag_survives_a_round_trip(tag, kind, version):
    backend = Backend.parse(tag)

    assert backend == Backend(kind, version)
    assert (str(backend), backend.tag) == (tag, tag)


@pytest.mark.parametrize(
    ("parse", "refusal", "texts"),
    [
        (
            Backend.parse,
            "is not a backend such as cu126 or cpu",
            "|cu|cu1|cu1300|CU126|cuda126|rocm7.|cpu2|cpu |gpu",
        ),
        (
            CudaVersion.parse,
            "not a CUDA version",
            "banana||-1.2|12|12.2.1|١٢.٢|1e3.0",
        ),
        (
            DriverVersion.parse,
            "not a driver version",
            "banana||-580|580.|580..1|580.95.05 |5",
        ),
    ],
)
def test_malformed_versions_are_rejected(parse, refusal, texts):
    for text in texts.split("|"):
        with pytest.raises(ValueError, match=refusal):
            parse(text)


@pytest.mark.parametrize("parse", PARSERS)
@given(text=st.text())
def test_version_parsers_raise_only_value_error(parse, text):
    with suppress(ValueError):
        assert str(parse(text)) == text
