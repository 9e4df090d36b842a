import pytest

from gpuinstall.base.finding import CheckResult, Finding
from gpuinstall.verify.verdict import Device, Verdict, VerifiedEnvironment

PASSED = CheckResult("import", "passed", 0.1)
FAILED = CheckResult("matmul-float32", "failed", 0.2, "CUDA error", "F37")
SKIPPED = CheckResult("device", "skipped", message="busy")


@pytest.mark.parametrize(
    ("checks", "unproven", "status", "outcome"),
    [
        ((PASSED,), None, "passed", "passed, 1 check"),
        ((PASSED, PASSED), None, "passed", "passed, 2 checks"),
        ((PASSED, SKIPPED), None, "passed", "passed, 1 check, 1 skipped"),
        ((PASSED, FAILED), None, "failed", "failed in 1 of 2 checks"),
        ((SKIPPED,), "busy", "unproven", "unproven: busy"),
        ((FAILED,), "busy", "failed", "failed in 1 of 1 check"),
        ((), None, "unproven", "unproven"),
    ],
)
def test_device_status_depends_on_its_checks(checks, unproven, status, outcome):
    device = Device(0, "A", checks, unproven)
    assert (device.status, device.outcome) == (status, outcome)


def test_failed_takes_precedence_over_unproven_and_passed():
    devices = (
        Device(0, "A", (PASSED,)),
        Device(1, "B", unproven="busy"),
        Device(2, "C", (FAILED,)),
    )
    assert [
        Verdict(VerifiedEnvironment(), devices[:count]).status for count in range(4)
    ] == ["unproven", "passed", "unproven", "failed"]


def test_verdict_document_has_expected_fields():
    tested = VerifiedEnvironment("3.12.1", "2.14.1+cu126", "cu126", ("sm_80", "sm_90"))
    assert Verdict(tested, (Device(0, "NVIDIA A100", (FAILED,)),)).to_dict() == {
        "schema": "gpuinstall.verdict/1",
        "status": "failed",
        "environment": {
            "python": "3.12.1",
            "torch": "2.14.1+cu126",
            "backend": "cu126",
            "architectures": ["sm_80", "sm_90"],
        },
        "devices": [
            {
                "index": 0,
                "name": "NVIDIA A100",
                "status": "failed",
                "checks": [
                    {
                        "name": "matmul-float32",
                        "status": "failed",
                        "seconds": 0.2,
                        "message": "CUDA error",
                        "cause": "F37",
                    }
                ],
            }
        ],
    }


def test_failed_checks_with_same_cause_are_merged():
    checks = (
        CheckResult(
            "elementwise",
            "failed",
            message="no kernel image (1)",
            id="F37",
            fixes=("gpuinstall install",),
        ),
        PASSED,
        CheckResult("linear", "failed", message="no kernel image (2)", id="F37"),
        CheckResult("numpy", "failed", message="the numbers differ"),
    )
    assert Device(0, "A", checks).faults == (
        Finding(
            "kernel-failed",
            "elementwise, linear: no kernel image (1)",
            "F37",
            "this build of torch has no code for the GPU, which is too old",
            fixes=("gpuinstall install",),
            where="environment",
        ),
        Finding("kernel-failed", "numpy: the numbers differ", where="environment"),
    )


def test_verdict_document_keeps_the_device_label():
    environment = VerifiedEnvironment("3.12", "2.15.0+cpu", "cpu")
    cpu, gpu = Device(0, "CPU", kind="cpu"), Device(0, "NVIDIA L4")
    document = Verdict(environment, (cpu, gpu)).to_dict()
    read = Verdict.from_dict(document)
    assert [device.label for device in read.devices] == ["CPU", "GPU 0"]
