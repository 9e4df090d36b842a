"""GPUs assigned to a container or job, of all in sysfs."""

import pytest

from gpuinstall.machine.probe import read_machine
from tests.lab.recorded import (
    H200,
    bus,
    card,
    healthy,
    libcuda,
    module,
    no_libcuda,
    no_nvml,
    nodes,
    nvml,
    recording,
)
from tests.unit.machine.made import variables

POD = {"/proc/self/cgroup": "0::/kubepods.slice/kubepods-burstable.slice\n"}
NO_DRIVER = no_nvml() | no_libcuda()
JOB = variables(SLURM_JOB_ID="4711", CUDA_VISIBLE_DEVICES="0")
RADEON = card(3, "1002:744c", "amdgpu")
UNKNOWN = dict.fromkeys(("bus_id", "name", "uuid", "pci_id", "compute_capability"))


def one_of_eight():
    files = healthy(1)
    for number in range(2, 9):
        files |= card(number)
    return files


def denied(*numbers):
    return {f"/dev/nvidia{number}": "denied\n" for number in numbers}


# The files, the listed GPUs, and the one problem with some of its words.
MACHINES = {
    "a pod with one of eight": (
        one_of_eight() | POD,
        [0],
        {"gpu-not-ours": bus(8)},
    ),
    "a job with one of eight": (
        one_of_eight() | denied(*range(1, 8)) | JOB,
        [0],
        {"gpu-not-ours": "not given to this job"},
    ),
    "a job with one of two that NVML shows": (
        healthy(2) | nvml({}, {**UNKNOWN, "error": 4}) | libcuda(1) | denied(1) | JOB,
        [0],
        {"gpu-not-ours": "not given to this job"},
    ),
    "a job with none of two": (
        card(1)
        | card(2)
        | module()
        | nvml()
        | libcuda(init=100)
        | {"/dev/nvidiactl": "open\n", "/dev/nvidia-uvm": "open\n"}
        | denied(0, 1)
        | variables(SLURM_JOB_ID="4711"),
        [],
        {"gpu-not-ours": "not given to this job"},
    ),
    "a container with the node of a card that the driver does not list": (
        healthy(1) | card(2) | nodes(2) | POD,
        [0, 1],
        {"gpu-lost": bus(2)},
    ),
    "a container with none of two": (
        card(1) | card(2) | module() | NO_DRIVER | POD,
        [],
        {"gpu-not-ours": "nvidia.com/gpu"},
    ),
    "a card for a virtual machine of KVM's": (
        healthy(1) | card(2, H200, "vfio-pci"),
        [0],
        {"gpu-not-ours": "vfio-pci"},
    ),
    "a card for a virtual machine of Xen's": (
        healthy(1) | card(2, H200, "pciback"),
        [0],
        {"gpu-not-ours": "pciback"},
    ),
    "another maker's card alone": (
        RADEON | NO_DRIVER,
        [],
        {"gpu-not-supported": "not used: AMD 1002:744c"},
    ),
    "another maker's card beside one of NVIDIA": (healthy(1) | RADEON, [0], {}),
}


@pytest.mark.parametrize("name", MACHINES)
def test_assigned_gpus_are_listed_and_others_noted(name, tmp_path):
    files, listed, shown = MACHINES[name]
    machine = read_machine(source=recording(tmp_path, files))

    assert [gpu.index for gpu in machine.gpus] == listed
    assert [problem.code for problem in machine.problems] == list(shown)
    for problem in machine.problems:
        words = f"{problem.message} {problem.why} {problem.fix}"
        assert shown[problem.code] in words
        assert problem.blocking is (problem.code == "gpu-lost")


def test_lost_gpu_is_identified_by_its_pci_address(tmp_path):
    files = healthy(2) | nvml({}, {**UNKNOWN, "error": 15}) | libcuda(1)
    machine = read_machine(source=recording(tmp_path, files, card(2, H200)))
    lost = machine.gpus[1]
    assert (lost.index, lost.pci_id, str(lost.compute_capability)) == (1, H200, "9.0")


def test_capability_of_unknown_gpu_is_not_guessed(tmp_path):
    files = card(1, "10de:3340", None) | NO_DRIVER
    machine = read_machine(source=recording(tmp_path, files))
    assert machine.gpus[0].compute_capability is None
