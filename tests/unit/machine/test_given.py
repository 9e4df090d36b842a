"""Which cards a process was given: sysfs shows all of them to every container and every job."""

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

POD = {"/proc/self/cgroup": "0::/kubepods.slice/kubepods-burstable.slice\n"}
SLURM = {"SLURM_JOB_ID": "4711", "CUDA_VISIBLE_DEVICES": "0"}


def one_of_eight():
    files = healthy(1)
    for number in range(2, 9):
        files |= card(number)
    return files


def probed(folder, *files, **variables):
    return read_machine(source=recording(folder, *files, **variables))


def test_a_pod_with_one_of_eight_has_one_gpu_and_a_note(tmp_path):
    machine = probed(tmp_path, one_of_eight(), POD)
    assert [gpu.index for gpu in machine.gpus] == [0]
    assert machine.environment.container == "kubernetes"
    (note,) = machine.problems
    assert (note.code, note.blocking, note.gpus) == ("gpu-not-ours", False, ())
    assert bus(8) in note.message


def test_a_job_whose_nodes_are_denied_has_one_gpu_and_a_note(tmp_path):
    denied = {f"/dev/nvidia{number}": "denied\n" for number in range(1, 8)}
    machine = probed(tmp_path, one_of_eight(), denied, **SLURM)
    assert [gpu.index for gpu in machine.gpus] == [0]
    assert [problem.code for problem in machine.problems] == ["gpu-not-ours"]
    assert machine.problems[0].message.startswith("not given to this job")


def test_a_job_does_not_list_the_cards_that_nvml_shows_and_denies(tmp_path):
    denied = {"error": 4, "bus_id": None, "name": None, "uuid": None, "pci_id": None}
    files = healthy(2) | nvml({}, denied) | libcuda(1) | {"/dev/nvidia1": "denied\n"}
    machine = probed(tmp_path, files, **SLURM)
    assert [gpu.index for gpu in machine.gpus] == [0]
    assert [problem.code for problem in machine.problems] == ["gpu-not-ours"]


def test_a_job_without_a_card_on_a_node_full_of_them_is_a_machine_without_a_gpu(
    tmp_path,
):
    shared = {"/dev/nvidiactl": "open\n", "/dev/nvidia-uvm": "open\n"}
    denied = {f"/dev/nvidia{number}": "denied\n" for number in range(2)}
    files = card(1) | card(2) | module() | nvml() | libcuda(init=100) | shared | denied
    machine = probed(tmp_path, files, SLURM_JOB_ID="4711")
    assert machine.gpus == ()
    assert [(problem.code, problem.blocking) for problem in machine.problems] == [
        ("gpu-not-ours", False)
    ]


def test_a_container_with_a_node_of_a_card_that_the_driver_does_not_list_has_a_broken_one(
    tmp_path,
):
    machine = probed(tmp_path, healthy(1), card(2), nodes(2), POD)
    assert [(problem.code, problem.gpus) for problem in machine.problems] == [
        ("gpu-lost", (1,))
    ]


def test_a_container_without_any_card_is_a_machine_without_a_gpu(tmp_path):
    machine = probed(tmp_path, card(1), card(2), module(), no_nvml(), no_libcuda(), POD)
    assert machine.gpus == ()
    (note,) = machine.problems
    assert (note.code, note.id, note.blocking) == ("gpu-not-ours", "F25", False)
    assert note.fix is not None
    assert "nvidia.com/gpu" in note.fix


@pytest.mark.parametrize("driver", ["vfio-pci", "pciback"])
def test_a_card_set_aside_for_a_virtual_machine_is_noted_and_not_listed(
    tmp_path, driver
):
    machine = probed(tmp_path, healthy(1), card(2, H200, driver))
    assert [gpu.index for gpu in machine.gpus] == [0]
    (note,) = machine.problems
    assert (note.code, note.blocking) == ("gpu-not-ours", False)
    assert driver in (note.why or "")


def test_a_lost_gpu_is_named_by_the_bus_when_only_one_card_is_left(tmp_path):
    files = healthy(2) | nvml(
        {},
        {
            "error": 15,
            "bus_id": None,
            "name": None,
            "uuid": None,
            "pci_id": None,
            "compute_capability": None,
        },
    )
    machine = probed(tmp_path, files | libcuda(1) | card(2, H200))
    lost = machine.gpus[1]
    assert (lost.index, lost.pci_id, str(lost.compute_capability)) == (1, H200, "9.0")


def test_other_makers_gpus_are_noted_where_nvidia_has_none(tmp_path):
    radeon = card(3, "1002:744c", "amdgpu")
    machine = probed(tmp_path / "amd", radeon, no_nvml(), no_libcuda())
    assert machine.gpus == ()
    assert [(note.code, note.blocking, note.message) for note in machine.problems] == [
        ("gpu-not-supported", False, "not used: AMD 1002:744c")
    ]
    assert probed(tmp_path / "both", healthy(1), radeon).problems == ()


def test_the_capability_of_an_unknown_chip_is_not_guessed(tmp_path):
    machine = probed(tmp_path, card(1, "10de:3340", None), no_nvml(), no_libcuda())
    assert machine.gpus[0].compute_capability is None
