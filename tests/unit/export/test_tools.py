"""What each tool is told, and what it decides of machines by its own rule, against the plan."""

from __future__ import annotations

import json
import re

import pytest
import yaml

from gpuinstall.catalog import load_catalog
from gpuinstall.errors import UsageError
from gpuinstall.export.image_needs import requirement
from gpuinstall.export.needs import machine_needs
from gpuinstall.export.tools import MACHINE_TOOLS, names_of, parse_features, unsaid_needs, words_for
from tests.lab.tool_rules import RULES
from tests.unit.export.judgement import (
    HEALTH,
    PROPERTY_OF,
    judgements,
    locks,
    machines_of_every_kind,
    recorded_machines,
)
from tests.unit.export.locks import cuda_lock, lock, wheel

BY_NAME = {tool.name: tool for tool in MACHINE_TOOLS}
FEATURES = {"a100": "8.0", "p100": "6.0", "b200": "10.0"}


def told(name: str, *targets: str) -> str:
    made = [cuda_lock(target) for target in targets or ("cu126",)]
    (needs,) = machine_needs(made, load_catalog())
    features = FEATURES if name == "slurm" else {}
    return words_for(BY_NAME[name], needs, features)


def said(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("# ")]


def test_every_tool_has_a_model_of_its_rule() -> None:
    assert RULES.keys() == BY_NAME.keys()


@pytest.mark.parametrize("tool", ["runpod", "skypilot", "dstack", "modal", "kubernetes"])
def test_every_name_of_a_gpu_is_known(tool: str) -> None:
    assert all(re.fullmatch(r"\d+\.\d|gfx\w+|xe [\d.]+", code) for code in names_of(tool).values())


def test_runpod_gets_one_type_a_request_and_one_of_two_ways_to_say_cuda() -> None:
    requests = {}
    for line in said(told("runpod")):
        gpu = json.loads(line)["gpu"]
        requests[gpu["id"]] = gpu

    assert requests["NVIDIA L4"] == {"id": "NVIDIA L4", "count": 1, "minCudaVersion": "12.0"}
    # A list is exact, and the only way to say an end.
    assert requests["Tesla V100-SXM2-32GB"].keys() == {"id", "count", "allowedCudaVersions"}
    assert requests["Tesla V100-SXM2-32GB"]["allowedCudaVersions"][-1] == "13.0"
    assert "NVIDIA B200" not in requests


def test_vast_gets_a_search_for_each_range_of_drivers_in_three_parts() -> None:
    assert said(told("vast")) == [
        (
            "vastai search offers 'gpu_arch=nvidia cpu_arch=amd64 compute_cap in [500,520,600,610,700]"
            " driver_version>=525.60.13 driver_version<590.00.00'"
        ),
        (
            "vastai search offers 'gpu_arch=nvidia cpu_arch=amd64 compute_cap in [750,800,860,890,900]"
            " driver_version>=525.60.13'"
        ),
    ]


def test_names_are_all_that_some_tools_get() -> None:
    skypilot = yaml.safe_load(told("skypilot"))["resources"]["accelerators"]
    dstack = yaml.safe_load(told("dstack"))["resources"]

    assert skypilot["A100-80GB"] == 1
    assert "B200" not in skypilot
    assert dstack["cpu"] == {"arch": "x86"}
    assert "GB200" not in dstack["gpu"]["name"]
    assert said(told("modal")) == [
        (
            'GPU = ["T4", "L4", "A10", "L40S", "A100-40GB", "A100-80GB", "H100", "H200"]'
            "  # @app.function(gpu=GPU)"
        )
    ]


def test_slurm_gets_the_features_of_the_site() -> None:
    assert said(told("slurm")) == [
        "#SBATCH --gres=gpu:1",
        "#SBATCH --constraint='a100|p100'",
    ]


def test_features_are_capabilities_or_names_of_gpus() -> None:
    assert parse_features(["a=8.0", "b=RTX 4090", "c=gfx942", "d=MI210"]) == {
        "a": "8.0",
        "b": "8.9",
        "c": "gfx942",
        "d": "gfx90a",
    }


def test_htcondor_gets_bounds_and_what_they_cannot_say() -> None:
    lines = dict(line.split(" = ", 1) for line in said(told("htcondor")))

    assert lines["gpus_minimum_capability"] == "5.0"
    assert lines["gpus_maximum_capability"] == "9.0"
    assert lines["gpus_minimum_runtime"] == "12.0"
    # HTCondor's DriverVersion is a CUDA version.
    assert "DriverVersion" not in lines["require_gpus"]
    assert (
        "Capability == 7.0) && MaxSupportedVersion >= 12000 && MaxSupportedVersion <= 13000"
        in (lines["require_gpus"])
    )


