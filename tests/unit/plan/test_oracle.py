"""The selected build, checked by a second implementation of the rules."""

import random
import re
from collections.abc import Callable, Collection
from functools import cache
from itertools import combinations, product
from typing import Any, NamedTuple

import pytest

from gpuinstall.api import choose
from gpuinstall.base.machine import Environment
from gpuinstall.base.request import Request
from tests.frozen import facts, frozen_catalog
from tests.unit.plan.machines import CARDS, machine

BRANCHES = [418, *map(int, facts()["driver_branch_to_cuda"])]
PYTHONS = (None, *(f"3.{minor}" for minor in range(8, 16)))
PLATFORMS = {
    ("linux", "x86_64"): "linux_x86_64",
    ("linux", "aarch64"): "linux_aarch64",
    ("windows", "x86_64"): "win_amd64",
    ("wsl", "x86_64"): "linux_x86_64",
}
GPUS = {
    name: float(capability) for name, (capability, _) in CARDS.items() if name != "Orin"
}


Torch = tuple[int, ...]
Minor = int
"""Minor version of a Python: 12 is 3.12."""


class RequestCase(NamedTuple):
    """Requirements, their companions, and allowed torch versions."""

    requirements: tuple[str, ...]
    companions: tuple[str, ...] = ()
    allows: Callable[[Torch, Minor, str], bool] = lambda _torch, _python, _os: True
    pythons: Collection[Minor] = range(7, 16)
    """Default Pythons whose markers evaluate as for the latest Python."""


ASKED = (
    RequestCase(("torch",)),
    RequestCase(("torch==2.9.*",), (), lambda torch, _python, _os: torch[:2] == (2, 9)),
    RequestCase(
        ("torch<2.8", "torch!=2.6.0"),
        (),
        lambda torch, _python, _os: torch < (2, 8) and torch != (2, 6, 0),
    ),
    RequestCase(("torch", "torchvision"), ("torchvision",)),
    RequestCase(
        ("torch>=2.4", "torchvision", "torchaudio"),
        ("torchvision", "torchaudio"),
        lambda torch, *_: torch >= (2, 4),
    ),
    RequestCase(("torchaudio", "triton"), ("torchaudio", "triton")),
    RequestCase(("triton",), ("triton",)),
    RequestCase(
        (
            'torch<2.10; sys_platform == "win32"',
            'torch>=2.9; platform_machine == "aarch64"',
            "torch",
        ),
        (),
        lambda torch, _python, os: (
            torch < (2, 10) if os == "windows" else os != "aarch64" or torch >= (2, 9)
        ),
    ),
    RequestCase(
        ('torch<2.7; python_version < "3.11"', 'torch>=2.9; python_version >= "3.11"'),
        (),
        lambda torch, python, _os: torch < (2, 7) if python < 11 else torch >= (2, 9),
        range(11, 16),
    ),
    RequestCase(
        (
            'torch==2.9.1; python_version == "3.12"',
            'torchaudio; python_version != "3.12"',
        ),
        ("torchaudio unless 3.12",),
        lambda torch, python, _os: python != 12 or torch == (2, 9, 1),
        {*range(7, 16)} - {12},
    ),
)


class Point(NamedTuple):
    """A machine, Python, and request of the grid."""

    cards: tuple[str, ...]
    branch: int
    system: tuple[str, str]
    python: str | None
    asked: int

    @property
    def request(self):
        return Request(ASKED[self.asked].requirements, python=self.python)

    @property
    def is_windows(self):
        """Return whether Windows has the driver."""
        return self.system[0] in {"windows", "wsl"}

    def machine(self):
        os, arch = self.system
        wsl = Environment(wsl=os == "wsl")
        return machine(
            *self.cards,
            driver=str(self.branch),
            os=os.replace("wsl", "linux"),
            arch=arch,
            environment=wsl,
        )


@cache
def builds():
    found: dict[str, list[tuple[tuple[int, ...], dict[str, Any]]]] = {}
    for torch, release in facts()["torch_releases"].items():
        for build in release["builds"]:
            if build["confidence"] != "unverified":
                found.setdefault(build["platform"], []).append(
                    (tuple(map(int, torch.split("."))), build)
                )
    return found


@cache
def driver_cuda():
    return {
        int(branch): float(cuda)
        for branch, cuda in facts()["driver_branch_to_cuda"].items()
    }


def driven(capability, point):
    """Return whether a driver branch supports a GPU."""
    last = 470 if capability < 4 else 580 if capability < 7.5 else 999
    first = facts()["first_driver"].get(str(capability), {})
    system = "windows" if point.is_windows else "linux"
    known = first.get(system) or first.get("linux", "0").split(".")[0]
    return int(known.split(".")[0]) <= point.branch <= last


def fits(torch, build, point):
    floors = {"11": (450, 452), "12": (525, 528), "13": (580, 580)}
    floor = floors[build["cuda_toolkit"][:2]][point.is_windows]
    pythons = ASKED[point.asked].pythons
    if point.python:
        pythons = [int(point.python[2:])]
    return point.branch >= floor and any(
        installs(torch, build, point, python) for python in pythons
    )


