"""The preflight against the fake libcuda, which the child process loads through the real loader."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuinstall.base.machine import Driver, Environment, Gpu, Machine, MigDevice
from gpuinstall.base.reporter import SilentReporter
from gpuinstall.base.versions import ComputeCapability, CudaVersion, DriverVersion
from gpuinstall.machine.probe import preflight, read_machine
from gpuinstall.machine.prober import Preflight
from tests.lab.cases import mostly_heavy
from tests.lab.driver import FakeDriver, FakeGpu, FakeSlice, eight, uuid_of
from tests.lab.fixtures import Play
from tests.lab.pace import slowness, within

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

    def wait(self, text: str):
        self.waited.append(text)


def machine(driver: FakeDriver) -> Machine:
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
        DriverVersion.parse(driver.driver), CudaVersion.from_driver_api(driver.cuda), "nvml"
    )
    return Machine(os="linux", arch="x86_64", driver=found, gpus=gpus)


def run(play: Play, driver: FakeDriver) -> Preflight:
    play(driver)
    return preflight(machine(driver), SilentReporter())


def one(result: Preflight) -> tuple[str, str | None, bool, tuple[int, ...]]:
    """The only problem: its code, its entry in the failure catalogue, whether it blocks, its GPUs."""
    (problem,) = result.problems
    return problem.code, problem.id, problem.blocking, problem.gpus


def test_a_healthy_gpu_is_proven(play):
    result = run(play, FakeDriver((FakeGpu(),)))
    assert result.with_outcome("proven") == (0,)
    assert result.problems == ()


def test_eight_healthy_gpus_are_proven_in_under_two_seconds(play):
    results = [run(play, FakeDriver(eight())) for _ in range(3)]
    assert [result.with_outcome("proven") for result in results] == [ALL] * 3
    assert min(result.seconds for result in results) < 2 * slowness()


def test_gpus_of_different_generations_are_all_proven(play):
    cards = (
        FakeGpu("Tesla P40", cc="6.1"),
        FakeGpu(),
        FakeGpu("NVIDIA GeForce RTX 5090", cc="12.0"),
    )
    assert run(play, FakeDriver(cards)).with_outcome("proven") == (0, 1, 2)


def test_a_machine_without_gpus_needs_no_driver(play):
    assert run(play, FakeDriver(cu_missing=True)).cards == ()


def test_every_mig_slice_is_proven(play):
    driver = FakeDriver((replace(H200, mig=True, slices=SLICES), H200))
    assert run(play, driver).with_outcome("proven") == (0, 1)


def test_a_card_in_mig_mode_without_instances_is_left_out(play):
    result = run(play, FakeDriver((replace(H200, mig=True), H200)))
    assert one(result) == ("mig-without-instances", "F17", True, (0,))
    assert result.with_outcome("proven") == (1,)


INIT = {
    3: ("cuda-not-initialized", "F14"),
    34: ("cuda-stub-library", "F01"),
    100: ("cuda-no-device", "F15"),
    802: ("fabric-manager-not-running", "F10"),
    803: ("driver-library-mismatch", "F03"),
    804: ("forward-compatibility-unsupported", "F11"),
    999: ("cuda-unknown-error", "F12"),
    4711: ("cuda-error", None),
}


@pytest.mark.parametrize("status", mostly_heavy(INIT, {803, 4711}))
def test_a_driver_that_does_not_start_is_a_problem_of_the_machine(play, status):
    result = run(play, FakeDriver(eight(), cu_init=status))
    assert one(result) == (*INIT[status], True, ())
    assert result.with_outcome("failed") == ALL
    assert result.problems[0].fix
    assert f"CUDA error {status}" in (result.problems[0].evidence or "")


OPENING = {
    101: ("gpu-hidden-from-cuda", "F15"),
    214: ("gpu-memory-faulty", "F09"),
    220: ("gpu-nvlink-faulty", "F08"),
    801: ("vgpu-limited", "F18"),
    805: ("mps-unreachable", "F16"),
    999: ("cuda-unknown-error", "F12"),
}


@pytest.mark.parametrize("status", mostly_heavy(OPENING, {214}))
def test_a_card_that_does_not_open_is_left_out_alone(play, status):
    result = run(play, FakeDriver(eight(wrong={5: replace(H200, cuda_error=status)})))
    assert one(result) == (*OPENING[status], True, (5,))
    assert len(result.with_outcome("proven")) == 7


def test_a_gpu_that_the_driver_lists_and_cuda_does_not_is_left_out(play):
    result = run(play, FakeDriver(eight(wrong={2: replace(H200, hidden_from_cuda=True)})))
    assert one(result) == ("gpu-hidden-from-cuda", "F15", True, (2,))
    assert "GPU 2" in result.problems[0].message


def test_cards_with_the_same_fault_share_a_problem_and_others_have_their_own(play):
    faulty, lost = replace(H200, cuda_error=214), replace(H200, launch_error=719)
    result = run(play, FakeDriver(eight(wrong={1: faulty, 3: faulty, 6: lost})))
    assert {problem.gpus: problem.id for problem in result.problems} == {(1, 3): "F09", (6,): "F08"}
    assert result.with_outcome("failed") == (1, 3, 6)


@pytest.mark.parametrize("status", [221, 222, 223])
def test_without_a_ptx_compiler_memory_is_set_instead_and_nothing_blocks(play, status):
    result = run(play, FakeDriver((replace(H200, ptx_error=status),)))
    assert one(result) == ("kernel-not-proven", "F67", False, (0,))
    assert result.with_outcome("memory-only") == (0,)


def test_without_a_ptx_compiler_memory_that_does_not_hold_fails(play):
    result = run(play, FakeDriver((replace(H200, ptx_error=221, wrong_result=True), H200)))
    assert one(result) == ("gpu-computes-wrong", "F08", True, (0,))


def test_without_a_ptx_compiler_a_full_card_is_busy(play):
    result = run(play, FakeDriver((replace(H200, ptx_error=221, free_mib=0),)))
    assert one(result) == ("gpu-memory-full", "F16", False, (0,))


@pytest.mark.parametrize(
    ("card", "code"),
    [
        (replace(H200, free_mib=0), "gpu-memory-full"),
        (replace(H200, cuda_error=2), "gpu-memory-full"),
        (replace(H200, cuda_error=46), "gpu-busy"),
    ],
)
def test_a_busy_card_is_no_fault_of_the_machine(play, card, code):
    result = run(play, FakeDriver(eight(wrong={7: card})))
    assert one(result) == (code, "F16", False, (7,))
    assert result.with_outcome("unproven") == (7,)


def test_memory_too_full_to_compile_is_set_and_read_back_instead(play):
    result = run(play, FakeDriver((replace(H200, ptx_error=2),)))
    assert one(result) == ("gpu-memory-full", "F16", False, (0,))
    assert result.with_outcome("memory-only") == (0,)


def test_a_wrong_result_fails_the_card(play):
    result = run(play, FakeDriver((H200, replace(H200, wrong_result=True))))
    assert one(result) == ("gpu-computes-wrong", "F08", True, (1,))


def test_a_kernel_that_dies_fails_the_card(play):
    result = run(play, FakeDriver((replace(H200, launch_error=700), H200)))
    assert one(result) == ("gpu-kernel-failed", "F08", True, (0,))


def test_a_crash_inside_the_library_is_reported_and_the_others_are_proven(play):
    result = run(play, FakeDriver(eight(wrong={4: replace(H200, cuda_crash=True)})))
    assert one(result) == ("driver-crashes", None, True, (4,))
    assert "SIGSEGV" in (result.problems[0].evidence or "")
    assert len(result.with_outcome("proven")) == 7


def test_a_library_that_crashes_for_every_card_is_a_problem_of_the_machine(play):
    assert one(run(play, FakeDriver((H200, H200), cu_crash=True))) == (
        "driver-crashes",
        None,
        True,
        (),
    )


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


def test_in_a_schedulers_job_only_the_cards_given_are_touched(play, monkeypatch):
    crashing = replace(H200, cuda_crash=True)
    play(FakeDriver(eight(wrong=dict.fromkeys((0, 1, 2, 4, 5, 6, 7), crashing))))
    monkeypatch.setenv("SLURM_JOB_ID", "42")
    for given in ("3", uuid_of(3), uuid_of(3)[:12]):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
        assert preflight(machine(FakeDriver(eight())), SilentReporter()).with_outcome("proven") == (
            3,
        )


def test_outside_a_job_cuda_visible_devices_hides_nothing(play, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert run(play, FakeDriver((H200, H200))).with_outcome("proven") == (0, 1)


def test_a_gpu_that_the_probe_found_unusable_is_not_touched(play):
    driver = FakeDriver((H200, replace(H200, cuda_crash=True)))
    play(driver)
    broken = run(play, driver).problems
    assert preflight(machine(driver).with_problems(broken), SilentReporter()).with_outcome(
        "proven"
    ) == (0,)


def test_a_machine_that_is_refused_is_not_touched(play):
    driver = FakeDriver((H200,), cu_init=802)
    refused = machine(driver).with_problems(run(play, driver).problems)
    assert preflight(refused, SilentReporter()).cards == ()


def test_a_mismatch_in_a_container_is_not_answered_with_a_reboot(play):
    driver = FakeDriver((H200,), cu_init=803)
    play(driver)
    contained = replace(machine(driver), environment=Environment(container="docker"))
    (problem,) = preflight(contained, SilentReporter()).problems
    assert problem.id == "F03"
    assert "reboot" not in problem.needs
    assert (problem.fix or "").startswith("Start the container again")


def test_a_jetson_is_proven_though_nvml_names_it_otherwise(play):
    bare = "54d0709b-558d-5a59-8e3a-0123456789ab"
    nvml = (("nvml_pci", 3), ("nvml_memory", 3))
    play(FakeDriver((FakeGpu("NVIDIA Thor", bare, cc="11.0", memory_mib=125772, more=nvml),)))

    thor = read_machine()

    assert [(gpu.uuid, str(gpu.compute_capability)) for gpu in thor.gpus] == [(None, "11.0")]
    assert preflight(thor, SilentReporter()).with_outcome("proven") == (0,)


def test_one_process_at_a_time_may_hold_an_exclusive_card(play):
    exclusive = replace(H200, more=(("compute_mode", 3),))
    result = run(play, FakeDriver((exclusive, exclusive)))
    assert result.with_outcome("proven") == (0, 1)


def test_a_card_whose_memory_a_context_does_not_fit_is_busy(play):
    full = replace(H200, free_mib=200, more=(("context_mib", 500),))
    assert one(run(play, FakeDriver((full,)))) == ("gpu-memory-full", "F16", False, (0,))


@pytest.mark.parametrize("start_ms", [300])
def test_cards_that_start_for_the_first_process_are_proven(play, start_ms):
    driver = FakeDriver(eight(), more=(("start_ms", start_ms),))
    assert run(play, driver).with_outcome("proven") == ALL
