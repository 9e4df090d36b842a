"""CUDA that waits for the fabric of NVSwitches, or for something else."""

from gpuinstall.machine.probe import read_machine
from tests.lab.recorded import card, healthy, libcuda, recording

SWITCH = card(0xA0, "10de:22a3", kind="0x068000")


def test_gpus_behind_a_switch_wait_for_their_fabric_manager(tmp_path):
    files = healthy(2) | SWITCH | libcuda(init=802)
    (problem,) = read_machine(source=recording(tmp_path, files)).problems
    assert (problem.id, problem.code) == ("F10", "fabric-manager-not-running")
    assert "nvidia-fabricmanager" in str(problem.fixes[0])


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