def installs(torch, build, point, python):
    """Return whether a build and its companions have wheels for a Python."""
    asked = ASKED[point.asked]
    os = "aarch64" if point.system[1] == "aarch64" else point.system[0]
    companions = [
        name.removesuffix(" unless 3.12")
        for name in asked.companions
        if python != 12 or " " not in name
    ]
    return (
        serves(build["pythons"], python)
        and asked.allows(torch, python, os)
        and all(has_companion(name, torch, build, python) for name in companions)
    )


def serves(tags, python):
    """Return whether tags include a Python; ``py3`` includes all."""
    plain = {tag.split(" ")[0].removesuffix("m") for tag in tags}
    return (
        f"cp3{python}" in plain
        or "py3" in plain
        or ("cp312+" in plain and python in range(12, 16))
    )


def has_companion(name, torch, build, python):
    told = facts()["torch_releases"][".".join(map(str, torch))]["companions"][name]
    versions = {
        found[0]
        for text in told[:1]
        if (found := re.search(r"[0-9]+\.[0-9]+\.[0-9]+", text))
    }
    if name == "torchvision" and torch >= (2, 14):
        versions |= {"0.29.1", "0.29.2"}
    if name == "torchaudio" and "2.11.0" in versions:
        last = facts()["torchaudio_2.11.0"]
        if (
            build["tag"]
            not in last["aarch64" if build["platform"] == "linux_aarch64" else "tags"]
        ):
            return False
    wheels = facts()["companions"][name]
    return any(
        serves(wheels[version].get(build["platform"], []), python)
        for version in versions
    )


def runs(build, card, branch):
    chip = round(GPUS[card] * 10)
    if (
        not float(build.get("cudnn_min_cc") or 0)
        <= GPUS[card]
        <= float(build.get("cudnn_max_cc") or 99)
    ):
        return False
    sass = [int(code.removeprefix("sm_")) for code in build["sass"]]
    ptx = [int(code.removeprefix("compute_")) for code in build["ptx"]]
    toolkit = float(".".join(build["cuda_toolkit"].split(".")[:2]))
    compiled = driver_cuda().get(branch, 0) >= toolkit and any(
        code <= chip for code in ptx
    )
    return any(code // 10 == chip // 10 and code <= chip for code in sass) or compiled


def order(build, point, served):
    """Return the sort key of a build of one torch version."""
    chips = {GPUS[point.cards[place]] for place in served}
    toolkit = float(".".join(build["cuda_toolkit"].split(".")[:2]))
    above = toolkit > driver_cuda().get(point.branch, 99)
    ptx = any(
        all(int(code[3:]) // 10 != int(chip) for code in build["sass"])
        for chip in chips
    )
    first = facts()["run_time_compilers"]
    unknown = any(toolkit < float(first.get(str(chip), 0)) for chip in chips)
    return (ptx, unknown, above, toolkit if above else -toolkit)


class Best(NamedTuple):
    """The result of the rules."""

    gpus: tuple[int, ...]
    """The GPUs to support, by index."""
    torch: Torch
    tag: str


@cache
def expected(point):
    """Return the served GPUs and the best build, or None if nothing runs."""
    usable = [
        place for place, card in enumerate(point.cards) if driven(GPUS[card], point)
    ]
    choices = []
    for torch, build in builds()[PLATFORMS[point.system]]:
        served = tuple(
            place for place in usable if runs(build, point.cards[place], point.branch)
        )
        if served and fits(torch, build, point):
            highest = max(GPUS[point.cards[place]] for place in served)
            memory = sum(CARDS[point.cards[place]][1] for place in served)
            places = [-place for place in served]
            merit = highest, memory, len(served), places, torch
            choices.append((merit, order(build, point, served), served, build["tag"]))
    if not choices:
        return None
    best = max(merit for merit, *_ in choices)
    _, served, tag = min(choice[1:] for choice in choices if choice[0] == best)
    return Best(served, best[-1], tag)


@cache
def grid():
    sets = (
        [(name,) for name in GPUS]
        + list(combinations(GPUS, 2))
        + [("P40", "P40", "RTX 5090"), ("K80", "V100", "T4")]
    )
    points = [
        Point(*point)
        for point in product(sets, BRANCHES, PLATFORMS, PYTHONS, range(len(ASKED)))
    ]
    return random.Random(5).sample(points, 300)


@cache
def answers():
    catalog = frozen_catalog()
    return [
        (point, choose(point.machine(), point.request, catalog)) for point in grid()
    ]


def chosen(plan):
    """Return the result of a plan."""
    if plan.choice is None:
        return None
    running = tuple(run.index for run in plan.gpus if run.how != "none")
    build = plan.choice.build
    return Best(running, build.torch.release, build.backend.tag)


def test_plan_selects_newest_torch_and_best_build():
    wrong = [
        (point, found)
        for point, plan in answers()
        if (found := chosen(plan)) != expected(point)
    ]

    assert wrong[:3] == []


def test_plan_status_depends_on_number_of_supported_gpus():
    for point, plan in answers():
        best = expected(point)
        status = "refused"
        if best:
            status = "ok" if len(best.gpus) == len(point.cards) else "partial"
        assert plan.status == status, point
        assert (plan.exit_code == 0) == (best is not None)
        assert plan.exit_code in {0, 3, 8}


@pytest.mark.parametrize("card", sorted(GPUS))
def test_comparison_grid_covers_every_supported_gpu(card):
    assert card == "GT 710" or any(
        card in point.cards and expected(point) for point in grid()
    )
