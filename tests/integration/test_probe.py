"""The probe against the compiled fakes, loaded by the real bindings through the real loader."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from time import monotonic, sleep

import pytest

from gpuinstall.base import process
from gpuinstall.base.machine import Driver, Gpu, Machine, MigDevice
from gpuinstall.base.node_records import NodeFailure, read_report
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.versions import ComputeCapability, CudaVersion, DriverVersion
from gpuinstall.machine.probe import preflight, read_machine
from tests.lab.driver import (
    A100,
    H200,
    FakeDriver,
    FakeGpu,
    uuid_of,
)
from tests.lab.listener import Listener
from tests.lab.pace import within

RTX_4090 = FakeGpu()


@pytest.fixture(autouse=True)
def _no_notes_about_this_machine(monkeypatch):
    """The fake driver is under test, not the disk or the variables of the machine that runs the tests."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def probe_command(environment, *words):
    command = [sys.executable, "-m", "gpuinstall", "probe", "--json", *words]
    done = process.run(command, env=environment)
    return done.status, json.loads(done.out)


def test_an_nvml_that_hangs_is_ended_and_reported(play, monkeypatch):
    monkeypatch.setattr("gpuinstall.machine.source.DRIVER_SECONDS", 1.0)
    monkeypatch.setattr("gpuinstall.machine.children.NOTICE_AFTER", 0.3)
    play(FakeDriver((RTX_4090, A100), more=(("nvml_hang_at", 1),)))
    listener = Listener()
    start = monotonic()
    machine = read_machine(listener)
    assert monotonic() - start < 60
    assert "waiting for NVML and libcuda, up to 1 s" in listener.waits
    assert machine.problems[0].code == "driver-hangs"
    assert machine.problems[0].message == "NVML does not respond when asked about GPU 1"
    assert machine.gpus[0].name == RTX_4090.name


def test_a_slow_start_without_persistence_is_waited_for(play, monkeypatch):
    monkeypatch.setattr("gpuinstall.machine.children.NOTICE_AFTER", 0.3)
    play(FakeDriver((RTX_4090,), nvml_hang_s=1))
    listener = Listener()
    assert read_machine(listener).problems == ()
    assert "waiting for NVML and libcuda, up to 60 s" in listener.waits


def test_an_empty_driver_version_is_unknown(play):
    play(FakeDriver((RTX_4090,), driver=""))

    driver = read_machine(Reporter()).driver

    assert driver
    assert driver.version is None


@pytest.mark.parametrize(
    "driver", [FakeDriver((RTX_4090,)), FakeDriver((RTX_4090,), cu_init=803)]
)
def test_a_record_is_written_whatever_the_outcome(play, tmp_path, driver):
    environment = play(driver) | {"GPUINSTALL_NODE": "n1"}
    status, document = probe_command(environment, "--record", str(tmp_path / "records"))

    record = json.loads((tmp_path / "records" / "n1.probe.json").read_text("utf-8"))
    assert record["document"] == document
    assert record["document"]["exit_code"] == status
    assert record["machine"] == document["data"]


def test_a_command_that_is_killed_has_left_a_record(play, tmp_path):
    environment = play(FakeDriver((RTX_4090,), nvml_hang_s=60)) | {
        "GPUINSTALL_NODE": "n1"
    }
    command = [sys.executable, "-m", "gpuinstall", "probe", "--record", str(tmp_path)]
    with subprocess.Popen(command, env=environment) as probing:
        while not (tmp_path / "n1.probe.json").exists() and probing.poll() is None:
            sleep(0.01)
        probing.kill()

    assert read_report(tmp_path).failed == (
        NodeFailure("n1", "probe", "it still runs, or was killed"),
    )


