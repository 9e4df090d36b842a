"""Plans for machines and requests, from ``cases/*.txt``.

A paragraph starts with its title, a ``#`` line. A line without indentation is a case,
``MACHINE: REQUEST``. The indented lines after it are the complete expected output.
These files are written by hand.

MACHINE lists the GPUs and other facts: ``2 × A100 + T4, driver 535.183.01, windows``.
The defaults are driver 580.95.05, Linux, and x86-64. Facts of a GPU are in parentheses.
REQUEST has the arguments of ``gpuinstall plan``. ``--all`` adds a reason for each kind
of rejected build, and ``--relax`` the nearest satisfiable request. ``said by`` gives
the file or variable that sets the Python and backend, and ``given`` the listing of the
sources.
"""

import argparse
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gpuinstall.api import choose
from gpuinstall.base.errors import GpuInstallError
from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Environment, JetsonRelease, MigDevice
from gpuinstall.base.request import Request
from gpuinstall.base.requirement import TextOrigin
from gpuinstall.base.values import replace
from gpuinstall.base.versions import ComputeCapability
from gpuinstall.catalog import DEFAULT_INDEX
from gpuinstall.catalog.pages import parse_folder
from gpuinstall.plan import Plan
from gpuinstall.plan.relax import find_nearest_request
from tests.frozen import frozen_catalog
from tests.unit.plan.machines import card, machine

CASES = Path(__file__).with_name("cases")
UNREAD = parse_folder(
    ["torch-2.15.0-cp312-cp312-linux_x86_64.whl"],
    Path("/wheels").absolute(),  # with a drive on Windows
    "/wheels",
)

CARD_FACTS: dict[str, dict[str, Any]] = {
    "not driven": {"found_via": "pci"},
    "sm unknown": {"compute_capability": None},
    "sm_130": {"compute_capability": ComputeCapability(13, 0)},
    "two slices": {
        "mig": True,
        "mig_devices": (MigDevice("MIG-1111"), MigDevice("MIG-2222")),
    },
    "a Radeon": {
        "name": "AMD Radeon RX 7900",
        "pci_id": "1002:744c",
        "compute_capability": None,
    },
}
FACTS: dict[str, dict[str, Any]] = {
    "no driver": {"driver": None},
    "windows": {"os": "windows"},
    "macos": {"os": "macos"},
    "aarch64": {"arch": "aarch64"},
    "arm64": {"arch": "arm64"},
    "musl": {"libc": "musl"},
    "wsl": {"environment": Environment(wsl=True)},
    "docker": {"environment": Environment(container="docker")},
    "kubernetes": {"environment": Environment(container="kubernetes")},
    "built by CI": {"signs": ("CI",)},
    "no python": {"pythons": ()},
    "others' cards": {
        "problems": (Finding("gpu-not-ours", "7 cards are others'", blocking=False),)
    },
    "GPU 1 lost": {
        "problems": (Finding("gpu-lost", "GPU 1 fell off the bus", gpus=(1,)),)
    },
    "GPU 7 lost": {
        "problems": (Finding("gpu-lost", "GPU 7 fell off the bus", gpus=(7,)),)
    },
    "driver updated": {
        "problems": (
            Finding(
                "driver-library-mismatch", "versions differ", fixes=("sudo reboot",)
            ),
        )
    },
}


def of_backend(tag):
    return lambda build: build.backend.tag == tag


def elsewhere(build):
    return not build.on_default_index


LISTINGS = {
    "all from /srv/wheels": (lambda _: True, {"source": "/srv/wheels"}),
    "cu134 listed": (of_backend("cu134"), {"absent": None}),
    "cu130 unread": (of_backend("cu130"), {"unread": UNREAD}),
    "cu130 unreachable": (of_backend("cu130"), {"absent": "unreachable"}),
    "the default index alone": (elsewhere, {"absent": "unreachable"}),
    "its builds without a label": (
        lambda build: build.on_default_index,
        {"source": DEFAULT_INDEX, "is_labeled": False},
    ),
    "the default index and torch 2.13.0+cpu alone": (
        lambda build: elsewhere(build) and build.name != "2.13.0+cpu",
        {"absent": "unreachable"},
    ),
}


def paragraphs():
    for file in sorted(CASES.glob("*.txt")):
        for text in re.split(r"\n\n(?=#)", file.read_text("utf-8")):
            yield pytest.param(
                text.strip("\n"), id=text.partition("\n")[0].lstrip("# ")
            )


@pytest.mark.parametrize("paragraph", list(paragraphs()))
def test_plan_matches_expected_case(paragraph):
    lines = paragraph.splitlines()
    answered = []
    for line in lines:
        if not line.startswith(" "):
            answered.append(line)
        if line and not line.startswith((" ", "#")):
            answered += [f"    {told}" for told in answer(line)]

    assert answered == lines


