"""The order of findings, the exit status, and failed checks that a finding explains."""

from __future__ import annotations

from dataclasses import replace

from gpuinstall.doctor.check import Finding, exit_code, of_problem, ordered
from gpuinstall.doctor.examination import merged
from gpuinstall.machine import Gpu, Machine, Problem

MACHINE = Finding("machine", "driver-missing", "no driver", None, "sudo apt install x", "F01", blocking=True)
NOTE = Finding("machine", "gpu-not-ours", "1 of 8", None, None)
ENVIRONMENT = Finding("environment", "kernel-failed", "GPU 0", None, "gpuinstall install", "F49", blocking=True)
POISON = Finding("environment", "library-path-poisoned", "LD_LIBRARY_PATH", None, "unset LD_LIBRARY_PATH", "F49")
PROJECT = Finding("project", "uv-undoes-build", "uv", None, "gpuinstall export uv", "F44")


def test_what_blocks_comes_first_and_the_machine_before_what_it_carries() -> None:
    assert ordered([PROJECT, NOTE, ENVIRONMENT, MACHINE]) == (MACHINE, ENVIRONMENT, NOTE, PROJECT)


def test_a_finding_is_said_once() -> None:
    assert ordered([NOTE, replace(NOTE), PROJECT]) == (NOTE, PROJECT)


def test_the_exit_status_is_the_machines_before_the_environments() -> None:
    sound = Machine("linux", "x86_64", gpus=(Gpu(0), Gpu(1)))
    assert exit_code([NOTE, PROJECT, POISON], sound) == 0
    assert exit_code([ENVIRONMENT, NOTE], sound) == 5
    assert exit_code([ENVIRONMENT, MACHINE], sound.with_problems([Problem("driver-missing", "no driver")])) == 8


def test_a_lost_gpu_beside_one_that_works_is_no_failure() -> None:
    lost = [Problem("gpu-lost", f"GPU {index} is lost", gpus=(index,)) for index in range(2)]
    two = Machine("linux", "x86_64", gpus=(Gpu(0), Gpu(1)))
    assert exit_code([MACHINE], two.with_problems(lost[:1])) == 0
    assert exit_code([MACHINE], two.with_problems(lost)) == 8


def test_a_failed_check_is_said_by_what_explains_it() -> None:
    assert merged([POISON], (ENVIRONMENT,)) == (replace(POISON, blocking=True),)
    assert merged([POISON], ()) == (POISON,)
    other = replace(ENVIRONMENT, id="F37")
    assert merged([POISON], (other,)) == (POISON, other)


def test_a_problem_of_the_machine_is_a_finding_with_the_same_words() -> None:
    problem = Problem("gpu-lost", "GPU 1 is lost", "reboot", "F08", seen="Xid 79")
    assert of_problem(problem).to_dict() == {
        "id": "F08",
        "code": "gpu-lost",
        "title": "GPU 1 is lost",
        "why": "Xid 79",
        "fix": "reboot",
        "blocking": True,
    }
