"""Tests of the sentences about an answer, which nothing reads or resolves."""

from typing import Any

import pytest
from packaging.pylock import Package
from packaging.version import Version

from gpuinstall.base.errors import InstallationError, NoBuildError
from gpuinstall.base.request import Request
from gpuinstall.base.values import replace
from gpuinstall.catalog import load_catalog
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.lock.resolve.explain import (
    explain_build,
    explain_older,
    explain_refusal,
    find_doubts,
)
from gpuinstall.lock.resolve.facts import Answer, Fact, Facts, Found, Newest, Refused
from gpuinstall.lock.resolve.question import create_question
from gpuinstall.lock.uv.conflict import Conflict
from gpuinstall.lock.uv.edges import UvLog
from gpuinstall.machine.options import machine_from_options
from tests.lab.parsed import required

OWN = "gpuinstall-build"


def make_question(*words, driver="580.95.05"):
    machine = machine_from_options(("RTX 4090",), driver, glibc="2.35")
    request = Request(words, python="3.12")
    one = LockRequest(machine, request, load_catalog())
    return create_question(one, one.plan)


def read_edges(edges):
    return UvLog({tuple(key.split()): required(*texts) for key, texts in edges.items()})


def find_answer(words, versions, edges, *, driver="580.95.05", torch="", **fields: Any):
    """Return an answer with the first build of a torch version."""
    question = make_question(*words, driver=driver)
    builds = {f"{one.torch}+{one.backend}": one for one in question.builds}
    label = next(one for one in builds if one.startswith(torch))
    rows = {"torch": label, **versions}
    answer = Answer(
        [Package(name=name, version=Version(one)) for name, one in rows.items()],
        fields.pop("missing_extras", ()),
        builds[label],
        label,
        frozenset(),
    )
    facts = Facts.from_facts(fields.pop("facts", ()))
    moving = fields.pop("moving", {})
    return Found(
        replace(question, moving=moving),
        answer,
        facts | Facts(log=read_edges(edges)),
        builds,
        question.catalog.family,
        **fields,
    )


def list_sentences(found):
    reasons = [*explain_older(found), *find_doubts(found)]
    return [explain_build(found).why, *(one.message for one in reasons)]


def create_conflict(message):
    error = NoBuildError("requirements-conflict", "no versions satisfy all")
    return Conflict(error, message=f"error:\n  cause: {message}")


SELECTED_PAIR = Fact(
    "torchvision",
    "0.22.0+cu126",
    "torchvision 0.22.0+cu126 is incompatible with torch 2.8.0+cu128",
    builds=frozenset(["2.7.0+cu126"]),
)
CUDA_12 = Fact(
    "cupy-cuda12x",
    "14.0",
    "cupy-cuda12x 14.0 is for CUDA 12",
    builds=frozenset(["2.14.1+cu126"]),
)


@pytest.mark.parametrize(
    ("found", "sentences"),
    [
        pytest.param(
            find_answer(
                ["torchvision", "runner"],
                {"torchvision": "0.22.0+cu126", "runner": "1.0"},
                {"runner 1.0": ["torch==2.7.0"]},
                torch="2.7.0",
                facts=[SELECTED_PAIR],
            ),
            ["runner 1.0 requires torch 2.7.0; torch 2.15.0 would run here"],
            id="the selected pair is no reason",
        ),
        pytest.param(
            find_answer(
                ["cupy-cuda12x"],
                {"cupy-cuda12x": "14.0"},
                {},
                driver="550.54.15",
                facts=[CUDA_12],
            ),
            [""],
            id="the driver decides, and no package",
        ),
        pytest.param(
            find_answer(
                ["jax[cuda12-pip]"],
                {"jax": "0.8.0"},
                {},
                missing_extras=[("jax", "0.8.0", "cuda12-pip")],
            ),
            ["", "jax 0.8.0 has no extra cuda12-pip"],
            id="a missing extra is not requested again",
        ),
        pytest.param(
            find_answer(
                ["painter"],
                {"painter": "1.0", "brush": "1.0"},
                {"painter 1.0": ["brush"]},
                moving={"brush": "1.0"},
            ),
            ["", "brush 1.0 is the latest version that all requirements allow"],
            id="an upgraded package has no later version",
        ),
        pytest.param(
            find_answer(
                ["runner"],
                {"runner": "1.0"},
                {},
                newest={"runner": Newest(Version("2.0"))},
                conflicts={
                    "runner": create_conflict(
                        f"Because runner>=2.0 depends on cudnn>=10 and {OWN} depends on cudnn==9, "
                        "we can conclude that your requirements are unsatisfiable."
                    )
                },
            ),
            ["", "runner is 1.0 instead of 2.0: runner>=2.0 depends on cudnn>=10"],
            id="uv's conflict is the reason",
        ),
        pytest.param(
            find_answer(
                ["runner"],
                {"runner": "1.0"},
                {"runner 2.0": ["torch>9"]},
                newest={"runner": Newest(Version("2.0"))},
            ),
            ["", "runner is 1.0 instead of 2.0: runner 2.0 requires torch>9"],
            id="a torch that does not exist is the reason",
        ),
        pytest.param(
            find_answer(
                ["runner"],
                {"runner": "1.0"},
                {},
                newest={"runner": Newest(Version("2.0"))},
            ),
            ["", "runner is 1.0 instead of 2.0"],
            id="without a known reason none is given",
        ),
    ],
)
def test_answer_is_explained_by_facts_alone(found, sentences):
    assert list_sentences(found) == sentences


def test_added_torch_is_reported_if_nothing_requires_it():
    versions = {"cupy-cuda12x": "14.0"}
    found = find_answer(["cupy-cuda12x"], versions, {})
    requiring = find_answer(
        ["cupy-cuda12x"], versions, {"cupy-cuda12x 14.0": ["torch"]}
    )
    without_packages = find_answer([], {}, {})

    note = "torch is added, although no requested package requires it"
    assert explain_build(found).held_back == (note,)
    assert explain_build(requiring).held_back == ()
    assert explain_build(without_packages).held_back == ()


def test_unlisted_package_is_explained_without_virtual_packages():
    statement = "painter depends on torchcodec"
    error = InstallationError("family-unlisted", "torchcodec is unlisted", why=OWN)
    refused = Refused(
        make_question("painter", driver="550.54.15"),
        Conflict(
            error, "torchcodec", f"Because {statement} and painter depends on {OWN}"
        ),
        Facts(),
    )

    assert explain_refusal(refused).error.why == statement


def test_refusal_suggests_no_package_that_was_not_tried():
    why = "painter-cu13 2.0 is built with CUDA 13"
    fact = Fact("painter-cu13", "2.0", why, builds=frozenset())
    message = f"Because painter-cu13==2.0 depends on {OWN} and you require painter-cu13"
    refused = Refused(
        make_question("painter-cu13", driver="550.54.15"),
        create_conflict(message),
        Facts.from_facts([fact]),
    )

    error = explain_refusal(refused).error

    assert error.message == why
    assert error.why == "no older version runs here"
    assert "painter-cu12" not in str(error.fixes)
