from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from gpuinstall.catalog import load_catalog
from gpuinstall.cli.main import run_command_line
from gpuinstall.errors import UsageError
from gpuinstall.offers import labels_in, machine_of_labels, machine_of_offer
from gpuinstall.plan import Plan, choose
from gpuinstall.request import Request
from tests.lab.wordings import wordings

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.machine import Machine

NODE = {
    "kubernetes.io/arch": "amd64",
    "kubernetes.io/os": "linux",
    "nvidia.com/gpu.compute.major": "8",
    "nvidia.com/gpu.compute.minor": "0",
    "nvidia.com/gpu.count": "2",
    "nvidia.com/gpu.memory": "81920",
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
    "nvidia.com/cuda.driver-version.major": "535",
    "nvidia.com/cuda.driver-version.minor": "216",
    "nvidia.com/cuda.driver-version.revision": "01",
    "nvidia.com/cuda.runtime-version.major": "12",
    "nvidia.com/cuda.runtime-version.minor": "2",
}


def facts(machine: Machine | None) -> tuple[list[str | None], str | None, str | None, str]:
    assert machine
    driver = machine.driver
    version = str(driver.version) if driver and driver.version else None
    cuda = str(driver.cuda) if driver and driver.cuda else None
    return [gpu.code_name for gpu in machine.gpus], version, cuda, machine.arch


@pytest.mark.parametrize(
    ("offer", "expected"),
    [
        ("runpod:NVIDIA L4, CUDA 12.8", (["sm_89"], None, "12.8", "x86_64")),
        ("runpod:2x NVIDIA A40, CUDA 13.0", (["sm_86"] * 2, None, "13.0", "x86_64")),
        (
            "vast:gpu_name=RTX_4090, driver_version=570.86.15, cuda_max_good=12.8, amd64",
            (["sm_89"], "570.86.15", "12.8", "x86_64"),
        ),
        ("skypilot:A100-80GB:8, driver 550.54.15", (["sm_80"] * 8, "550.54.15", None, "x86_64")),
        (
            "htcondor:Tesla V100-PCIE-32GB, MaxSupportedVersion=12040",
            (["sm_70"], None, "12.4", "x86_64"),
        ),
        ("dstack:GH200, arm, CUDA 12.4", (["sm_90"], None, "12.4", "aarch64")),
        ("runpod:AMD Instinct MI300X OAM", (["gfx942"], None, None, "x86_64")),
    ],
)
def test_an_offer_is_read(
    offer: str, expected: tuple[list[str | None], str | None, str | None, str]
) -> None:
    assert facts(machine_of_offer(offer)) == expected


@pytest.mark.parametrize(
    "name", ["machine.json", "-", "C:\\machine.json", "runpods.json", "runpod"]
)
def test_a_file_is_no_offer(name: str) -> None:
    assert machine_of_offer(name) is None


@pytest.mark.parametrize(
    ("offer", "code"),
    [
        ("runpod:NVIDIA L4", "driver-missing"),
        ("runpod:CUDA 12.8", "gpu-missing"),
        ("runpod:NVIDIA L4, driver 12.8", "driver-malformed"),
        ("runpod:NVIDIA L4, CUDA 12.8, Mars", "gpu-unknown"),
    ],
)
def test_an_offer_that_says_too_little_is_refused(offer: str, code: str) -> None:
    with pytest.raises(UsageError) as refused:
        machine_of_offer(offer)

    assert refused.value.code == code


def test_the_labels_of_a_node_are_a_machine() -> None:
    machine = machine_of_labels(NODE)

    assert facts(machine) == (["sm_80"] * 2, "535.216.01", "12.2", "x86_64")
    assert machine.gpus[0].memory_mib == 81920
    plan = choose(machine, Request(()), load_catalog())
    assert isinstance(plan, Plan)
    assert plan.choice.build.backend.tag == "cu126"


def test_the_older_labels_are_read_too() -> None:
    older = {name: value for name, value in NODE.items() if "-version" not in name}
    older |= {
        "nvidia.com/cuda.driver.major": "535",
        "nvidia.com/cuda.driver.minor": "216",
        "nvidia.com/cuda.driver.rev": "01",
    }

    assert facts(machine_of_labels(older)) == (["sm_80"] * 2, "535.216.01", None, "x86_64")


def test_a_node_of_amd_is_told_by_its_product() -> None:
    labels = {"kubernetes.io/arch": "amd64", "amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"}

    assert facts(machine_of_labels(labels)) == (["gfx942"], None, None, "x86_64")


@pytest.mark.parametrize("missing", ["gpu.compute.major", "cuda.driver-version.major"])
def test_a_label_that_is_missing_is_named(missing: str) -> None:
    labels = {name: value for name, value in NODE.items() if "runtime" not in name}
    del labels[f"nvidia.com/{missing}"]

    with pytest.raises(UsageError, match=f"the node has no label nvidia.com/{missing}"):
        machine_of_labels(labels)


def test_a_label_that_is_no_number_is_refused() -> None:
    with pytest.raises(UsageError, match="a label of the node is malformed"):
        machine_of_labels({**NODE, "nvidia.com/gpu.compute.major": "eight"})


def test_public_wordings_of_offers_and_nodes_are_read_as_recorded() -> None:
    outcomes = {wording: wording.outcome()[0] for wording in wordings()}

    assert len(outcomes) > 80
    assert [one for one, outcome in outcomes.items() if outcome != one.expected] == []


def test_a_node_is_read_as_kubectl_prints_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "node.json"
    file.write_text(json.dumps({"kind": "Node", "metadata": {"labels": NODE}}), encoding="utf-8")

    run_command_line(["plan", "--no-project", "--json", "--machine", str(file)])

    assert json.loads(capsys.readouterr().out)["data"]["build"]["backend"] == "cu126"


def test_what_has_no_labels_is_no_node() -> None:
    assert labels_in({"schema": "gpuinstall.machine/1"}) is None
    assert labels_in([]) is None


def test_an_offer_is_planned_for(capsys: pytest.CaptureFixture[str]) -> None:
    run_command_line(["plan", "--no-project", "--json", "--machine", "runpod:NVIDIA L4, CUDA 12.8"])

    assert json.loads(capsys.readouterr().out)["data"]["build"]["backend"] == "cu126"
