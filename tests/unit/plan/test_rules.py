"""Each build that is passed over has the reason of the rule that rejects it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuinstall.api import Refusal, choose
from gpuinstall.base.backend import Backend
from gpuinstall.base.machine import Machine
from gpuinstall.base.request import Request
from gpuinstall.catalog import Catalog
from gpuinstall.catalog.pages import parse_folder
from gpuinstall.plan import Plan
from tests.frozen import frozen_catalog
from tests.unit.plan.machines import machine

UNREAD = parse_folder(["torch-2.15.0-cp312-cp312-linux_x86_64.whl"], Path("/wheels"), "/wheels")


def code(made: Plan | Refusal, name: str) -> str:
    return next(
        rejection.reason.code for rejection in made.rejected if rejection.candidate.name == name
    )


def plan(asked: Machine, catalog: Catalog | None = None, **request: Any) -> Plan | Refusal:
    return choose(asked, Request(**request), catalog or frozen_catalog())


@pytest.mark.parametrize(
    ("asked", "request_", "build", "reason"),
    [
        (machine("A100", driver="535.183.01"), {}, "2.15.0+cu130", "driver-too-old"),
        (machine("GTX 1080"), {}, "2.15.0+cu130", "no-code"),
        (machine("K80", driver="470.256.02"), {}, "2.7.1+cu118", "no-cudnn-code"),
        (machine("RTX 4090"), {"python": "3.10"}, "2.15.0+cu130", "python-unsupported"),
        (machine("RTX 4090", glibc="2.17"), {}, "2.15.0+cu130", "glibc-too-old"),
        (machine("RTX 4090"), {"requirements": ("torch<2.15",)}, "2.15.0+cu130", "other-torch"),
        (machine("RTX 4090"), {"backend": "cu126"}, "2.15.0+cu130", "other-backend"),
        (machine("RTX 4090"), {"allowed_backends": ("cu126",)}, "2.15.0+cu130", "not-allowed"),
        (machine("RTX 4090", driver="615.10"), {}, "2.15.0+cu134", "unverified"),
        (machine("RTX 4090"), {"requirements": ("torchaudio",)}, "2.15.0+cu132", "no-companion"),
        (machine("RTX 4090"), {}, "2.15.0+cu132", "less-preferred"),
        (machine("RTX 4090"), {}, "2.14.1+cu130", "older-torch"),
    ],
)
def test_a_build_is_rejected_because(asked, request_, build, reason):
    assert code(plan(asked, **request_), build) == reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"absent": "withdrawn"}, "withdrawn"),
        ({"absent": "unreachable"}, "unreachable"),
        (
            {"unread": UNREAD},
            "not-in-catalogue",
        ),
    ],
)
def test_a_build_that_a_listing_does_not_vouch_for_is_not_chosen(change, reason):
    catalog = frozen_catalog()
    builds = tuple(
        replace(build, **change) if build.backend.tag == "cu130" else build
        for build in catalog.builds
    )
    made = plan(machine("RTX 4090", driver="580.95.05"), replace(catalog, builds=builds))

    assert code(made, "2.15.0+cu130") == reason
    assert made.choice is not None
    assert made.choice.build.name == "2.15.0+cu132"


def test_a_build_that_was_a_guess_is_chosen_once_it_is_listed():
    catalog, guess = frozen_catalog(), Backend("cuda", "13.4")
    builds = tuple(
        replace(found, confidence="low") if found.backend == guess else found
        for found in catalog.builds
    )
    made = plan(machine("RTX 4090", driver="615.71.09"), replace(catalog, builds=builds))

    assert made.choice is not None
    assert made.choice.build.name == "2.15.0+cu134"


def test_a_build_found_elsewhere_is_installed_from_there():
    catalog = frozen_catalog()
    builds = tuple(replace(build, source="/srv/wheels") for build in catalog.builds)
    choice = plan(machine("RTX 4090"), replace(catalog, builds=builds)).choice

    assert choice is not None
    assert choice.index == "/srv/wheels"


def test_another_torch_index_takes_the_place_of_the_official_one():
    choice = plan(
        machine("RTX 4090"), replace(frozen_catalog(), torch_index="https://index.example/whl")
    ).choice

    assert choice is not None
    assert choice.index == "https://index.example/whl/cu130"


def test_a_forced_backend_is_obeyed_where_it_runs():
    choice = plan(machine("RTX 4090"), backend="cu126").choice

    assert choice is not None
    assert choice.build.name == "2.14.1+cu126"


def test_a_plan_says_what_a_newer_driver_would_give():
    made = plan(machine("A100", driver="535.183.01"))

    assert "torch 2.15.0 would need driver 580 or newer" in [
        reason.message for reason in made.reasons
    ]
    assert len(made.reasons) <= 3


def test_a_plan_does_not_promise_a_driver_that_would_not_help():
    assert all(
        reason.code != "newer-driver"
        for reason in plan(machine("V100", driver="535.183.01")).reasons
    )


@pytest.mark.parametrize(
    ("card", "cuda", "reason"),
    [
        ("GTX 980", "13.5", "driver-dropped-gpu"),
        ("GTX 980", "13.0", None),
        ("RTX 5090", "12.7", "driver-older-than-gpu"),
        ("RTX 5090", "10.2", "driver-older-than-gpu"),
    ],
)
def test_a_driver_known_by_its_cuda_alone_drives_what_its_branch_drives(card, cuda, reason):
    made = plan(machine(card, driver=None, cuda=cuda))

    assert (made.exit_code, made.choice is None) == ((8, True) if reason else (0, False))
    assert reason in {None, made.reasons[0].code}
