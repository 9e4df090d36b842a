"""A new maker's GPUs are put to the proof by its entry in the registry alone: the runner and real children, no GPU."""

import json
import sys

import pytest
import uv

from gpuinstall.base import process
from gpuinstall.verify.devices import device_targets
from gpuinstall.verify.runner import verify_environment
from tests.lab.environments import packages
from tests.lab.stub_torch import modules
from tests.unit.machine.acme import acme_machine, register_acme


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    register_acme(monkeypatch)


@pytest.fixture
def verify(tmp_path, monkeypatch):
    monkeypatch.setenv("LAB_VERDICT", str(tmp_path / "verdict.json"))
    process.run(
        [
            uv.find_uv_bin(),
            "venv",
            "-q",
            "--no-project",
            "--python",
            sys.executable,
            tmp_path / "env",
        ]
    )

    def run(backend, *gpus, plays=None, deep=False):
        for path, text in modules(f"2.10.0+{backend}", backend, "anvil3").items():
            (packages(tmp_path / "env") / path).parent.mkdir(exist_ok=True)
            (packages(tmp_path / "env") / path).write_text(text)
        (tmp_path / "verdict.json").write_text(json.dumps({"*": plays or {}}))
        return verify_environment(
            tmp_path / "env" / "bin" / "python", acme_machine(*gpus), deep=deep
        )

    return run


def test_its_gpus_run_the_checks_of_every_gpu_with_its_build(verify):
    verdict = verify("acme1", "anvil3", "anvil3", plays={"architecture": "anvil3"}, deep=True)
    assert verdict.status == "passed"
    assert (verdict.environment.backend, verdict.environment.architectures) == (
        "acme1",
        ("anvil3",),
    )
    assert [device.name for device in verdict.devices] == ["Acme Anvil", "Acme Anvil"]
    said = {check.name: check.message for check in verdict.devices[0].checks}
    assert said["architectures"] == "anvil3 runs anvil3"
    assert {"elementwise", "copies", "all-reduce"} <= set(said)
    assert not {"cuda-graph"} & set(said)


def test_a_list_without_code_for_it_explains_kernels_that_failed(verify):
    (device,) = verify(
        "acme1", "anvil1", plays={"architecture": "anvil1", "failed": {"linear": "no"}}
    ).devices
    failed = {check.name: check.message for check in device.checks if check.status == "failed"}
    assert failed == {
        "architectures": "the build has no code for anvil1, only for anvil3",
        "linear": "no",
    }


@pytest.mark.parametrize(("backend", "cause"), [("cpu", "F33"), ("cu126", "F24")])
def test_a_build_for_the_cpu_or_for_another_makers_gpus_leaves_it_idle(verify, backend, cause):
    (device,) = verify(backend, "anvil3").devices
    assert [(check.name, check.id) for check in device.checks] == [("build", cause)]
    assert str(device.checks[0].message).endswith("build of torch: Acme Anvil is not used")


def test_a_child_sees_the_gpu_that_it_tries_by_the_makers_variable():
    targets = device_targets(acme_machine("anvil3", "anvil3"), kind="acme", gpus=None, environ={})
    assert [(target.device, target.environment) for target in targets] == [
        ("acme", {"ACME_VISIBLE": "0"}),
        ("acme", {"ACME_VISIBLE": "1"}),
    ]
