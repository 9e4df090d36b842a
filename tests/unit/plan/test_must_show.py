"""The choices that every other installer gets wrong somewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuinstall.api import Refusal, choose
from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Environment, Machine
from gpuinstall.base.request import Request
from gpuinstall.plan import Plan
from tests.frozen import frozen_catalog
from tests.unit.plan.machines import card, jetson, machine


def plan(asked: Machine, *requirements: str, **request: object) -> Plan | Refusal:
    return choose(asked, Request(requirements or ("torch",), **request), frozen_catalog())  # type: ignore[arg-type]


def build(made: Plan | Refusal) -> str | None:
    return made.choice.build.name if made.choice else None


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        (machine("GTX 1080"), "2.14.1+cu126"),
        (machine("V100", driver="535.183.01"), "2.14.1+cu126"),
        (machine("A100", driver="535.183.01"), "2.14.1+cu126"),
        (machine("A100", driver="470.256.02"), "2.7.1+cu118"),
        (machine("K80", driver="470.256.02"), "2.3.1+cu118"),
        (machine("RTX 5090", driver="570.86.15"), "2.13.0+cu129"),
        (machine("RTX 5070 Ti", driver="572.83", os="windows"), "2.11.0+cu128"),
        (machine("RTX 3090", driver="610.43.02"), "2.15.0+cu132"),
        (machine("RTX 3090", driver="595.58.03"), "2.15.0+cu132"),
        (machine("RTX 3090", driver="590.48.01"), "2.15.0+cu130"),
        (machine("V100", "RTX 5090"), "2.10.0+cu129"),
        (machine("GTX 1080 Ti", "RTX 4090"), "2.14.1+cu126"),
        (machine("GB10", arch="aarch64"), "2.15.0+cu130"),
        (machine("Thor", arch="aarch64"), "2.15.0+cu130"),
        (jetson("Orin", "38.4.0", driver="595.58"), "2.15.0+cu132"),
        (machine("GTX 1080", "RTX 5090", os="windows"), "2.8.0+cu128"),
        (machine("A100", driver=None, cuda="12.2"), "2.14.1+cu126"),
        (machine("A100", driver="528.33", environment=Environment(wsl=True)), "2.14.1+cu126"),
        (machine("A100", driver="525.60.13", environment=Environment(wsl=True)), "2.7.1+cu118"),
        (machine("T4", driver="474.44", os="windows"), "2.7.1+cu118"),
        (machine("A100", driver="535.183.01", glibc="2.17"), "2.6.0+cu118"),
    ],
)
def test_every_gpu_runs_the_newest_build_for_it(asked, chosen):
    made = plan(asked)

    assert (build(made), made.status, made.exit_code) == (chosen, "ok", 0)
    assert all(run.how in {"sass", "ptx"} for run in made.gpus)


def test_a_companion_that_has_no_build_for_the_newest_toolkit_takes_its_backend_out():
    made = plan(machine("H100", driver="610.43.02"), "torch", "torchvision", "torchaudio")

    assert build(made) == "2.15.0+cu130"
    assert made.choice is not None
    assert made.choice.requirements == (
        "torch==2.15.0+cu130",
        "torchvision==0.29.2+cu130",
        "torchaudio==2.11.0+cu130",
    )


def test_the_last_torchaudio_loads_beside_every_later_torch_of_its_cuda():
    made = plan(machine("RTX 5090", driver="570.86.15"), "torch", "torchvision", "torchaudio")

    assert made.choice is not None
    assert made.choice.requirements == (
        "torch==2.13.0+cu129",
        "torchvision==0.28.0+cu129",
        "torchaudio==2.11.0+cu129",
    )


def test_a_card_that_no_build_serves_beside_a_better_one_is_left_out_with_the_other_choice():
    made = plan(machine("P40", "P40", "RTX 5090"))

    assert (build(made), made.status, made.exit_code) == ("2.15.0+cu130", "partial", 0)
    assert [run.how for run in made.gpus] == ["none", "none", "sass"]
    assert any(
        "--gpus 0,1 (P40) would give torch 2.14.1+cu126" in reason.message
        for reason in made.reasons
    )


def test_a_card_that_the_driver_ignores_beside_a_good_one_is_left_out():
    made = plan(machine(card("GT 710", 0, found_via="pci"), card("RTX 4090", 1)))

    assert (build(made), made.status) == ("2.15.0+cu130", "partial")
    assert [warning.code for warning in made.warnings] == ["driver-dropped-gpu"]


def test_a_container_given_one_of_eight_cards_is_planned_for_as_it_is():
    others = Finding("gpu-not-ours", "7 other cards are on the bus", blocking=False)
    made = plan(
        machine("A100", environment=Environment(container="kubernetes"), problems=(others,))
    )

    assert (build(made), made.status) == ("2.15.0+cu130", "ok")
    assert [warning.code for warning in made.warnings] == ["gpu-not-ours"]


@pytest.mark.parametrize(
    ("asked", "code", "fix"),
    [
        (machine("GTX 980", driver="590.48.01"), "driver-dropped-gpu", "Install driver 580"),
        (machine("K80"), "driver-dropped-gpu", "Install driver 470"),
        (machine("RTX 5090", driver="550.54.14"), "driver-older-than-gpu", "570.26 or newer"),
        (
            machine("RTX 5090", driver="566.36", os="windows"),
            "driver-older-than-gpu",
            "570.65 or newer",
        ),
        (machine("T4", driver="418.226.00"), "driver-too-old", "580 or newer"),
        (machine("V100", driver="418.226.00"), "driver-too-old", "525.60.13 or newer, up to 580"),
        (machine("RTX 4090", driver=None), "no-driver", "Install the NVIDIA driver"),
    ],
)
def test_only_mending_the_machine_helps(asked, code, fix):
    made = plan(asked)

    assert (made.status, made.exit_code, made.reasons[0].code) == ("refused", 8, code)
    assert fix in (made.fix or "")
    assert "--backend cpu" in (made.fix or "")


@pytest.mark.parametrize(
    ("asked", "request_", "code", "words"),
    [
        (
            machine("RTX 4090"),
            Request(("torch==2.15.0",), python="3.10"),
            "python-unsupported",
            ("torch==2.15.0", "Python 3.10", "3.11"),
        ),
        (
            machine("RTX 5090", driver="570.86.15"),
            Request(("torch==2.15.0",)),
            "driver-too-old",
            ("torch==2.15.0", "driver 570.86.15", "driver 580"),
        ),
        (
            machine("GTX 1080"),
            Request(("torch==2.15.0",)),
            "no-code",
            ("torch==2.15.0", "GTX 1080", "sm_61"),
        ),
        (machine("GT 710", driver="470.256.02"), Request(), "no-build-ever", ("GT 710", "sm_35")),
        (
            jetson("Orin", "36.4.0", cuda="12.6"),
            Request(),
            "jetson",
            ("L4T 36.4.0", "NVIDIA's own wheels"),
        ),
        (
            machine("RTX 4090"),
            Request(("torch==2.15.0+cu132",), backend="cu130"),
            "other-backend",
            ("torch==2.15.0+cu132", "backend cu130"),
        ),
        (
            machine("RTX 4090"),
            Request(("torch==2.15.0", "torchvision==0.24.1")),
            "no-companion",
            ("torch==2.15.0", "torchvision==0.24.1"),
        ),
        (
            machine("A100", driver="535.183.01"),
            Request(allowed_backends=("cu130", "cu132")),
            "driver-too-old",
            ("the allowed backends (cu130, cu132)", "driver 535.183.01"),
        ),
        (
            machine("RTX 4090"),
            Request(backend="cu127"),
            "other-backend",
            ("backend cu127", "no build of torch is known"),
        ),
        (
            machine("RTX 4090"),
            Request(("torch>=2.16",)),
            "other-torch",
            ("there is no torch>=2.16", "the newest is 2.15.0"),
        ),
        (machine("RTX 4090", libc="musl"), Request(), "musl", ("glibc",)),
        (machine("RTX 4090", glibc="2.12"), Request(), "glibc-too-old", ("2.12",)),
    ],
)
def test_another_request_would_be_served(asked, request_, code, words):
    made = choose(asked, request_, frozen_catalog())

    assert (made.status, made.choice, made.exit_code) == ("refused", None, 3)
    assert made.reasons[0].code == code
    assert all(word in made.reasons[0].message for word in words), made.reasons[0].message


def test_the_pointer_to_nvidias_wheels_is_the_fix_of_an_old_jetson():
    assert "docs.nvidia.com" in (plan(jetson("Orin", "36.4.0", driver="540.4.0")).fix or "")


def test_a_pinned_torch_gets_another_python_and_never_another_torch():
    made = plan(machine("RTX 4090", pythons=("3.10.12",)), "torch==2.15.0")

    assert build(made) == "2.15.0+cu130"
    assert made.choice is not None
    assert made.choice.python != "3.10"


def test_without_any_other_python_to_be_had_the_next_torch_is_taken():
    made = plan(machine("RTX 4090", pythons=("3.10.12",)), managed_pythons=False)

    assert (build(made), made.choice and made.choice.python) == ("2.14.1+cu130", "3.10")


def test_a_blocking_problem_of_the_machine_refuses_whatever_is_asked_for_but_the_cpu():
    broken = machine(
        "A100",
        problems=(Finding("driver-library-mismatch", "versions differ", fixes=("sudo reboot",)),),
    )

    made = plan(broken)
    assert (made.status, made.exit_code, made.reasons[0].code) == (
        "refused",
        8,
        "driver-library-mismatch",
    )
    assert (made.fix or "").startswith("sudo reboot")
    assert build(plan(broken, backend="cpu")) == "2.15.0+cpu"


def test_a_problem_of_one_gpu_leaves_only_that_gpu_out():
    lost = Finding("gpu-lost", "GPU 1 fell off the bus", gpus=(1,))
    eight = machine(*["A100"] * 8, problems=(lost,))

    made = plan(eight)
    assert (made.status, build(made)) == ("partial", "2.15.0+cu130")
    assert [run.index for run in made.gpus if run.how == "none"] == [1]
    alone = plan(replace(eight, gpus=eight.gpus[1:2]))
    assert (alone.status, alone.exit_code, alone.reasons[0].code) == ("refused", 8, "gpu-lost")


def test_a_lost_gpu_that_is_no_longer_listed_is_still_named():
    made = plan(
        machine("A100", problems=(Finding("gpu-lost", "GPU 7 fell off the bus", gpus=(7,)),))
    )

    assert (made.status, [(run.index, run.how) for run in made.gpus]) == (
        "partial",
        [(0, "sass"), (7, "none")],
    )


def test_a_gpu_of_unknown_capability_is_never_planned_for():
    unknown = card("A100", 1, compute_capability=None)

    assert plan(machine("A100", unknown)).status == "partial"
    assert plan(machine(unknown)).exit_code == 8
