"""Companions: which wheels there are, and how they are named."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuinstall.api import Refusal, choose
from gpuinstall.base.machine import Machine
from gpuinstall.base.request import Request
from gpuinstall.catalog import Catalog
from gpuinstall.plan import Plan
from tests.frozen import frozen_catalog
from tests.unit.plan.machines import machine

ARM = machine("H100", arch="aarch64")


def plan(
    asked: Machine, *requirements: str, catalog: Catalog | None = None, **request: Any
) -> Plan | Refusal:
    return choose(asked, Request(requirements, **request), catalog or frozen_catalog())


def installed(made: Plan | Refusal) -> tuple[str, ...]:
    return made.choice.requirements if made.choice else ()


def offering(backend: str, **versions: str) -> Catalog:
    """The catalogue as sources have it that list these versions of companions for a backend."""
    catalog = frozen_catalog()
    source = f"{catalog.torch_index}/{backend}"
    builds = tuple(
        replace(each, source=source) if each.backend.tag == backend else each
        for each in catalog.builds
    )
    offered = {(name, backend): frozenset(listed.split()) for name, listed in versions.items()}
    return replace(catalog, builds=builds, offered=offered)


def test_on_aarch64_older_companions_are_asked_for_without_a_label():
    made = plan(ARM, "torch==2.9.1", "torchvision", "torchaudio")

    assert installed(made) == ("torch==2.9.1+cu130", "torchvision==0.24.1", "torchaudio==2.9.1")
    assert [warning.code for warning in made.warnings] == ["companion-for-the-cpu"]
    assert "torchvision 0.24.1 and torchaudio 2.9.1" in made.warnings[0].message


def test_on_aarch64_newer_companions_and_everywhere_else_all_of_them_have_the_label():
    assert installed(plan(ARM, "torch==2.10.0", "torchvision"))[1] == "torchvision==0.25.0+cu130"
    assert (
        installed(plan(machine("H100"), "torch==2.9.1", "torchvision"))[1]
        == "torchvision==0.24.1+cu130"
    )
    assert not plan(ARM, "torch==2.10.0", "torchvision").warnings


def test_a_listing_says_better_than_the_catalogue_whether_a_companion_has_a_label():
    plain, labelled = (
        offering("cu130", torchvision="0.29.2"),
        offering("cu130", torchvision="0.24.1+cu130"),
    )

    assert installed(plan(ARM, "torchvision", catalog=plain))[1] == "torchvision==0.29.2"
    assert (
        installed(plan(ARM, "torch==2.9.1", "torchvision", catalog=labelled))[1]
        == "torchvision==0.24.1+cu130"
    )


def test_triton_beside_the_cpu_build_comes_from_the_default_index():
    unlisted = offering("cpu", torchaudio="2.6.0+cpu", triton="")

    made = plan(machine(), "torch==2.6.0", "torchaudio==2.6.0", "triton==3.2.0", catalog=unlisted)
    assert installed(made) == ("torch==2.6.0+cpu", "torchaudio==2.6.0+cpu", "triton==3.2.0")


@pytest.mark.parametrize(("os", "arch"), [("windows", "x86_64"), ("macos", "arm64")])
def test_triton_has_no_wheel_for_windows_and_macos(os, arch):
    asked = machine(*(["RTX 4090"] if os == "windows" else []), os=os, arch=arch)
    made = plan(asked, "triton")

    assert (made.exit_code, made.reasons[0].code) == (3, "no-companion")
    assert f"has no wheel for {os} {arch}" in made.reasons[0].message


def test_on_aarch64_triton_begins_with_the_torch_that_pins_the_first_wheel_for_it():
    assert installed(plan(ARM, "torch==2.9.1", "triton")) == ("torch==2.9.1+cu130", "triton==3.5.1")
    assert plan(ARM, "torch==2.8.0", "triton").reasons[0].code == "no-companion"


def test_a_torch_that_requires_no_triton_goes_with_any():
    there = machine("RTX 4090", driver="550.144.03")
    for triton in ("triton", "triton==2.1.0"):
        made = plan(there, "torch==1.13.1", triton, python="3.10")
        assert installed(made) == ("torch==1.13.1+cu117", triton)
    # Where torch is open, no old one is the answer.
    assert plan(there, "torch", "triton==3.4.1").reasons[0].code == "no-companion"
    assert plan(machine(os="windows"), "torch==1.13.1", "triton").exit_code == 3


def test_a_bound_of_triton_may_name_its_major_version_alone():
    made = plan(machine("RTX 4090", driver="550.144.03"), "torch", "triton>=2")
    assert (made.status, installed(made)) == ("ok", ("torch==2.14.1+cu126", "triton>=2"))


def test_triton_keeps_a_python_without_a_wheel_from_being_chosen():
    at_hand = machine("RTX 4090", pythons=("3.12.1", "3.15.0"))

    assert [made.choice and made.choice.python for made in (plan(at_hand, "torch==2.14.1"),)] == [
        "3.15"
    ]
    assert [
        made.choice and made.choice.python for made in (plan(at_hand, "torch==2.14.1", "triton"),)
    ] == ["3.12"]
    assert plan(machine("RTX 4090"), "triton", python="3.15").status == "ok"
    assert plan(machine("RTX 4090"), "torch<2.15", "triton", python="3.15").exit_code == 3


def test_a_companion_that_nobody_has_seen_is_taken_once_it_is_listed():
    superchip = machine("B200", arch="aarch64", driver="570.133.20")

    assert installed(plan(superchip, "torchaudio")) == (
        "torch==2.11.0+cu128",
        "torchaudio==2.11.0+cu128",
    )
    told = {
        found.candidate.name: found.reason.message
        for found in plan(superchip, "torchaudio").rejected
    }
    assert told["2.13.0+cu129"] == "no known source has torchaudio 2.11.0+cu129 for linux aarch64"
    listed = offering("cu129", torchaudio="2.11.0+cu129")
    assert installed(plan(superchip, "torchaudio", catalog=listed))[0] == "torch==2.13.0+cu129"


def test_windows_on_arm_has_torch_and_no_companions():
    made = plan(machine(driver=None, os="windows", arch="arm64"), "torch", "torchvision")

    assert (made.exit_code, made.reasons[0].code) == (3, "no-companion")
