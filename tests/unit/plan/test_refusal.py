"""What a refusal says to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuinstall.api import Refusal, choose
from gpuinstall.base.errors import InstallationError
from gpuinstall.base.machine import Environment
from gpuinstall.base.request import Request
from gpuinstall.catalog import Catalog
from tests.frozen import frozen_catalog
from tests.unit.plan.machines import card, machine


def with_only_the_default_index() -> Catalog:
    catalog = frozen_catalog()
    builds = (
        build if build.on_default_index else replace(build, absent="unreachable")
        for build in catalog.builds
    )
    return replace(catalog, builds=tuple(builds))


@pytest.mark.parametrize(
    ("cards", "branches"),
    [
        (["RTX 4090"], "580 or newer"),
        (["GTX 1080"], "branch 580, the last for Pascal"),
        (["K80", "A100"], "branch 470, the last for Kepler"),
        (["K80", "RTX 4090"], "580 or newer"),
        (["B300"], "580.82.07 or newer"),
        (["GT 710", "RTX 4090"], "580 or newer"),
        (["K80", "RTX 5090"], "580 or newer"),
        (["K80", "V100", "RTX 5090"], "branch 580, the last for Volta"),
    ],
)
def test_a_missing_driver_is_asked_for_by_the_branches_that_drive_most(cards, branches):
    made = choose(machine(*cards, driver=None), Request(), frozen_catalog())

    assert (made.exit_code, made.reasons[0].code) == (8, "no-driver")
    assert branches in (made.fix or "").splitlines()[0]


@pytest.mark.parametrize(
    ("requirements", "python", "nearest"),
    [
        (("torch==2.15.0",), "3.9", "3.11"),
        (("torch==2.15.0",), "3.16", "3.15"),
        (("torch==2.15.0", "torchaudio"), "3.15", "3.14"),
        (("torch==2.6.0",), ">=3.14", "3.13"),
    ],
)
def test_another_python_is_advised_by_the_nearest_that_works(requirements, python, nearest):
    made = choose(machine("RTX 4090"), Request(requirements, python=python), frozen_catalog())

    assert (made.exit_code, made.reasons[0].code) == (3, "python-unsupported")
    assert (made.fix or "").splitlines()[
        0
    ] == f"Run it again with --python {nearest}: a Python that it has wheels for"
    assert choose(
        machine("RTX 4090"), Request(requirements, python=nearest), frozen_catalog()
    ).choice


def test_musl_is_not_offered_the_cpu_build_which_does_not_run_there_either():
    made = choose(machine("RTX 4090", libc="musl"), Request(), frozen_catalog())

    assert (made.exit_code, made.reasons[0].code) == (3, "musl")
    assert "--backend cpu" not in (made.fix or "")


def test_a_build_that_only_an_unreachable_index_has_is_a_failure_of_the_network():
    asked = machine("RTX 4090")
    made = choose(
        asked, Request(requirements=("torch==2.14.1+cu126",)), with_only_the_default_index()
    )

    assert (made.exit_code, made.reasons[0].code) == (4, "unreachable")
    assert isinstance(made, Refusal)
    assert isinstance(made.error(asked), InstallationError)


def test_an_older_torch_taken_because_an_index_cannot_be_reached_says_so():
    made = choose(
        machine("RTX 4090", driver="535.183.01"), Request(), with_only_the_default_index()
    )

    assert made.choice is not None
    assert made.choice.build.name == "2.10.0+cu128"
    assert made.reasons[0].code == "newest-reachable"


def test_a_gpu_whose_builds_all_need_a_newer_system_is_not_said_to_have_none():
    made = choose(machine("RTX 5090", glibc="2.17"), Request(), frozen_catalog())

    assert (made.exit_code, made.reasons[0].code) == (3, "glibc-too-old")
    assert "glibc 2.28 or newer" in (made.fix or "")


@pytest.mark.parametrize(
    "request_", [Request(("torch==2.14.1+cpu",)), Request(("torch==2.14.1",), backend="cpu")]
)
def test_a_cpu_build_that_does_not_exist_is_no_fault_of_the_driver(request_):
    made = choose(machine("A100", driver="418.226", glibc="2.17"), request_, frozen_catalog())

    assert (made.exit_code, made.reasons[0].code) == (3, "glibc-too-old")
    assert f"{request_.requirements[0]} and glibc 2.17 are incompatible" in made.reasons[0].message


def test_macos_has_no_cuda_build_whatever_is_wrong_with_its_card():
    asked = machine(
        card("RTX 4090", compute_capability=None), os="macos", arch="arm64", driver=None
    )
    made = choose(asked, Request(backend="cu126"), frozen_catalog())

    assert made.exit_code == 3
    assert "no build of torch is known for backend cu126 on macos arm64" in made.reasons[0].message


@pytest.mark.parametrize(
    ("cards", "driver", "codes", "fix"),
    [
        (
            ["GT 710", "B200"],
            "470.256.02",
            ["driver-older-than-gpu", "no-build-ever"],
            "570.26 or newer",
        ),
        (
            ["GT 710", "RTX 5090"],
            "550.54.14",
            ["driver-older-than-gpu", "no-build-ever"],
            "570.26 or newer",
        ),
        (
            ["GT 710", "GTX 980"],
            "590.48.01",
            ["driver-dropped-gpu", "no-build-ever"],
            "Install driver 580",
        ),
    ],
)
def test_a_gpu_that_another_driver_would_serve_counts_before_one_without_a_build(
    cards, driver, codes, fix
):
    made = choose(machine(*cards, driver=driver), Request(), frozen_catalog())

    assert (made.exit_code, [reason.code for reason in made.reasons]) == (8, codes)
    assert fix in (made.fix or "").splitlines()[0]


def test_of_gpus_that_need_different_drivers_the_newest_says_which():
    made = choose(machine("K80", "RTX 5090", driver="550.54.14"), Request(), frozen_catalog())

    assert (made.exit_code, [reason.code for reason in made.reasons]) == (
        8,
        ["driver-older-than-gpu", "driver-dropped-gpu"],
    )
    assert "570.26 or newer" in (made.fix or "").splitlines()[0]


def test_a_gpu_without_a_build_is_told_for_which_platform():
    made = choose(machine("Thor", driver="580.95.05"), Request(), frozen_catalog())

    assert "supports Thor (sm_110) on linux x86_64" in made.reasons[0].message


@pytest.mark.parametrize(
    "request_",
    [
        Request(("torch==9.9",)),
        Request(("torch==2.14.1+cu126",)),
        Request(("torch", "torchvision==9.9")),
        Request(allowed_backends=("cu130",)),
    ],
)
def test_the_cpu_build_is_advised_only_if_there_is_one_for_the_request(request_):
    broken = machine("RTX 4090", driver="418.226")
    for_cpu = choose(broken, replace(request_, backend="cpu"), frozen_catalog())
    made = choose(broken, request_, frozen_catalog())

    assert made.fix
    assert ("--backend cpu" in made.fix) == (for_cpu.choice is not None)


def test_a_version_that_does_not_exist_is_said_not_to():
    messages = {
        "torch==9.9": "torch 9.9 does not exist; the newest is 2.15.0",
        "torch>=9": "there is no torch>=9; the newest is 2.15.0",
    }
    made = {text: choose(machine("A100"), Request((text,)), frozen_catalog()) for text in messages}

    assert {
        text: plan.reasons[0].message.partition(" (as of")[0] for text, plan in made.items()
    } == messages
    assert {(plan.fix or "").partition(": ")[0] for plan in made.values()} == {
        "Write torch in place of torch==9.9",
        "Write torch in place of torch>=9",
    }


def test_a_version_older_than_every_known_build_is_called_old():
    messages = {
        "torch==1.12.1": "torch 1.12.1 is older than every known build; the oldest is 1.13.1",
        "torch==1.8.1+cu111": "torch 1.8.1+cu111 is older than every known build; the oldest is 1.13.1",
        "torch>=1.7,!=1.8,<1.13": "torch>=1.7,!=1.8,<1.13 is older than every known build; the oldest is 1.13.1",
        "torch~=1.10.0": "torch~=1.10.0 is older than every known build; the oldest is 1.13.1",
    }
    wrong = []
    for text, message in messages.items():
        refused = choose(machine("A100"), Request((text,)), frozen_catalog())
        reason = refused.reasons[0].message
        if reason != message:
            wrong.append((text, reason))

    assert wrong == []


def test_torch_is_blamed_before_what_goes_with_it():
    request = Request(("torch==1.8.1", "torchvision==0.9.1", "torchaudio==0.8.1"))
    refused = choose(machine("A100"), request, frozen_catalog())

    message = "torch 1.8.1 is older than every known build; the oldest is 1.13.1"
    assert refused.reasons[0].message == message


def test_a_driver_update_has_the_command_of_the_machines_own_system():
    on = machine("T4", driver="550.163.01", distribution="Ubuntu 22.04")
    rejected = choose(on, Request(("torch>=2.15",)), frozen_catalog())

    _, update, command, sentence = (rejected.fix or "").splitlines()[:4]
    assert update == "Update the NVIDIA driver to 580 or newer"
    assert command == "sudo apt-get install nvidia-driver-580-open && sudo reboot"
    assert sentence.endswith(
        "please update the NVIDIA driver from 550.163.01 to 580 or newer; programs for older CUDA go on working"
    )


def test_a_driver_update_is_a_thing_of_the_host_in_a_container():
    inside = Environment(container="docker")
    on = machine("T4", driver="550.163.01", distribution="Ubuntu 22.04", environment=inside)
    rejected = choose(on, Request(("torch>=2.15",)), frozen_catalog())

    assert (rejected.fix or "").splitlines()[2] == (
        "On the host: install NVIDIA driver 580 or newer, then start the container with the GPU (F25)"
    )


def test_pascal_keeps_the_driver_with_closed_modules():
    on = machine("GTX 1080", driver="535.183.01", distribution="Ubuntu 22.04")
    rejected = choose(on, Request(("torch==2.14.1",), backend="cu130"), frozen_catalog())

    assert "nvidia-driver-580-open" not in (rejected.fix or "")