@pytest.mark.skipif(
    shutil.which("unshare") is None, reason="needs unshare to put every privilege down"
)
def test_nothing_needs_a_privilege_and_nothing_is_changed(play, tmp_path):
    folder = tmp_path / "home"
    folder.mkdir()
    environment = {
        **play(FakeDriver((RTX_4090,))),
        "HOME": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    for words in (("probe", "--json"), ("doctor", "--json")):
        command = ["unshare", "--user", sys.executable, "-m", "gpuinstall", *words]
        done = process.run(command, cwd=folder, env=environment)
        if done.err.startswith("unshare: "):
            pytest.skip(
                "this machine allows no user namespace to put every privilege down in"
            )
        assert done.ok, done.err
        assert json.loads(done.out)["status"] == "success"
    assert list(folder.iterdir()) == []


def test_an_output_without_unicode_is_still_written(play):
    environment = {
        **play(FakeDriver((RTX_4090, RTX_4090), cu_init=802)),
        "PYTHONIOENCODING": "ascii",
    }
    command = [sys.executable, "-m", "gpuinstall", "probe"]
    done = process.run(command, env=environment)
    assert (done.status, done.err) == (8, "")
    assert done.out.startswith("Machine     2 ? NVIDIA GeForce RTX 4090")


NOT_SUPPORTED, NO_PERMISSION, INSUFFICIENT_SIZE = 3, 4, 7
FUNCTION_NOT_FOUND, GPU_IS_LOST, RESET_REQUIRED, UNKNOWN = 13, 15, 16, 999
LOST = "sudo dmesg | grep -i -e nvrm -e xid   # 79: power and seating of the card; 119 or 120: its firmware"
NODES = "sudo nvidia-modprobe -c 0 -u"
RESET = "sudo nvidia-smi -i {} --gpu-reset   # with every program on it ended"
QUESTIONS = ("name", "uuid", "pci", "memory", "capability", "mode", "mig_mode")
NAME = {
    NO_PERMISSION: ("gpu-not-permitted", NODES),
    GPU_IS_LOST: ("gpu-lost", LOST),
    RESET_REQUIRED: ("gpu-unreachable", RESET),
    UNKNOWN: ("gpu-unreachable", LOST),
}
OTHERS = {
    GPU_IS_LOST: ("gpu-lost", LOST),
    RESET_REQUIRED: ("gpu-unreachable", RESET),
}
ANSWERS = (
    NOT_SUPPORTED,
    NO_PERMISSION,
    INSUFFICIENT_SIZE,
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    RESET_REQUIRED,
    UNKNOWN,
)
"""What NVML may answer to a question about one card; all but these are of the whole library."""


def test_one_refused_fact_condemns_a_card_only_if_the_card_itself_is_gone(play):
    states = [(question, answer) for question in QUESTIONS for answer in ANSWERS]
    cards = [
        replace(RTX_4090, more=((f"nvml_{question}", answer),))
        for question, answer in states
    ]
    play(FakeDriver(tuple(cards), driver="615.71.09", cuda=13040))

    machine = read_machine()

    expected = {}
    for state in states:
        question, answer = state
        known = NAME if question == "name" else OTHERS
        if answer in known:
            code, fix = known[answer]
            expected[state] = (code, fix.format(states.index(state)))
    found = {}
    for problem in machine.problems:
        for index in problem.gpus:
            found[states[index]] = (problem.code, (problem.fix or "").splitlines()[0])
    assert len(machine.gpus) == 49
    assert found == expected
    for gpu in machine.gpus:
        if gpu.index not in machine.faulty:
            facts = (gpu.uuid, str(gpu.compute_capability), gpu.memory_mib)
            assert facts == (uuid_of(gpu.index), "8.9", 24564)


@pytest.mark.parametrize(
    ("facts", "fix"),
    [
        ({"fabric": 3}, "nvidia-smi conf-compute -f"),
    ],
)
def test_what_nvml_knows_of_802_is_asked(play, facts, fix):
    more = tuple(facts.items())
    play(FakeDriver((replace(H200, more=more),), cu_init=802, more=more))
    (problem,) = read_machine().problems
    assert fix in (problem.fix or "")


def test_a_driver_that_has_no_room_for_its_name_is_still_a_driver(play):
    play(FakeDriver((RTX_4090,), more=(("driver_bytes", 4096),)))
    assert read_machine().problems == ()


def test_an_older_binding_in_the_same_environment_changes_nothing(
    play, tmp_path, monkeypatch
):
    (tmp_path / "pynvml").mkdir()
    (tmp_path / "pynvml" / "__init__.py").write_text("raise OSError", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    play(FakeDriver((RTX_4090,)))
    machine = read_machine()
    assert (machine.problems, machine.gpus[0].found_via) == ((), "nvml")


ALL = tuple(range(8))


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
                MigDevice(part.uuid, part.profile, part.memory_mib)
                for part in gpu.slices
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
    return preflight(machine(driver), Reporter())


def one(result):
    """The only problem: its code, its entry in the failure catalogue, whether it blocks, its GPUs."""
    (problem,) = result.problems
    return problem.code, problem.id, problem.blocking, problem.gpus


def test_a_card_that_hangs_is_ended_and_reported_and_the_others_are_proven(
    play, monkeypatch
):
    monkeypatch.setattr("gpuinstall.machine.nvidia.preflight.DRIVER_SECONDS", 2.0)
    with within(5):
        result = run(play, FakeDriver((H200, replace(H200, cuda_hang_s=60))))
    assert one(result) == ("driver-hangs", "F08", True, (1,))
    assert result.with_outcome("proven") == (0,)


def test_after_three_seconds_it_says_once_what_it_waits_for(play, monkeypatch):
    monkeypatch.setattr("gpuinstall.machine.nvidia.preflight.DRIVER_SECONDS", 3.5)
    driver, reporter = FakeDriver((H200, H200), cu_hang_s=60), Listener()
    play(driver)
    result = preflight(machine(driver), reporter)
    assert one(result) == ("driver-hangs", "F08", True, ())
    assert len(reporter.waits) == 1


def test_a_jetson_is_proven_though_nvml_names_it_otherwise(play):
    bare = "54d0709b-558d-5a59-8e3a-0123456789ab"
    nvml = (("nvml_pci", 3), ("nvml_memory", 3))
    play(
        FakeDriver(
            (FakeGpu("NVIDIA Thor", bare, cc="11.0", memory_mib=125772, more=nvml),)
        )
    )

    thor = read_machine()

    assert [(gpu.uuid, str(gpu.compute_capability)) for gpu in thor.gpus] == [
        (None, "11.0")
    ]
    assert preflight(thor, Reporter()).with_outcome("proven") == (0,)


@pytest.mark.parametrize("start_ms", [300])
def test_cards_that_start_for_the_first_process_are_proven(play, start_ms):
    driver = FakeDriver((H200,) * 8, more=(("start_ms", start_ms),))
    assert run(play, driver).with_outcome("proven") == ALL
