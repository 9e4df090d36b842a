"""Which GPUs are planned for: all of them, those that are named, those that can be served."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuinstall.api import Refusal, choose
from gpuinstall.base.errors import UsageError
from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Driver, Gpu, Machine, MigDevice
from gpuinstall.base.request import Request
from gpuinstall.base.versions import ComputeCapability, CudaVersion, DriverVersion
from gpuinstall.catalog import load_catalog
from gpuinstall.machine.vendors import rules_for
from gpuinstall.plan import Plan
from gpuinstall.plan.candidates import gpus_to_serve
from gpuinstall.plan.context import PlanContext, Terms
from gpuinstall.plan.demand import parse_request
from tests.frozen import frozen_catalog
from tests.unit.plan.machines import card, jetson, machine

MIG = (MigDevice("MIG-1111"), MigDevice("MIG-2222"))


def plan(asked: Machine, **request: Any) -> Plan | Refusal:
    return choose(asked, Request(**request), frozen_catalog())


def build(made: Plan | Refusal) -> str | None:
    return made.choice.build.name if made.choice else None


@pytest.mark.parametrize("name", ["1", 1, "GPU-00000001", "gpu-00000001"])
def test_a_gpu_is_named_by_its_index_or_its_uuid(name):
    made = plan(machine("P40", "RTX 5090"), gpus=(name,))

    assert (made.status, build(made), [run.index for run in made.gpus]) == (
        "ok",
        "2.15.0+cu130",
        [1],
    )


def test_a_slice_stands_for_its_card():
    asked = machine("P40", card("A100", 1, mig=True, mig_devices=MIG))

    assert [run.index for run in plan(asked, gpus=("MIG-2222",)).gpus] == [1]


def test_a_gpu_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(UsageError) as caught:
        plan(machine("P40", "RTX 5090"), gpus=("7",))

    assert "'7'" in caught.value.message
    assert "0 (P40), 1 (RTX 5090)" in (caught.value.hint or "")


def test_to_ask_for_no_gpu_is_not_to_ask_for_the_cpu():
    with pytest.raises(UsageError, match="none of this machine's GPUs"):
        plan(machine("P40"), gpus=())
    assert plan(machine(), gpus=()).status == "cpu"


def test_a_faulty_gpu_that_is_not_listed_counts_unless_others_are_asked_for():
    asked = machine(
        "A100", problems=(Finding("gpu-lost", "GPU 1 has fallen off the bus", gpus=(1,)),)
    )

    assert plan(asked).status == "partial"
    assert plan(asked, gpus=("0",)).status == "ok"


def test_two_gpus_that_need_an_older_torch_together_are_told_what_one_alone_would_give():
    made = plan(machine("V100", "RTX 5090"))

    gains = [reason.message for reason in made.reasons if reason.code == "fewer-gpus"]
    assert gains == ["--gpus 1 (RTX 5090) would give torch 2.15.0+cu130"]


def test_equal_gpus_are_told_nothing_of_the_kind():
    assert all(reason.code != "fewer-gpus" for reason in plan(machine("A100", "A100")).reasons)


def test_of_the_sets_that_one_build_covers_the_one_with_the_newest_gpu_is_served():
    made = plan(machine("GTX 1080", "V100", "RTX 5090"))

    assert (made.status, build(made)) == ("partial", "2.10.0+cu129")
    assert [run.how for run in made.gpus] == ["none", "sass", "sass"]


def test_a_cover_is_judged_by_capability_then_memory_then_number_then_index():
    asked = machine("A100", "T4", "V100", "V100", card("V100", 4, memory_mib=None))
    (demand,), rules = (
        parse_request(Request(), frozenset({"torch"}), asked),
        rules_for(asked, frozen_catalog()),
    )
    context = PlanContext(asked, Terms(demand, asked, frozen_catalog()), rules, asked.gpus)

    assert gpus_to_serve([(0,), (1, 2, 3)], context) == (0,)
    assert gpus_to_serve([(2,), (3, 4), (2, 3)], context) == (2, 3)
    assert gpus_to_serve([(2,), (2, 4)], context) == (2, 4)
    assert gpus_to_serve([(3,), (2,)], context) == (2,)
    assert gpus_to_serve([], context) == ()


def test_a_gpu_runs_the_code_closest_to_it():
    made = plan(machine("RTX 4090", "A100", "H100"))

    assert [(run.runs, run.how) for run in made.gpus] == [
        ("sm_86", "sass"),
        ("sm_80", "sass"),
        ("sm_90", "sass"),
    ]


def test_a_gpu_from_the_future_runs_ptx_where_its_driver_compiles_it():
    from gpuinstall.base.versions import ComputeCapability

    future = machine(
        card("RTX 5090", compute_capability=ComputeCapability(13, 0)), driver="610.43.02"
    )
    made = plan(future)

    assert (build(made), made.gpus[0].runs, made.gpus[0].how) == (
        "2.11.0+cu129",
        "compute_120",
        "ptx",
    )


def test_a_warning_names_the_driver_that_runs_new_builds_only_in_part():
    (warning,) = plan(machine("A100", driver="525.60.13")).warnings

    assert warning.code == "driver-barely-new-enough"
    assert "F19" in warning.message
    assert not plan(machine("A100", driver="530.30.02")).warnings


def test_a_build_for_a_chip_that_its_compilers_do_not_know_is_warned_about():
    made = plan(machine("GB10", arch="aarch64"), backend="cu128")

    assert (made.status, build(made)) == ("ok", "2.11.0+cu128")
    assert {warning.code for warning in made.warnings} == {"run-time-compiler-too-old"}


@pytest.mark.parametrize(
    ("name", "backend", "known"),
    [
        ("GB10", "cu129", True),
        ("B300", "cu128", False),
        ("B300", "cu129", True),
        ("Thor", "cu130", True),
    ],
)
def test_run_time_compilers_know_a_chip_from_a_minor_release_of_the_toolkit_on(
    name, backend, *, known
):
    made = plan(machine(name, arch="aarch64"), backend=backend)

    assert made.choice is not None
    assert ("run-time-compiler-too-old" not in {warning.code for warning in made.warnings}) == known


def test_compilers_that_know_the_chip_come_before_a_toolkit_that_is_not_above_the_driver():
    made = plan(
        machine("GB10", arch="aarch64", cuda="12.8"),
        allowed_backends=("cu128", "cu129"),
        requirements=("torch==2.11.0",),
    )

    assert build(made) == "2.11.0+cu129"
    told = {found.candidate.name: found.reason.message for found in made.rejected}
    assert (
        told["2.11.0+cu128"] == "2.11.0+cu129 is preferred: its run-time compilers support the GPU"
    )


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        (machine("RTX 3090", driver="450.80.02"), "455.23.04"),
        (machine("RTX 4090", driver="515.65.01"), "520.56.06"),
        (machine("H100", driver="515.65.01"), "520.56.06"),
        (machine("B200", driver="565.57.01"), "570.26"),
        (machine("RTX 5090", driver="566.36", os="windows"), "570.65"),
        (machine("B300", driver="580.65.06"), "580.82.07"),
        (machine("Thor", arch="aarch64", driver="575.57.08"), "580"),
        (machine("GB10", arch="aarch64", driver="575.57.08"), "580"),
        (machine("RTX 4090", driver=None, cuda="11.7"), "520.56.06"),
    ],
)
def test_a_driver_older_than_the_gpu_does_not_know_it(asked, first):
    made = plan(asked)

    assert (made.status, made.exit_code, made.reasons[0].code) == (
        "refused",
        8,
        "driver-older-than-gpu",
    )
    assert f"{first} or newer" in (made.fix or "").splitlines()[0]


def test_beside_a_gpu_that_the_driver_knows_the_younger_one_is_left_out():
    made = plan(machine("RTX 4090", "A100", driver="515.65.01"))

    assert (made.status, made.exit_code, build(made)) == ("partial", 0, "2.7.1+cu118")
    assert [run.how for run in made.gpus] == ["none", "sass"]
    assert [warning.code for warning in made.warnings] == ["driver-older-than-gpu"]


@pytest.mark.parametrize(
    "asked",
    [
        machine("RTX 3090", driver="455.23.04"),
        machine("RTX 4090", driver="520.56.06"),
        machine("RTX 4090", driver="520"),
        machine("RTX 4090", driver=None, cuda="11.8"),
        machine("B300", driver="580.82.07"),
        machine("B300", driver="580"),
    ],
)
def test_the_first_driver_that_knows_a_gpu_runs_it(asked):
    assert plan(asked).status == "ok"


def test_an_older_driver_is_told_the_nearest_that_a_build_for_the_gpu_runs_with():
    made = plan(machine("RTX 4090", arch="aarch64", driver="515.65.01"))

    assert (made.fix or "").splitlines()[0] == "Update the NVIDIA driver to 525.60.13 or newer"


def test_a_cudnn_that_is_not_compatible_with_later_chips_makes_ptx_no_code():
    made = plan(machine("RTX 5090", driver="576.02", os="windows"))
    told = {found.candidate.name: found.reason for found in made.rejected}

    assert build(made) == "2.11.0+cu128"
    assert told["2.7.1+cu118"][0] == "no-cudnn-code"
    assert "only up to sm_90" in told["2.7.1+cu118"][1]
    assert plan(machine("RTX 5090", driver="576.02", os="windows"), backend="cu118").exit_code == 3


def test_the_forward_compatibility_package_lets_a_data_centre_gpu_run_a_newer_cuda():
    compat = Driver(DriverVersion.parse("535.183.01"), CudaVersion(13, 0), compat=True)
    made = choose(replace(machine("A100"), driver=compat), Request(), frozen_catalog())

    assert made.choice
    assert made.choice.build.backend.tag == "cu130"
    assert [warning.code for warning in made.warnings] == ["forward-compatibility"]


@pytest.mark.parametrize(("card", "os"), [("RTX 4090", "linux"), ("A100", "windows")])
def test_it_is_for_no_other_gpu_and_no_other_system(card, os):
    compat = Driver(DriverVersion.parse("535.183.01"), CudaVersion(13, 0), compat=True)
    made = choose(replace(machine(card, os=os), driver=compat), Request(), frozen_catalog())

    assert (made.exit_code, made.reasons[0].code) == (8, "forward-compatibility-unsupported")


def test_what_is_not_known_of_a_chip_s_first_driver_is_not_said():
    rubin = Gpu(0, "NVIDIA R200", compute_capability=ComputeCapability(10, 7))
    made = choose(machine(rubin, driver="580.95.05"), Request(), load_catalog())

    assert made.reasons[0].code == "driver-older-than-gpu"
    assert "newer than 595.45.04" in made.reasons[0].message
    assert "610" not in f"{made.reasons[0].message} {made.fix}"


def test_orin_with_jetpack_7_gets_the_code_that_torch_counts_for_it_and_else_what_was_seen_to_run():
    orin = jetson("Orin", "38.2")
    newest, older = (
        choose(orin, Request((text,)), load_catalog()) for text in ("torch", "torch==2.9.1")
    )

    assert newest.choice
    assert (newest.choice.build.backend.tag, newest.warnings) == ("cu132", ())
    assert older.choice
    assert older.choice.build.name == "2.9.1+cu130"
    assert [warning.code for warning in older.warnings] == ["code-of-a-relative"]
