"""The request nearest to one that no build serves."""

from __future__ import annotations

from gpuinstall.api import choose
from gpuinstall.base.machine import Machine
from gpuinstall.base.request import Request
from gpuinstall.plan.relax import RelaxedRequest, nearest_request
from tests.frozen import frozen_catalog
from tests.unit.plan.machines import machine

NEW_CARD = machine("RTX 5090")
OLD_DRIVER = machine("T4", driver="550.163.01")


def nearest(on: Machine, *requirements: str, constraints: tuple[str, ...] = ()) -> RelaxedRequest:
    catalog = frozen_catalog()
    request = Request(requirements, constraints=constraints)
    relaxed = nearest_request(request, catalog, lambda other: choose(on, other, catalog))
    assert relaxed is not None, requirements
    return relaxed


def test_the_nearest_torch_is_above_before_below():
    rows = [
        (NEW_CARD, ("torch==2.0.1",), "2.7.1"),
        (NEW_CARD, ("torch<2.1",), "2.7.1"),
        (NEW_CARD, ("torch>=2.0,<2.3",), "2.7.1"),
        (NEW_CARD, ("torch==1.10.1", "torchaudio==0.10.1"), "2.7.1"),
        (NEW_CARD, ("torchvision==0.15.2",), "2.7.1"),
        (machine("H100"), ("torch==1.13.1",), "2.0.1"),
        (machine("RTX 4090", driver="535.183.01"), ("torch==1.12.1",), "1.13.1"),
        (OLD_DRIVER, ("torch>=2.15",), "2.14.1"),
        (machine("GTX 1080"), ("torch==2.15.0",), "2.14.1"),
    ]
    wrong = []
    for on, requirements, expected in rows:
        torch = nearest(on, *requirements).torch
        if torch != expected:
            wrong.append((requirements, torch, expected))

    assert wrong == []


def test_what_goes_with_torch_moves_with_it():
    relaxed = nearest(
        NEW_CARD,
        "torch==2.0.1+cu118",
        "torchvision==0.15.2+cu118",
        "xformers==0.0.20",
        "nvidia-cublas-cu11==11.10.3.66",
        "numpy==1.23.5",
    )

    assert relaxed.request.requirements == (
        "torch==2.7.1",
        "torchvision",
        "xformers",
        "numpy==1.23.5",
    )
    assert relaxed.moved == (
        "torch==2.0.1+cu118",
        "torchvision==0.15.2+cu118",
        "xformers==0.0.20",
        "nvidia-cublas-cu11==11.10.3.66",
    )


def test_a_companion_that_the_nearest_torch_allows_stays():
    relaxed = nearest(machine("H100"), "torch==1.13.1", "triton==2.0.0")

    assert relaxed.request.requirements == ("torch==2.0.1", "triton==2.0.0")
    assert relaxed.moved == ("torch==1.13.1",)


def test_markers_and_extras_stay():
    relaxed = nearest(NEW_CARD, 'torch[opt-einsum]==2.0.1 ; sys_platform == "linux"')

    assert relaxed.request.requirements == ('torch[opt-einsum]==2.7.1 ; sys_platform == "linux"',)


def test_constraints_give_way_too():
    relaxed = nearest(NEW_CARD, "numpy", constraints=("torch==2.0.1", "torchvision==0.15.2"))

    assert relaxed.request.requirements == ("numpy", "torch==2.7.1")
    assert relaxed.request.constraints == ()
    assert relaxed.moved == ("torch==2.0.1", "torchvision==0.15.2")


def test_no_torch_serves_what_another_limit_excludes():
    catalog = frozen_catalog()
    requests = [
        Request(("numpy==1.23.5",)),
        Request(("torch==9.9",)),
        Request(("torch==2.0.1",), python="3.8"),
        Request(("torch==2.0.1",), backend="cu118"),
    ]
    for request in requests:
        relaxed = nearest_request(request, catalog, lambda other: choose(NEW_CARD, other, catalog))
        assert relaxed is None


def test_a_refusal_offers_the_nearest_torch_and_not_the_cpu():
    rejected = choose(NEW_CARD, Request(("torch==2.0.1", "torchvision==0.15.2")), frozen_catalog())

    assert rejected.fix == "Run it again with --relax: torch 2.7.1, the nearest that runs here"


def test_a_refusal_of_an_old_driver_names_the_driver_before_another_torch():
    rejected = choose(OLD_DRIVER, Request(("torch>=2.15",)), frozen_catalog())

    assert (rejected.fix or "").splitlines()[:3] == [
        "Run it again with --cuda-compat: torch 2.15.0+cu130 with cuda-compat 13.0, without root",
        "Update the NVIDIA driver to 580 or newer",
        "Run it again with --relax: torch 2.14.1, the nearest that runs here",
    ]