def test_an_image_repeats_the_drivers_for_each_alternative() -> None:
    line = said(told("oci"))[-1]

    assert line == (
        'ENV NVIDIA_REQUIRE_GPUINSTALL="driver>=525.60.13,driver<590,arch>=5.0,arch<=7.0'
        ' driver>=525.60.13,arch>=7.5,arch<=9.0"'
    )


def test_an_image_for_arm_names_no_driver() -> None:
    torch = wheel("torch", "2.14.1+cu130", "cp312-cp312-manylinux_2_28_aarch64")
    (needs,) = machine_needs([lock("cu130-linux-aarch64", torch)], load_catalog())

    # A Jetson's hook knows the CUDA alone, and fails for a driver.
    assert requirement(needs).split(" ")[0] == "cuda>=13.0,arch>=8.0,arch<=10.0"


def test_the_label_of_an_image_is_the_document() -> None:
    label = said(told("oci"))[0]
    document = json.loads(label.removeprefix("LABEL gpuinstall.needs='").removesuffix("'"))

    assert document["locks"] == ["pylock.cu126.toml"]
    assert "download" not in document


@pytest.mark.heavy
@pytest.mark.parametrize("target", ["cu126", "cu130"])
def test_kubernetes_schemas_accept_the_affinity(target: str) -> None:
    from kubernetes_validate import validate

    container = {"name": "torch", "image": "registry.example/torch"}
    spec = {"containers": [container], **yaml.safe_load(told("kubernetes", target))}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "torch"}, "spec": spec}

    validate(pod, "1.37", strict=True)


def test_what_a_tool_cannot_say_is_told_with_the_check() -> None:
    text = " ".join(line.removeprefix("# ") for line in told("runpod").splitlines())

    assert "driver 525.60.13, for which CUDA 12.0 stands, for 8.0" in text
    assert "checked by a start with: gpuinstall run --any COMMAND" in text


def test_a_driver_that_differs_by_gpu_is_told_for_each() -> None:
    (needs,) = machine_needs([cuda_lock("cu130")], load_catalog())

    assert list(unsaid_needs(BY_NAME["modal"], needs)) == [
        "the processor, x86_64",
        "glibc 2.28 or newer",
        "driver 580 or newer, for 7.5, 8.0, 8.6, 8.9, 9.0, 10.0, 12.0",
        "driver 580.82.07 or newer, for 10.3",
        "driver 610 or newer, for 10.7",
    ]


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("runpod", '"AMD Instinct MI300X OAM"'),
        ("dstack", "vendor: amd"),
        ("kubernetes", "amd.com/gpu.device-id"),
        ("slurm", "mi300"),
        ("oci", "LABEL"),
    ],
)
def test_amd_is_asked_for_where_a_tool_has_words_for_it(tool: str, words: str) -> None:
    (needs,) = machine_needs([lock("rocm7-2", wheel("torch", "2.14.1+rocm7.2"))], load_catalog())
    features = {"mi300": "gfx942"} if tool == "slurm" else {}

    assert words in words_for(BY_NAME[tool], needs, features)


def test_kubernetes_is_told_the_products_of_intel_that_its_rules_label() -> None:
    (needs,) = machine_needs([lock("xpu", wheel("torch", "2.14.1+xpu"))], load_catalog())
    text = words_for(BY_NAME["kubernetes"], needs, {})
    affinity = yaml.safe_load(text)["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]

    assert term["matchExpressions"][1] == {
        "key": "gpu.intel.com/product",
        "operator": "In",
        "values": ["Max_1100", "Max_1550", "Arc_B580", "Arc_Pro_B60"],
    }


def test_only_the_drivers_of_a_sites_own_gpus_are_told() -> None:
    text = told("slurm", "cu130")

    assert "driver 580 or newer, for 8.0, 10.0." in text
    assert "610" not in text


def test_a_tool_without_words_for_a_maker_says_so() -> None:
    (needs,) = machine_needs([lock("xpu", wheel("torch", "2.14.1+xpu"))], load_catalog())

    with pytest.raises(UsageError, match="Modal has no words for GPUs of intel"):
        words_for(BY_NAME["modal"], needs, {})


def test_no_recorded_machine_is_let_in_for_what_a_tool_can_say() -> None:
    judged = list(judgements(recorded_machines(), locks()))

    wrong = [one for one in judged if one.is_let_in and one.refusal]
    assert [one for one in wrong if one.is_sayable] == []
    assert {str(one.refusal) for one in wrong} <= HEALTH | PROPERTY_OF.keys()


def test_tools_that_can_say_all_decide_as_the_plan() -> None:
    judged = list(judgements(machines_of_every_kind(), [locks()[4]]))

    assert [one for one in judged if one.is_let_in and one.is_sayable] == []
    exact = [one for one in judged if one.tool in {"vast", "kubernetes", "oci"}]
    assert [one for one in exact if one.is_let_in != (one.refusal is None)] == []
