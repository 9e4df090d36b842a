"""The preflight against the fake libcuda, which the child process loads through the real loader."""

from dataclasses import replace

import pytest

from gpuinstall.base.machine import Driver, Gpu, Machine, MigDevice
from gpuinstall.base.reporter import SilentReporter
from gpuinstall.base.versions import ComputeCapability, CudaVersion, DriverVersion
from gpuinstall.machine.probe import preflight, read_machine
from tests.lab.driver import FakeDriver, FakeGpu, FakeSlice, eight, uuid_of
from tests.lab.pace import within

ALL = tuple(range(8))
H200 = FakeGpu("NVIDIA H200", cc="9.0", memory_mib=143771, pci="10de:2335")
SLICES = (
    FakeSlice("MIG-11111111-0000-0000-0000-000000000001"),
    FakeSlice("MIG-11111111-0000-0000-0000-000000000002"),
)


class Waits(SilentReporter):
    """Remembers what was waited for."""

    def __init__(self):
        self.waited: list[str] = []

    def wait(self, text):
        self.waited.append(text)


def machine(driver):
    """What a probe makes of the fake driver."""
    gpus = tuple(
        Gpu(
            index,
            name=gpu.name,
            uuid=gpu.uuid or uuid_of(index),
            compute_capability=ComputeCapability.parse(gpu.cc),
            memory_mib=gpu.memory_mib,
            mig=gpu.mig,
            mig_devices=tuple(
                MigDevice(part.uuid, part.profile, part.memory_mib) for part in gpu.slices
            ),
        )
        for index, gpu in enumerate(driver.gpus)
    )
    found = Driver(
        DriverVersion.parse(driver.driver),
        CudaVersion(driver.cuda // 1000, driver.cuda % 1000 // 10),
        "nvml",
    )
    return Machine(os="linux", arch="x86_64", driver=found, gpus=gpus)


def run(play, driver):
    play(driver)
    return preflight(machine(driver), SilentReporter())


def one(result):
    """The only problem: its code, its entry in the failure catalogue, whether it blocks, its GPUs."""
    (problem,) = result.problems
    return problem.code, problem.id, problem.blocking, problem.gpus


def test_a_card_that_hangs_is_ended_and_reported_and_the_others_are_proven(play, monkeypatch):
    monkeypatch.setattr("gpuinstall.machine.nvidia.preflight.DRIVER_SECONDS", 2.0)
    with within(5):
        result = run(play, FakeDriver((H200, replace(H200, cuda_hang_s=60))))
    assert one(result) == ("driver-hangs", "F08", True, (1,))
    assert result.with_outcome("proven") == (0,)


def test_after_three_seconds_it_says_once_what_it_waits_for(play, monkeypatch):
    monkeypatch.setattr("gpuinstall.machine.nvidia.preflight.DRIVER_SECONDS", 3.5)
    driver, reporter = FakeDriver((H200, H200), cu_hang_s=60), Waits()
    play(driver)
    result = preflight(machine(driver), reporter)
    assert one(result) == ("driver-hangs", "F08", True, ())
    assert len(reporter.waited) == 1


def test_a_jetson_is_proven_though_nvml_names_it_otherwise(play):
    bare = "54d0709b-558d-5a59-8e3a-0123456789ab"
    nvml = (("nvml_pci", 3), ("nvml_memory", 3))
    play(FakeDriver((FakeGpu("NVIDIA Thor", bare, cc="11.0", memory_mib=125772, more=nvml),)))

    thor = read_machine()

    assert [(gpu.uuid, str(gpu.compute_capability)) for gpu in thor.gpus] == [(None, "11.0")]
    assert preflight(thor, SilentReporter()).with_outcome("proven") == (0,)


@pytest.mark.parametrize("start_ms", [300])
def test_cards_that_start_for_the_first_process_are_proven(play, start_ms):
    driver = FakeDriver(eight(), more=(("start_ms", start_ms),))
    assert run(play, driver).with_outcome("proven") == ALL
