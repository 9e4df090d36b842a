"""The fabric manager, where CUDA waits for it."""

from gpuinstall.machine.probe import read_machine
from tests.lab.recorded import card, healthy, libcuda, recording

SWITCHES = card(0xA0, "10de:22a3", kind="0x068000") | card(0xA1, "10de:22a3", kind="0x068000")


def test_a_waiting_cuda_is_explained_by_the_switches_and_their_daemon(tmp_path):
    files = healthy(2) | SWITCHES | libcuda(init=802)
    (problem,) = read_machine(source=recording(tmp_path, files)).problems
    assert (problem.id, problem.code) == ("F10", "fabric-manager-not-running")
    assert "2 NVSwitches · nv-fabricmanager is not running" in (problem.evidence or "")


def test_switches_on_a_machine_that_works_are_no_problem(tmp_path):
    assert read_machine(source=recording(tmp_path, healthy(2), SWITCHES)).problems == ()


def test_without_a_switch_no_fabric_manager_is_installed(tmp_path):
    (problem,) = read_machine(source=recording(tmp_path, healthy(1), libcuda(init=802))).problems

    assert (problem.code, problem.message) == (
        "fabric-manager-not-running",
        "the GPUs are not ready for CUDA",
    )
    assert problem.fixes[:2] == (
        "nvidia-smi conf-compute -f   # is CC status ON?",
        "sudo nvidia-smi conf-compute -srs 1   # if it is",
    )
