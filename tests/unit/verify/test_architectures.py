from __future__ import annotations

import pytest

from gpuinstall.machine import Driver, Machine
from gpuinstall.verify.architectures import architecture_check
from gpuinstall.versions import CudaVersion, DriverVersion

CU126 = ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"]
CU130 = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120", "compute_120"]
MACHINE = Machine("linux", "x86_64", driver=Driver(DriverVersion.parse("580.95.05"), CudaVersion(13, 0)))


@pytest.mark.parametrize(
    ("names", "cuda", "capability", "runs"),
    [
        (CU126, "12.6", "8.9", "sm_86"),
        (CU126, "12.6", "6.1", "sm_60"),
        (CU130, "13.0", "12.1", "sm_120"),
        (CU130, "13.0", "12.0", "sm_120"),
        (["sm_90a"], "12.6", "9.0", "sm_90a"),
    ],
)
def test_the_code_that_a_card_runs_is_named(names: list[str], cuda: str, capability: str, runs: str) -> None:
    check = architecture_check(names, cuda, capability, MACHINE, failed=False)
    assert check.message == f"compute capability {capability} runs {runs}"


def test_a_list_without_code_explains_kernels_that_failed() -> None:
    check = architecture_check(CU130, "13.0", "6.1", MACHINE, failed=True)
    assert check.status == "failed"
    assert str(check.message).startswith("the build has no code for sm_61, only for sm_75")


def test_kernels_that_ran_are_believed_more_than_the_list() -> None:
    assert architecture_check(CU130, "13.0", "6.1", MACHINE, failed=False).status == "passed"
