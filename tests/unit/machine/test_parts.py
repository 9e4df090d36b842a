"""GPUs and slices to run kernels on: without a fault, and assigned."""

import os
from unittest.mock import patch

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
    with patch.dict(os.environ, environ):
        return [part.name for part in NvidiaProber().find_usable_parts(machine)]


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ("0", ["GPU-aaaa"]),
        ("1", ["MIG-1", "MIG-2"]),
        (" 1 , 0", EVERY),
        ("MIG-2", ["MIG-2"]),
        ("GPU-bb", ["MIG-1", "MIG-2"]),
        ("GPU-aaaa,MIG-2", ["GPU-aaaa", "MIG-2"]),
        # Ordinals cannot be abbreviated, and an invalid entry ends the list.
        ("11", []),
        ("", []),
        ("-1,1", []),
        ("NoDevFiles,1", []),
        (",1", []),
    ],
)
def test_job_uses_only_assigned_gpus_and_mig_slices(given, parts):
    assert usable(machine(), SLURM_JOB_ID="42", CUDA_VISIBLE_DEVICES=given) == parts


@pytest.mark.parametrize("scheduler", JOBS)
def test_cuda_visible_devices_is_used_only_in_jobs(scheduler):
    assert usable(machine(), CUDA_VISIBLE_DEVICES="1", **{scheduler: "42"}) != EVERY
    assert usable(machine(), CUDA_VISIBLE_DEVICES="1", **{scheduler: ""}) == EVERY
    assert usable(machine(), **{scheduler: "42"}) == EVERY


def test_cuda_visible_devices_indexes_start_at_zero():
    other = Gpu(2, pci_id="1af4:1050")
    gpus = machine(other, Gpu(3), Gpu(5, uuid="GPU-ffff"))
    assert usable(gpus) == ["0", "GPU-ffff"]
    assert usable(gpus, SLURM_JOB_ID="42", CUDA_VISIBLE_DEVICES="1") == ["GPU-ffff"]
    assert usable(gpus, SLURM_JOB_ID="42", CUDA_VISIBLE_DEVICES="3") == []


def test_gpu_fault_takes_precedence_over_job_assignment(monkeypatch):
    lost = Finding("gpu-lost", "GPU 0 is lost", gpus=(0,))
    slow = Finding("slow", "slow", blocking=False, gpus=(1,))
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1")
    parts = NvidiaProber().list_parts(machine().add_problems([lost, slow]))
    assert [part.withheld for part in parts] == [
        "GPU 0 is lost",
        None,
        "not assigned to this job: CUDA_VISIBLE_DEVICES=MIG-1",
    ]


def test_faulty_machine_has_no_usable_gpus():
    broken = machine().add_problems([Finding("no-driver", "no driver")])
    assert NvidiaProber().find_usable_parts(broken) == []
