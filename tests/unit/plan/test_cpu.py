"""The CPU build: only where there is no GPU, on macOS, or where it is asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuinstall.api import Refusal, choose
from gpuinstall.base.backend import CPU
from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Environment, Gpu, Machine
from gpuinstall.base.request import Request
from gpuinstall.catalog import DEFAULT_INDEX, Catalog
from gpuinstall.plan import Plan
from tests.frozen import frozen_catalog
from tests.unit.plan.machines import machine


def plan(asked: Machine, catalog: Catalog | None = None, **request: Any) -> Plan | Refusal:
    return choose(asked, Request(**request), catalog or frozen_catalog())


def installed(made: Plan | Refusal) -> tuple[str, str | None]:
    assert made.choice is not None
    return made.choice.requirements[0], made.choice.index


@pytest.mark.parametrize(
    ("os", "arch", "requirement", "index"),
    [
        ("linux", "x86_64", "torch==2.15.0+cpu", "https://download.pytorch.org/whl/cpu"),
        ("linux", "aarch64", "torch==2.15.0+cpu", "https://download.pytorch.org/whl/cpu"),
        ("windows", "x86_64", "torch==2.15.0+cpu", "https://download.pytorch.org/whl/cpu"),
        ("macos", "arm64", "torch==2.15.0", "https://download.pytorch.org/whl/cpu"),
        ("macos", "x86_64", "torch==2.2.2", "https://download.pytorch.org/whl/cpu"),
    ],
)
def test_a_machine_without_a_gpu_gets_the_newest_cpu_build(os, arch, requirement, index):
    made = plan(machine(driver=None, os=os, arch=arch))

    assert (made.status, made.gpus) == ("cpu", ())
    assert installed(made) == (requirement, index)


def test_macos_gets_it_whatever_card_is_in_the_machine():
    made = plan(machine("GTX 980", driver=None, os="macos", arch="x86_64"))

    assert (made.status, made.reasons[0].code) == ("cpu", "macos")


def test_it_is_given_to_a_working_gpu_only_when_it_is_asked_for():
    asked = machine("RTX 4090")

    assert plan(asked).status == "ok"
    assert plan(asked, backend="cpu").status == "cpu"
    assert (
        plan(asked, requirements=("torch==2.9.1+cpu",)).choice
        == plan(asked, requirements=("torch==2.9.1",), backend="cpu").choice
    )


def test_a_gpu_of_another_maker_is_named_in_a_warning():
    radeon = Gpu(0, "AMD Radeon RX 7900", pci_id="1002:744c", found_via="pci")
    made = plan(machine(radeon, driver=None))

    assert made.status == "cpu"
    assert [warning.code for warning in made.warnings] == ["gpu-not-supported"]


@pytest.mark.parametrize(
    "signs",
    [
        {"environment": Environment(container="docker")},
        {"signs": ("CI",)},
        {"problems": (Finding("gpu-not-ours", "8 cards on the bus are not ours", blocking=False),)},
    ],
)
def test_a_machine_that_looks_like_a_builder_is_warned(signs):
    asked = machine(driver=None, **signs)

    assert "looks-like-a-builder" in {warning.code for warning in plan(asked).warnings}
    assert "looks-like-a-builder" not in {
        warning.code for warning in plan(asked, backend="cpu").warnings
    }
    assert "looks-like-a-builder" not in {
        warning.code for warning in plan(asked, backend="cu126").warnings
    }


def test_in_a_container_the_warning_names_the_way_to_give_it_gpus():
    made = plan(machine(driver=None, environment=Environment(container="docker")))

    assert "Container Toolkit" in made.warnings[0].message


def test_a_cuda_backend_can_be_built_for_a_machine_elsewhere():
    made = plan(machine(driver=None), backend="cu126")

    assert (made.status, made.exit_code, made.gpus) == ("ok", 0, ())
    assert installed(made) == ("torch==2.14.1+cu126", "https://download.pytorch.org/whl/cu126")
    assert made.reasons[0].code == "no-gpu-here"


@pytest.mark.parametrize("backend", ["rocm7.2", "xpu"])
def test_a_build_for_another_makers_gpus_is_refused_on_a_machine_that_has_its_own(
    backend,
):
    made = plan(machine("H100"), backend=backend)

    assert (made.status, made.exit_code, made.reasons[0].code) == (
        "refused",
        3,
        "backend-of-another-maker",
    )
    assert "H100" in made.reasons[0].message
    assert "Leave out --backend" in (made.fix or "")


def test_where_no_source_has_a_cpu_build_the_default_index_cuda_build_is_taken_with_its_size():
    catalog = frozen_catalog()
    builds = tuple(
        replace(build, source=DEFAULT_INDEX, labelled=False)
        if build.on_default_index
        else replace(build, absent="unreachable")
        for build in catalog.builds
    )
    made = plan(machine(driver=None), replace(catalog, builds=builds))

    assert installed(made) == ("torch==2.15.0", None)
    assert (made.status, [warning.code for warning in made.warnings]) == (
        "cpu",
        ["cuda-build-without-gpu"],
    )
    message = made.warnings[0].message
    assert all(way in message for way in ("3 GB", "--backend cpu --torch-index", "--backend cu132"))


def test_a_cpu_build_that_was_asked_for_and_is_in_no_source_is_refused_with_the_ways_out():
    catalog = frozen_catalog()
    builds = tuple(
        replace(build, source=DEFAULT_INDEX, labelled=False)
        if build.on_default_index
        else replace(build, absent="withdrawn")
        for build in catalog.builds
    )
    made = plan(machine(driver=None), replace(catalog, builds=builds), backend="cpu")

    assert (made.status, made.choice, made.exit_code) == ("refused", None, 3)
    assert all(
        way in (made.fix or "") for way in ("--backend cpu --torch-index", "--backend cu126")
    )


def test_an_older_cpu_build_is_taken_before_a_newer_cuda_one():
    catalog = frozen_catalog()
    builds = tuple(
        build
        if build.backend == CPU and str(build.torch) == "2.13.0"
        else replace(build, absent=None if build.on_default_index else "unreachable")
        for build in catalog.builds
    )

    assert (
        installed(plan(machine(driver=None), replace(catalog, builds=builds)))[0]
        == "torch==2.13.0+cpu"
    )


def test_a_team_that_allows_no_cpu_build_gets_none():
    made = plan(machine(driver=None), allowed_backends=("cu126",))

    assert (made.exit_code, made.reasons[0].code) == (3, "not-allowed")


def test_a_cuda_backend_on_macos_is_a_contradiction():
    made = plan(machine(driver=None, os="macos", arch="arm64"), backend="cu126")

    assert made.exit_code == 3
    assert "no build of torch is known for backend cu126 on macos arm64" in made.reasons[0].message
