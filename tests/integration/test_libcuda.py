"""libcuda asked in a child process, which loads the fake one through the real loader."""

import ctypes.util
import os
from dataclasses import replace

import pytest

from gpuinstall.base.versions import ComputeCapability, CudaVersion
from gpuinstall.machine.children import run_children
from gpuinstall.machine.nvidia.libraries import (
    child_environment,
    job_devices,
    libcuda_command,
    parse_libcuda,
)
from tests.lab.driver import FakeDriver, FakeGpu, FakeSlice, eight, uuid_of

H200 = FakeGpu("NVIDIA H200", cc="9.0", memory_mib=143771, pci="10de:2335")
SLICES = (
    FakeSlice("MIG-11111111-0000-0000-0000-000000000001"),
    FakeSlice("MIG-11111111-0000-0000-0000-000000000002"),
)


def ask(*, seconds=20):
    environment = child_environment(os.environ, job_devices(os.environ))
    (finished,) = run_children([(libcuda_command("devices"), environment)], seconds, lambda: None)
    return parse_libcuda(finished)


def test_libcuda_lists_eight_cards_in_pci_order(play):
    play(FakeDriver(eight()))
    facts = ask()
    assert (facts.init, facts.driver_version, facts.fault) == (0, CudaVersion(13, 0), None)
    assert [device.uuid for device in facts.devices] == [uuid_of(index) for index in range(8)]
    assert facts.devices[7].bus_id == "0000:08:00.0"
    assert facts.devices[0].compute_capability == ComputeCapability(9, 0)
    assert facts.devices[0].memory_mib == 143771


def test_libcuda_names_a_mig_slice_by_its_own_uuid(play):
    play(FakeDriver((replace(H200, mig=True, slices=SLICES), H200)))
    (device,) = ask().devices
    assert device.uuid == SLICES[0].uuid


def test_libcuda_gives_its_file_and_version_where_it_does_not_start(play):
    play(FakeDriver((H200,), cu_init=803, cuda=12020))
    facts = ask()
    assert (facts.init, facts.driver_version, facts.devices) == (803, CudaVersion(12, 2), ())
    assert facts.path is not None
    assert facts.path.endswith("/cuda/libcuda.so.1")


def test_libcuda_that_crashes_or_hangs_is_an_answer(play):
    play(FakeDriver((H200,), cu_crash=True))
    assert ask().fault == "crash"
    play(FakeDriver((H200,), cu_hang_s=60))
    assert ask(seconds=0.5).fault == "timeout"


def test_libcuda_in_a_job_shows_only_the_cards_given(play, monkeypatch):
    play(FakeDriver(eight()))
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "6")
    facts = ask()
    assert [device.uuid for device in facts.devices] == [uuid_of(6)]


@pytest.mark.skipif(
    ctypes.util.find_library("cuda") is not None, reason="this machine has a libcuda of its own"
)
def test_a_machine_without_libcuda_says_so_in_the_loaders_words(play):
    play(FakeDriver((H200,), cu_missing=True))
    facts = ask()
    assert (facts.fault, facts.path, facts.init) == ("missing", None, None)
    assert "libcuda.so.1" in (facts.error or "")
