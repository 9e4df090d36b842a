"""``gpuinstall verify`` as a person and a program meet it: the lab's driver, the small torch, the real command line."""

import json

import pytest

from tests.lab.driver import FakeDriver, FakeGpu, uuid_of
from tests.lab.environments import small_torch
from tests.lab.forked import gpuinstall

NO_IMAGE = "CUDA error: no kernel image is available for execution on the device"


@pytest.fixture
def command(play, tmp_path, monkeypatch):
    play(FakeDriver((FakeGpu(), FakeGpu()), driver="535.183.01", cuda=12020))
    small_torch(tmp_path / ".venv")
    monkeypatch.setenv("LAB_VERDICT", str(tmp_path / "verdict.json"))

    def start(*words, verdict=None):
        (tmp_path / "verdict.json").write_text(json.dumps(verdict or {}))
        return gpuinstall("verify", *words, cwd=tmp_path)

    return start


def test_two_gpus_that_pass_are_two_lines(command):
    done = command()
    assert done.ok, done.err
    lines = done.out.splitlines()
    assert lines[0].startswith("Environment torch 2.14.1+cu126 · Python 3.")
    assert [line.split(",")[0] for line in lines[1:]] == [
        "GPU 0       NVIDIA GeForce RTX 4090: passed",
        "GPU 1       NVIDIA GeForce RTX 4090: passed",
    ]


def test_a_gpu_that_fails_is_named_with_cause_and_fix(command):
    failing = {uuid_of(1): {"failed": {"elementwise": NO_IMAGE, "linear": NO_IMAGE}}}
    done = command(verdict=failing)
    assert done.status == 5
    assert "GPU 0       NVIDIA GeForce RTX 4090: passed" in done.out
    assert f"error: elementwise, linear: {NO_IMAGE}   [F37]\n  why   " in done.out
    assert "  do    gpuinstall install" in done.out


def test_the_document_says_the_same(command):
    done = command("--json", verdict={uuid_of(1): {"failed": {"linear": NO_IMAGE}}})
    document = json.loads(done.out)
    assert (document["command"], document["status"], document["exit_code"], done.status) == (
        "verify",
        "error",
        5,
        5,
    )
    assert [device["status"] for device in document["data"]["devices"]] == ["passed", "failed"]
    assert document["errors"][0]["code"] == "kernel-failed"
    assert document["errors"][0]["message"] == f"GPU 1: linear: {NO_IMAGE}"


def test_a_kernel_that_fails_on_a_machine_that_install_refuses_fails_by_the_machine(command, play):
    play(
        FakeDriver(
            (FakeGpu("NVIDIA GeForce RTX 3090", cc="8.6", pci="10de:2204"),),
            driver="450.80.02",
            cuda=11000,
        )
    )
    done = command(
        "--json", verdict={"*": {"failed": {"linear": "CUDA driver version is insufficient"}}}
    )
    document = json.loads(done.out)
    assert (done.status, document["errors"][0]["code"]) == (8, "driver-older-than-gpu")


def test_a_gpu_that_could_not_be_tried_is_a_warning(command):
    done = command(verdict={uuid_of(0): {"unproven": "CUDA error: out of memory"}})
    assert done.status == 0
    assert "GPU 0       NVIDIA GeForce RTX 4090: unproven: CUDA error: out of memory" in done.out
    assert "warning: unproven: GPU 0; run gpuinstall verify when they are available" in done.err


def test_a_node_that_must_have_a_gpu_fails_where_kernels_ran_on_none(command):
    assert command("--require-gpu").ok
    busy = {"unproven": "CUDA error: out of memory"}
    assert command("--require-gpu", verdict={uuid_of(0): busy}).ok
    done = command("--require-gpu", "--json", verdict={uuid_of(0): busy, uuid_of(1): busy})
    document = json.loads(done.out)
    assert (done.status, document["errors"][0]["code"]) == (5, "no-gpu-proven")
    assert [device["status"] for device in document["data"]["devices"]] == ["unproven", "unproven"]


def test_a_driver_that_lets_no_gpu_work_is_the_machines_fault(command, play):
    play(FakeDriver((FakeGpu(),), nvml_init=18, cu_init=803))
    document = json.loads(command("--json").out)
    (device,) = document["data"]["devices"]
    assert document["exit_code"] == 8
    assert (device["status"], device["checks"][0]["name"], device["checks"][0]["cause"]) == (
        "failed",
        "machine",
        "F03",
    )
    assert document["errors"][0]["code"] == "driver-library-mismatch"
    assert "  do    sudo reboot" in command().out


def test_the_deep_checks_ask_all_gpus_together(command):
    done = command("--deep", "--json")
    assert done.ok, done.err
    checks = [check["name"] for check in json.loads(done.out)["data"]["devices"][1]["checks"]]
    assert {
        "attention-flash",
        "matmul-fp8",
        "all-reduce",
        "peer-to-peer",
    } <= set(checks)


def test_an_environment_whose_python_was_removed_says_so(command, tmp_path):
    python = tmp_path / ".venv" / "bin" / "python"
    python.unlink()
    done = command()
    assert done.status == 2
    assert done.err.splitlines()[:2] == [
        f"error: {python} cannot be run as a Python interpreter",
        "  why   No such file or directory",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--venv", "nowhere"], "there is no environment at nowhere"),
        (["--python", "no-such-python"], "no such interpreter: no-such-python"),
    ],
)
def test_wrong_usage_is_one_clear_line(command, words, message):
    done = command(*words)
    assert done.status == 2
    assert done.err.splitlines()[0] == f"error: {message}"
