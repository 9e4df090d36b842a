from __future__ import annotations

from pathlib import Path

from gpuinstall.environments.marker import Marker
from gpuinstall.machine import Machine
from gpuinstall.verify.faults import Fault, faults, fixes, title_of
from gpuinstall.verify.verdict import Check, Device

MACHINE = Machine("linux", "x86_64", distribution="Ubuntu 24.04")
PYTHON = Path("/data/envs/it/bin/python")


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
    assert fixes(fault, MACHINE, PYTHON)[0].startswith("gpuinstall install")


def test_what_was_tried_here_mends_better_than_what_is_known_in_general() -> None:
    fault = Fault(("import",), "ImportError: x; it passes without LD_LIBRARY_PATH=/opt/cuda/lib64", "F49")
    assert fixes(fault, MACHINE, PYTHON) == ("unset LD_LIBRARY_PATH",)


def test_a_fault_that_nobody_knows_has_no_invented_fix() -> None:
    fault = Fault(("numpy",), "the numbers differ", None)
    assert title_of(fault) is None
    assert fixes(fault, MACHINE, PYTHON) == ()


def test_a_torch_that_cannot_be_imported_is_made_anew_where_it_lies(tmp_path: Path) -> None:
    fault = Fault(("import",), "ImportError: x; torch has lost a file since it was installed: torch/_C.so", None)
    (foreign,) = fixes(fault, MACHINE, PYTHON)
    assert foreign.startswith("uv pip install --python /data/envs/it/bin/python --reinstall torch")
    Marker("1", "pylock.cpu.toml", "0", "3.12", "2.9.1", "cpu", "0", {}).write(tmp_path)
    (ours,) = fixes(fault, MACHINE, tmp_path / "bin" / "python")
    assert ours.startswith(f"rm -r {tmp_path} && gpuinstall install --venv {tmp_path}")


def test_a_program_that_was_killed_leads_to_the_kernels_log() -> None:
    fault = Fault(("import",), "killed by SIGKILL: the kernel does that when memory runs out", None)
    assert fixes(fault, MACHINE, PYTHON)[0].startswith("sudo dmesg")
