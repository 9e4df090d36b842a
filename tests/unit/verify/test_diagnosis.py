from __future__ import annotations

import pytest

from gpuinstall.machine import Machine
from gpuinstall.verify.diagnosis import Evidence, device
from gpuinstall.verify.report import Record, Report
from gpuinstall.verify.targets import CPU

HERE = Machine("linux", "x86_64")
ABSENT = Record("import", "failed", 0.0, "ModuleNotFoundError", "No module named 'torch'")


@pytest.mark.parametrize(
    ("narrow", "message"),
    [
        (False, "torch is not installed in this environment"),
        (True, "torch is not installed in this environment: its Python has 32 bits, and torch is made for 64"),
    ],
)
def test_a_torch_that_is_not_there_is_said_to_be_absent_and_why(narrow: bool, message: str) -> None:
    (check,) = device(CPU, Report(records=(ABSENT,)), Evidence(HERE, narrow=narrow)).checks
    assert (check.status, check.message, check.cause) == ("failed", message, None)
