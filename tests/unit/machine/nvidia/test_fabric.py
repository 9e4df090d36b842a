"""CUDA that waits for the fabric of NVSwitches, or for something else."""

from gpuinstall.machine.probe import read_machine
from tests.lab.recorded import healthy, libcuda, recording


def test_without_a_switch_no_fabric_manager_is_installed(tmp_path):
    (problem,) = read_machine(
        source=recording(tmp_path, healthy(1), libcuda(init=802))
    ).problems

    assert (problem.code, problem.message) == (
        "fabric-manager-not-running",
        "the GPUs are not ready for CUDA",
    )
    assert problem.fixes[:2] == (
        "nvidia-smi conf-compute -f   # is CC status ON?",
        "sudo nvidia-smi conf-compute -srs 1   # if it is",
    )
