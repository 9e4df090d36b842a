"""A new maker is planned for by its entry in the registry and its rows in the catalogue alone."""

import pytest

from gpuinstall.api import choose
from gpuinstall.base.backend import Backend
from gpuinstall.base.errors import UsageError
from gpuinstall.base.request import Request
from tests.unit.machine.acme import acme_catalog, acme_machine, register_acme
from tests.unit.plan.machines import card, machine


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    register_acme(monkeypatch)


def plan(*architectures, request=None):
    return choose(acme_machine(*architectures), request or Request(), acme_catalog())


def test_its_gpu_gets_its_build_from_its_index():
    document = plan("anvil3").to_dict()

    assert document["status"] == "ok"
    assert document["build"]["backend"] == "acme1"
    assert document["build"]["index"].endswith("/acme1")
    assert document["build"]["requirements"] == ["torch==2.10.0+acme1"]
    assert document["gpus"] == [{"index": 0, "runs": "anvil3", "how": "sass"}]
    assert document["rejected"] == []


def test_a_gpu_that_its_builds_have_no_code_for_is_left_out():
    made = plan("anvil3", "anvil1")

    assert made.status == "partial"
    assert [run.how for run in made.gpus] == ["sass", "none"]
    assert [warning.code for warning in made.warnings] == ["gpu-left-out"]


def test_alone_it_is_refused_by_its_own_name():
    made = plan("anvil1")

    assert (made.status, made.exit_code, made.reasons[0].code) == ("refused", 3, "no-build-ever")
    assert "Acme Anvil (anvil1)" in made.reasons[0].message


def test_its_tag_may_be_asked_for_and_another_makers_build_is_refused_beside_it():
    assert Backend.parse("acme1") == Backend("acme", "1")
    assert plan("anvil3", request=Request(backend="acme1")).status == "ok"
    assert plan("anvil3", request=Request(("torch==2.10.0+acme1",))).status == "ok"
    assert (
        plan("anvil3", request=Request(backend="cu126")).reasons[0].code
        == "backend-of-another-maker"
    )
    assert plan(request=Request(backend="cu126")).status == "ok"


def test_a_request_that_its_builds_do_not_serve_is_refused():
    made = plan("anvil3", request=Request(("torch==2.14.1",)))

    assert (made.status, made.reasons[0].code) == ("refused", "other-torch")


def test_next_to_nvidias_gpus_its_own_are_named_as_not_used():
    mixed = machine(
        "RTX 4090",
        card("RTX 4090", 1, vendor="acme", architecture="anvil3", compute_capability=None),
    )
    made = choose(mixed, Request(), acme_catalog())

    assert (made.status, made.choice and made.choice.build.backend.kind) == ("ok", "cuda")
    assert [warning.code for warning in made.warnings] == ["gpu-not-supported"]


def test_its_tag_is_none_where_it_is_not_registered(monkeypatch):
    monkeypatch.undo()

    with pytest.raises(UsageError, match="'acme2' is not a backend"):
        choose(acme_machine("anvil3"), Request(backend="acme2"), acme_catalog())
