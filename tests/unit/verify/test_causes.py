from __future__ import annotations

import pytest

from gpuinstall.machine import Driver, Machine
from gpuinstall.verify.causes import Situation, cause_of
from gpuinstall.versions import ComputeCapability, CudaVersion, DriverVersion

NO_IMAGE = "CUDA error: no kernel image is available for execution on the device"
ARCHITECTURES = ("sm_75", "sm_80", "sm_90a")


def situation(capability: str = "8.9", driver: str = "580.95.05") -> Situation:
    machine = Machine("linux", "x86_64", driver=Driver(DriverVersion.parse(driver), CudaVersion(13, 0)))
    return Situation(machine, ComputeCapability.parse(capability), ARCHITECTURES)


@pytest.mark.parametrize(("capability", "cause"), [("6.1", "F37"), ("12.0", "F38"), ("8.9", "F37")])
def test_no_kernel_image_is_a_card_older_or_newer_than_the_build(capability: str, cause: str) -> None:
    assert cause_of("elementwise", NO_IMAGE, situation(capability)) == cause
    assert cause_of("architectures", "the build has no code", situation(capability)) == cause


@pytest.mark.parametrize(
    ("name", "text", "at", "cause"),
    [
        ("import", "ImportError: libc10.so: version 'GLIBCXX_3.4.30' not found", situation(), "F59"),
        ("device", "RuntimeError: CUDA error: uncorrectable ECC error encountered", situation(), "F09"),
        ("linear", "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED", situation(), "F50"),
        ("convolution", "RuntimeError: GET was unable to find an engine", situation("6.1"), "F55"),
        ("convolution", "the result is off by 1", situation(), "F51"),
        ("optimizer-step", "RuntimeError: something odd", situation(driver="525.60.13"), "F19"),
        ("optimizer-step", "RuntimeError: something odd", situation(), None),
        ("import", "killed by SIGILL", situation(), "F62"),
        ("import", "SyntaxError: invalid syntax", situation(), None),
        ("sort", "the result is not exactly the expected one", situation(), None),
    ],
)
def test_a_failure_has_the_cause_that_its_text_or_its_place_shows(
    name: str, text: str, at: Situation, cause: str | None
) -> None:
    assert cause_of(name, text, at) == cause
