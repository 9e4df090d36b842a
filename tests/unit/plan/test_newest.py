"""Check the reasons against a newer torch by removing their causes."""

import random
from functools import cache
from itertools import combinations, product

import pytest

from gpuinstall.api import choose
from gpuinstall.base.machine import Driver
from gpuinstall.base.request import Request
from gpuinstall.base.values import replace
from gpuinstall.base.versions import DriverVersion
from gpuinstall.plan import Plan
from tests.frozen import frozen_catalog
from tests.unit.plan.machines import CARDS, machine

BRANCHES = [str(branch) for branch, _ in frozen_catalog().drivers.branches]
DECISIVE = ("470.256.02", "535.183.01", "580.95.05", "595.58.03", "615.71.09")
"""The last drivers that support Kepler, CUDA 12, Pascal, and CUDA 13."""
SYSTEMS = [("linux", "x86_64"), ("linux", "aarch64"), ("windows", "x86_64")]
REQUESTS = [
    Request(),
    Request(("torch", "torchvision", "torchaudio")),
    Request(("torch<2.12",)),
    Request(python="3.10"),
    Request(allowed_backends=("cu118", "cu126", "cu130")),
    Request(("torch!=2.14.1",), allowed_backends=("cu118", "cu130")),
]


def torch(plan):
    assert plan.choice is not None
    return plan.choice.build.torch


def served(plan, asked):
    running = {run.index for run in plan.gpus if run.how != "none"}
    return replace(asked, gpus=tuple(gpu for gpu in asked.gpus if gpu.index in running))


@cache
def answers():
    cards = [(name,) for name in CARDS] + list(combinations(CARDS, 2))
    points = list(product(cards, BRANCHES, SYSTEMS, REQUESTS))
    found = []
    for names, driver, (os, arch), request in random.Random(7).sample(points, 200):
        asked = machine(*names, driver=driver, os=os, arch=arch)
        plan = choose(asked, request, frozen_catalog())
        if isinstance(plan, Plan):
            found.append((served(plan, asked), request, plan))
    return found


def saying(code):
    return [answer for answer in answers() if answer[2].reasons[0].code == code]


def with_driver(asked, driver):
    return replace(asked, driver=Driver(DriverVersion.parse(driver), found_via="nvml"))


def undriven(asked):
    return replace(asked, driver=None)


@cache
def best_with_any_driver(asked, request):
    """Return the newest torch for all GPUs of a machine with any driver."""
    plans = (
        choose(with_driver(asked, driver), request, frozen_catalog())
        for driver in DECISIVE
    )
    return max(torch(plan) for plan in plans if plan.status == "ok")


@pytest.mark.parametrize(
    ("code", "helps"),
    [("newest-but-driver-too-old", True), ("newest-but-no-code", False)],
)
def test_reason_mentions_driver_only_if_newer_driver_helps(code, helps):
    named = saying(code)
    false = [
        plan.reasons[0].message
        for asked, request, plan in named
        if (best_with_any_driver(undriven(asked), request) > torch(plan)) is not helps
    ]

    assert len(named) > 10
    assert false == []
