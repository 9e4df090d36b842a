from __future__ import annotations

from gpuinstall.machine import Machine
from gpuinstall.verify.faults import Fault, faults, fixes, title_of
from gpuinstall.verify.verdict import Check, Device

MACHINE = Machine("linux", "x86_64", distribution="Ubuntu 24.04")


def test_checks_that_failed_for_one_reason_are_one_fault() -> None:
    checks = (
        Check("elementwise", "failed", message="no kernel image (1)", cause="F37"),
        Check("sort", "passed"),
        Check("linear", "failed", message="no kernel image (2)", cause="F37"),
        Check("numpy", "failed", message="the numbers differ"),
    )
    assert faults(Device(0, "A", checks)) == (
        Fault(("elementwise", "linear"), "no kernel image (1)", "F37"),
        Fault(("numpy",), "the numbers differ", None),
    )


def test_a_cause_has_a_title_and_commands() -> None:
    fault = Fault(("build",), "this is the CPU build of torch", "F33")
    assert title_of(fault) == "the CPU build is installed on a machine with a GPU"
    assert fixes(fault, MACHINE)[0].startswith("gpuinstall install")


def test_what_was_tried_here_mends_better_than_what_is_known_in_general() -> None:
    fault = Fault(("import",), "ImportError: x; it passes without LD_LIBRARY_PATH=/opt/cuda/lib64", "F49")
    assert fixes(fault, MACHINE) == ("unset LD_LIBRARY_PATH",)


def test_a_fault_that_nobody_knows_has_no_invented_fix() -> None:
    fault = Fault(("numpy",), "the numbers differ", None)
    assert title_of(fault) is None
    assert fixes(fault, MACHINE) == ()
