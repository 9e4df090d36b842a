"""What holds for every machine."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuinstall.api import choose
from gpuinstall.base.request import Request
from gpuinstall.base.values import replace
from gpuinstall.base.versions import DriverVersion
from gpuinstall.catalog import load_catalog
from gpuinstall.machine.vendors import rules_for
from gpuinstall.plan.candidates import judge_build
from gpuinstall.plan.context import PlanContext
from gpuinstall.plan.demand import parse_request
from tests.unit.plan.machines import CARDS, machine

BRANCHES = [str(branch) for branch, _ in load_catalog().drivers.branches]
cards = st.lists(st.sampled_from(sorted(CARDS)), min_size=1, max_size=4)
drivers = st.sampled_from(BRANCHES)
systems = st.sampled_from(
    [("linux", "x86_64"), ("linux", "aarch64"), ("windows", "x86_64")]
)
requests = st.builds(
    Request,
    requirements=st.sampled_from(
        [("torch",), ("torch", "torchvision"), ("torch", "torchaudio"), ("torch<2.10",)]
    ),
    python=st.sampled_from([None, "3.9", "3.10", "3.12", "3.15", ">=3.10,<3.13"]),
    backend=st.sampled_from([None, "cu118", "cu126", "cu130"]),
    allowed_backends=st.sampled_from([None, ("cu126",), ("cu128", "cu129")]),
)


def make(names, driver, system):
    return machine(*names, driver=driver, os=system[0], arch=system[1])


def plan(asked, request=None):
    return choose(asked, request or Request(), load_catalog())


def torch(made):
    assert made.choice is not None
    return made.choice.build.torch


@given(cards, drivers, systems, requests)
def test_no_rule_rejects_what_is_chosen(names, driver, system, request):
    asked = make(names, driver, system)
    made = plan(asked, request)
    if made.choice is None:
        return
    chosen = made.choice
    running = {run.index for run in made.gpus if run.how != "none"}
    gpus = tuple(gpu for gpu in asked.gpus if gpu.index in running)
    demand = parse_request(request, load_catalog().family, asked)
    context = PlanContext(asked, demand, rules_for(asked, load_catalog()), gpus)
    judged = judge_build(chosen.build, context, gpus)

    assert judged.reason is None
    assert len(judged.served_gpus) == len(gpus)
    assert chosen.python in chosen.build.pythons


@given(cards, drivers, systems, st.randoms())
def test_the_order_of_the_gpus_does_not_matter(names, driver, system, shuffler):
    asked = make(names, driver, system)
    shuffled = list(asked.gpus)
    shuffler.shuffle(shuffled)

    assert plan(replace(asked, gpus=tuple(shuffled))) == plan(asked)


@given(cards, drivers, systems, requests)
def test_the_same_input_gives_the_same_plan_byte_for_byte(
    names, driver, system, request
):
    first, second = (
        json.dumps(plan(make(names, driver, system), request).to_dict())
        for _ in range(2)
    )

    assert first == second


@settings(max_examples=50)
@given(cards, drivers, systems, requests)
def test_every_build_but_the_chosen_one_is_rejected_once_with_a_reason(
    names, driver, system, request
):
    asked = make(names, driver, system)
    made = plan(asked, request)
    rejected = [rejection.candidate.name for rejection in made.rejected]

    assert all(
        rejection.reason.code and rejection.reason.message
        for rejection in made.rejected
    )
    assert len(rejected) == len(set(rejected))
    if made.choice:
        builds = load_catalog().builds_for(asked.os, asked.arch)
        cuda = {build.name for build in builds if build.backend.kind == "cuda"}
        assert {*rejected, made.choice.build.name} == cuda


@given(cards, drivers, systems, requests)
def test_a_refusal_has_a_cause_and_says_what_to_do(names, driver, system, request):
    made = plan(make(names, driver, system), request)

    assert (
        (made.status == "refused")
        == (made.choice is None)
        == (made.exit_code in {3, 8})
    )
    assert made.reasons
    assert made.choice is not None or made.fix


def test_a_branch_named_alone_is_its_newest_release():
    assert plan(machine("RTX 5090", driver="570")).status == "ok"
    assert str(DriverVersion.parse("570")) == "570"
