"""Properties of plans for all machines."""

import json

from hypothesis import given
from hypothesis import strategies as st

from gpuinstall.api import choose
from gpuinstall.base.request import Request
from gpuinstall.base.values import replace
from gpuinstall.catalog import load_catalog
from gpuinstall.machine.vendors import create_rules
from gpuinstall.plan.candidates import evaluate_build
from gpuinstall.plan.context import PlanContext
from gpuinstall.plan.demand import parse_request
from tests.unit.plan.machines import CARDS, machine

CATALOG = load_catalog()
BRANCHES = [str(branch) for branch, _ in CATALOG.drivers.branches]
SYSTEMS = [("linux", "x86_64"), ("linux", "aarch64"), ("windows", "x86_64")]
requests = st.builds(
    Request,
    requirements=st.sampled_from(
        [("torch",), ("torch", "torchvision"), ("torch", "torchaudio"), ("torch<2.10",)]
    ),
    python=st.sampled_from([None, "3.9", "3.10", "3.12", "3.15", ">=3.10,<3.13"]),
    backend=st.sampled_from([None, "cu118", "cu126", "cu130"]),
    allowed_backends=st.sampled_from([None, ("cu126",), ("cu128", "cu129")]),
)


@st.composite
def planned(draw):
    """Draw a machine, a request, and their plan."""
    names = draw(st.lists(st.sampled_from(sorted(CARDS)), min_size=1, max_size=4))
    os, arch = draw(st.sampled_from(SYSTEMS))
    driver = draw(st.sampled_from(BRANCHES))
    there = machine(*names, driver=driver, os=os, arch=arch)
    request = draw(requests)
    return there, request, choose(there, request, CATALOG)


@given(planned())
def test_selected_build_passes_every_rule(point):
    there, request, plan = point
    if plan.choice is None:
        return
    running = {run.index for run in plan.gpus if run.how != "none"}
    gpus = tuple(gpu for gpu in there.gpus if gpu.index in running)
    demand = parse_request(request, CATALOG, there)
    context = PlanContext(there, demand, create_rules(there, CATALOG, kinds=()), gpus)
    evaluated = evaluate_build(plan.choice.build, context)

    assert evaluated.reason is None
    assert len(evaluated.supported_gpus) == len(gpus)
    assert plan.choice.python in plan.choice.build.pythons


@given(planned(), st.randoms())
def test_plan_is_independent_of_gpu_order(point, shuffler):
    there, request, plan = point
    shuffled = list(there.gpus)
    shuffler.shuffle(shuffled)
    again = choose(replace(there, gpus=tuple(shuffled)), request, CATALOG)

    assert again == plan
    # The documents are identical too.
    assert json.dumps(again.to_dict()) == json.dumps(plan.to_dict())


@given(planned())
def test_each_rejected_build_has_one_reason(point):
    there, _, plan = point
    rejected = [rejection.candidate.name for rejection in plan.rejected]

    assert all(one.reason.code and one.reason.message for one in plan.rejected)
    assert len(rejected) == len(set(rejected))
    if plan.choice:
        builds = CATALOG.builds_for(there.os, there.arch)
        cuda = {build.name for build in builds if build.backend.kind == "cuda"}
        assert {*rejected, plan.choice.build.name} == cuda


@given(planned())
def test_rejected_plan_has_reason(point):
    _, _, plan = point
    is_refused = plan.choice is None

    assert (plan.status == "refused") == is_refused == (plan.exit_code in {3, 8})
    assert plan.reasons