def answer(case):
    """Yield the expected lines of a case."""
    on, _, words = case.partition(": ")
    words, _, change = words.partition(" given ")
    there, catalog = read_machine(on), read_catalog(change)
    try:
        options, request = read_request(words)
        plan = choose(there, request, catalog)
    except GpuInstallError as error:
        yield f"error {error.exit_code} {error.code}: {error.message}"
        yield from (f"do {line}" for line in (error.hint or "").splitlines())
        return
    yield outcome(plan)
    if any(run.runs for run in plan.gpus):
        yield ", ".join(
            f"GPU {run.index} {run.how} {run.runs or ''}".rstrip() for run in plan.gpus
        )
    yield from (f"{reason.code}: {reason.message}" for reason in plan.reasons)
    if isinstance(plan, Plan):
        yield from (f"warning {each.code}: {each.message}" for each in plan.warnings)
    yield from (f"do {line}" for line in (plan.fix or "").splitlines())
    if plan.rejected:
        yield from passed_over(plan.rejected, each=options.all)
    if options.relax:
        relaxed = find_nearest_request(
            request, catalog, lambda other: choose(there, other, catalog)
        )
        yield f"relaxed {relaxed and shlex.join(map(str, relaxed.request.requirements))}"
        if relaxed:
            yield f"without {shlex.join(map(str, relaxed.dropped_requirements))}"


def outcome(plan):
    if plan.choice is None:
        return f"refused {plan.exit_code}"
    choice = plan.choice
    official = f"https://download.pytorch.org/whl/{choice.build.backend.tag}"
    source = (
        ""
        if choice.index == official
        else f", from {choice.index or 'the default index'}"
    )
    return f"{plan.status} {shlex.join(map(str, choice.requirements))}, Python {choice.python}{source}"


def passed_over(rejected, *, each):
    counts = Counter(rejection.reason.code for rejection in rejected)
    if not each:
        yield "passed over " + ", ".join(
            f"{number} {code}" for code, number in counts.items()
        )
        return
    for rejection in rejected:
        if number := counts.pop(rejection.reason.code, 0):
            yield f"passed over {number} {rejection.reason.code}, {rejection.candidate.name}: {rejection.reason.message}"


def read_request(words):
    """Return the options of the runner and the request."""
    options = argparse.ArgumentParser(exit_on_error=False)
    options.add_argument("requirements", nargs="*")
    for name in ("python", "backend", "gpus", "allowed", "prefer", "pythons"):
        options.add_argument(f"--{name}")
    for name in ("all", "relax", "no-managed-python"):
        options.add_argument(f"--{name}", action="store_true")
    options.add_argument("-c", dest="constraints", action="append", default=[])
    words, _, file = words.partition(" said by ")
    read = options.parse_args(shlex.split(words))
    said = {"python": read.python, "backend": read.backend}
    return read, Request(
        tuple(read.requirements),
        python=read.python,
        backend=read.backend,
        preferred_backend=read.prefer,
        preferred_pythons=words_of(read.pythons) or (),
        managed_pythons=not read.no_managed_python,
        constraints=tuple(read.constraints),
        gpus=words_of(read.gpus),
        allowed_backends=words_of(read.allowed),
        places={
            value: TextOrigin(file or f"--{name} {value}")
            for name, value in said.items()
            if value
        },
    )


def words_of(text):
    return None if text is None else tuple(filter(None, text.split(",")))


def read_machine(text):
    cards, *facts = text.split(", ")
    known: dict[str, Any] = {}
    libcuda = None
    for fact in facts:
        kind, _, value = fact.partition(" ")
        if fact in FACTS:
            known |= FACTS[fact]
        elif kind in {"driver", "cuda", "glibc"}:
            known[kind] = value
        elif kind == "libcuda":
            libcuda = value
        elif kind == "python":
            known["pythons"] = tuple(value.split())
        elif kind == "l4t":
            known |= {
                "arch": "aarch64",
                "environment": Environment(jetson=JetsonRelease(value)),
            }
        else:
            known["distribution"] = fact
    there = machine(*read_cards(cards), **known)
    if libcuda and there.driver:
        there = replace(there, driver=replace(there.driver, libcuda=libcuda))
    return there


def read_cards(text):
    names = []
    for part in () if text == "no GPU" else text.split(" + "):
        count, _, name = part.rpartition(" × ")
        names += [name] * int(count or 1)
    for index, words in enumerate(names):
        name, _, fact = words.rstrip(")").partition(" (")
        yield replace(card(name, index), **(CARD_FACTS[fact] if fact else {}))


def read_catalog(words):
    """Return the frozen catalog with changes of a listing."""
    catalog = frozen_catalog()
    for change in filter(None, words.split(", ")):
        subject, _, rest = change.partition(" ")
        if subject == "torch-index":
            catalog = replace(catalog, torch_index=rest)
        elif rest.startswith("lists "):
            catalog = with_companions(catalog, subject, rest.removeprefix("lists "))
        else:
            catalog = with_builds(catalog, *LISTINGS[change])
    return catalog


def with_companions(catalog, tag, words):
    offered = dict(catalog.offered)
    for companion in words.split(" and "):
        name, _, version = companion.partition(" ")
        offered[name, tag] = frozenset(version.split())
    source = {"source": f"{catalog.torch_index}/{tag}"}
    return with_builds(replace(catalog, offered=offered), of_backend(tag), source)


def with_builds(catalog, chosen, change):
    builds = [
        replace(build, **change) if chosen(build) else build for build in catalog.builds
    ]
    return replace(catalog, builds=tuple(builds))
