"""Tests of machine detection with compiled libraries and real bindings."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from time import monotonic, sleep

import pytest

from gpuinstall.base import process
from gpuinstall.base.machine import Driver, Gpu, Machine, MigDevice
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.versions import ComputeCapability, CudaVersion, DriverVersion
from gpuinstall.cli.node_records import NodeFailure, read_report
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
    """Ignore this machine's variables."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def probe_command(environment, *words):
    command = [sys.executable, "-m", "gpuinstall", "probe", "--json", *words]
    done = process.run(command, env=environment)
    return done.status, json.loads(done.out)


def test_hanging_nvml_is_stopped_and_reported(play, monkeypatch):
    monkeypatch.setattr("gpuinstall.machine.source.DRIVER_SECONDS", 1.0)
    monkeypatch.setattr("gpuinstall.machine.children.NOTICE_AFTER", 0.3)
    play(FakeDriver((RTX_4090, A100), more=(("nvml_hang_at", 1),)))
    listener = Listener()
    start = monotonic()
    machine = read_machine(listener)
    assert monotonic() - start < 60
    assert "waiting for the driver, up to 1 s" in listener.waits
    assert machine.problems[0].code == "driver-hangs"
    assert machine.problems[0].message == "NVML does not respond while querying GPU 1"
    assert machine.gpus[0].name == RTX_4090.name


def test_probe_waits_for_slow_driver_start(play, monkeypatch):
    monkeypatch.setattr("gpuinstall.machine.children.NOTICE_AFTER", 0.3)
    play(FakeDriver((RTX_4090,), nvml_hang_s=1))
    listener = Listener()
    assert read_machine(listener).problems == ()
    assert "waiting for the driver, up to 60 s" in listener.waits


def test_empty_driver_version_is_read_as_unknown(play):
    play(FakeDriver((RTX_4090,), driver=""))

    driver = read_machine(Reporter()).driver

    assert driver
    assert driver.version is None


@pytest.mark.parametrize(
    "driver", [FakeDriver((RTX_4090,)), FakeDriver((RTX_4090,), cu_init=803)]
)
def test_probe_record_is_written_for_every_outcome(play, tmp_path, driver):
    environment = play(driver) | {"GPUINSTALL_NODE": "n1"}
    status, document = probe_command(environment, "--record", str(tmp_path / "records"))

    record = json.loads((tmp_path / "records" / "n1.probe.json").read_text("utf-8"))
    assert record["document"] == document
    assert record["document"]["exit_code"] == status
    assert record["machine"] == document["data"]


def test_killed_probe_leaves_a_record(play, tmp_path):
    environment = play(FakeDriver((RTX_4090,), nvml_hang_s=60)) | {
        "GPUINSTALL_NODE": "n1"
    }
    command = [sys.executable, "-m", "gpuinstall", "probe", "--record", str(tmp_path)]
    with subprocess.Popen(command, env=environment) as probing:
        while not (tmp_path / "n1.probe.json").exists() and probing.poll() is None:
            sleep(0.01)
        probing.kill()

    assert read_report(tmp_path, expected=()).failed == (
        NodeFailure("n1", "probe", "it is still running, or was killed"),
    )


@pytest.mark.skipif(
    shutil.which("unshare") is None, reason="requires unshare to drop all privileges"
)
def test_probe_needs_no_privileges(play, tmp_path):
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


def test_ascii_output_is_written(play):
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
LOST = "Power the machine off and on, then check power cables, riser, and temperatures"
NODES = "sudo nvidia-modprobe -c 0 -u"
RESET = "sudo nvidia-smi -i {} --gpu-reset   # after all programs on it have ended"
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
"""NVML errors that concern one GPU instead of the whole library."""


def test_only_lost_gpus_report_failed_nvml_queries(play):
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
        if gpu.index not in machine.blocked_gpus:
            facts = (gpu.uuid, str(gpu.compute_capability), gpu.memory_mib)
            assert facts == (uuid_of(gpu.index), "8.9", 24564)


def test_nvswitch_fabric_state_explains_cuda_error_802(play):
    more = (("fabric", 3),)
    play(FakeDriver((replace(H200, more=more),), cu_init=802, more=more))
    (problem,) = read_machine().problems
    assert "nvidia-smi conf-compute -f" in (problem.fix or "")


def test_long_driver_name_is_accepted(play):
    play(FakeDriver((RTX_4090,), more=(("driver_bytes", 4096),)))
    assert read_machine().problems == ()


def test_older_nvml_binding_is_supported(play, tmp_path, monkeypatch):
    (tmp_path / "pynvml").mkdir()
    (tmp_path / "pynvml" / "__init__.py").write_text("raise OSError", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    play(FakeDriver((RTX_4090,)))
    machine = read_machine()
    assert (machine.problems, machine.gpus[0].found_via) == ((), "nvml")


def machine(driver):
    """Return the machine that is detected with a fake driver."""
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
    """Return the code, entry, and GPUs of the machine's only problem."""
    (problem,) = result.problems
    return problem.code, problem.id, problem.blocking, problem.gpus


def test_hanging_gpu_is_reported_and_others_verified(play, monkeypatch):
    monkeypatch.setattr("gpuinstall.machine.nvidia.preflight.DRIVER_SECONDS", 2.0)
    with within(5):
        result = run(play, FakeDriver((H200, replace(H200, cuda_hang_s=60))))
    assert one(result) == ("driver-hangs", "F08", True, (1,))
    assert result.with_outcome("proven") == (0,)


def test_jetson_with_unprefixed_uuid_is_verified(play):
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
