from __future__ import annotations

import pytest

from gpuinstall.verify.verdict import Check, Device, Subject, Verdict

PASSED = Check("import", "passed", 0.1)
FAILED = Check("matmul-float32", "failed", 0.2, "CUDA error", "F37")
SKIPPED = Check("device", "skipped", message="busy")


@pytest.mark.parametrize(
    ("device", "status"),
    [
        (Device(0, "A", (PASSED,)), "passed"),
        (Device(0, "A", (PASSED, SKIPPED)), "passed"),
        (Device(0, "A", (PASSED, FAILED)), "failed"),
        (Device(0, "A", (SKIPPED,), unproven="busy"), "unproven"),
        (Device(0, "A", (FAILED,), unproven="busy"), "failed"),
        (Device(0, "A"), "unproven"),
    ],
)
def test_a_device_is_what_its_checks_make_it(device: Device, status: str) -> None:
    assert device.status == status


def test_failed_beats_unproven_beats_passed() -> None:
    devices = (Device(0, "A", (PASSED,)), Device(1, "B", unproven="busy"), Device(2, "C", (FAILED,)))
    assert Verdict(Subject(), devices).status == "failed"
    assert Verdict(Subject(), devices[:2]).status == "unproven"
    assert Verdict(Subject(), devices[:1]).status == "passed"
    assert Verdict(Subject(), ()).status == "unproven"


def test_the_document_is_the_contracts() -> None:
    tested = Subject("3.12.1", "2.14.1+cu126", "cu126", ("sm_80", "sm_90"))
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
