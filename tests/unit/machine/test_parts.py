"""Which GPUs, and which slices of them, kernels can be tried on: those without a fault, and in a job its own."""

import pytest

from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Gpu, Machine, MigDevice
from gpuinstall.machine.container import JOBS
from gpuinstall.machine.nvidia.prober import NvidiaProber

SLICES = (MigDevice("MIG-1"), MigDevice("MIG-2"))
WHOLE = Gpu(0, uuid="GPU-aaaa")
SLICED = Gpu(1, uuid="GPU-bbbb", mig=True, mig_devices=SLICES)
EVERY = ["GPU-aaaa", "MIG-1", "MIG-2"]


def machine(*gpus):
    return Machine("linux", "x86_64", gpus=gpus or (SLICED, WHOLE))


def usable(machine, **environ):
    parts = NvidiaProber().parts(machine, environ)
    return [part.name for part in parts if part.withheld is None]


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ("0", ["GPU-aaaa"]),
        ("1", ["MIG-1", "MIG-2"]),
        (" 1 , 0", EVERY),
        ("MIG-2", ["MIG-2"]),
        ("GPU-bb", ["MIG-1", "MIG-2"]),
        ("GPU-aaaa,MIG-2", ["GPU-aaaa", "MIG-2"]),
        # An ordinal is no beginning of another, and the list ends with what can name no card.
        ("11", []),
        ("", []),
        ("-1,1", []),
        ("NoDevFiles,1", []),
        (",1", []),
    ],
)
def test_a_job_has_the_cards_and_slices_of_its_list(given, parts):
    assert usable(machine(), SLURM_JOB_ID="42", CUDA_VISIBLE_DEVICES=given) == parts


@pytest.mark.parametrize("scheduler", JOBS)
def test_only_a_schedulers_job_narrows_its_cards(scheduler):
    assert usable(machine(), CUDA_VISIBLE_DEVICES="1", **{scheduler: "42"}) != EVERY
    assert usable(machine(), CUDA_VISIBLE_DEVICES="1", **{scheduler: ""}) == EVERY
    assert usable(machine(), **{scheduler: "42"}) == EVERY


def test_cuda_counts_the_cards_from_0_whatever_nvml_calls_them():
    other = Gpu(2, pci_id="1af4:1050")
    gpus = machine(other, Gpu(3), Gpu(5, uuid="GPU-ffff"))
    assert usable(gpus) == ["0", "GPU-ffff"]
    assert usable(gpus, SLURM_JOB_ID="42", CUDA_VISIBLE_DEVICES="1") == ["GPU-ffff"]
    assert usable(gpus, SLURM_JOB_ID="42", CUDA_VISIBLE_DEVICES="3") == []


def test_a_fault_of_a_gpu_is_said_before_what_its_job_has():
    lost = Finding("gpu-lost", "GPU 0 is lost", gpus=(0,))
    slow = Finding("slow", "slow", blocking=False, gpus=(1,))
    parts = NvidiaProber().parts(
        machine().with_problems([lost, slow]),
        {"SLURM_JOB_ID": "42", "CUDA_VISIBLE_DEVICES": "MIG-1"},
    )
    assert [part.withheld for part in parts] == [
        "GPU 0 is lost",
        None,
        "not assigned to this job: CUDA_VISIBLE_DEVICES=MIG-1",
    ]


def test_nothing_is_tried_on_a_machine_that_has_a_fault_as_a_whole():
    broken = machine().with_problems([Finding("no-driver", "no driver")])
    assert NvidiaProber().usable_parts(broken) == []
