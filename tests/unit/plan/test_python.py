"""Python is part of the plan."""

from __future__ import annotations

from typing import Any

import pytest

from gpuinstall.api import Refusal, choose
from gpuinstall.base.request import Request
from gpuinstall.catalog import load_catalog
from gpuinstall.plan import Plan
from tests.frozen import frozen_catalog
from tests.unit.plan.machines import machine


def plan(pythons: tuple[str, ...] | None, **request: Any) -> Plan | Refusal:
    return choose(machine("RTX 4090", pythons=pythons), Request(**request), frozen_catalog())


def chosen(made: Plan | Refusal) -> tuple[str, str] | None:
    return (made.choice.build.name, made.choice.python) if made.choice else None


def test_a_fixed_python_is_kept():
    assert chosen(plan(("3.12.1",), python="3.11")) == ("2.15.0+cu130", "3.11")
    assert chosen(plan(("3.12.1",), python="3.10")) == ("2.14.1+cu130", "3.10")
    assert chosen(plan(None, python="3.14t")) == ("2.15.0+cu130", "3.14t")


def test_the_python_of_the_environment_comes_before_the_newest_at_hand():
    assert chosen(plan(("3.11.7", "3.13.1"), preferred_pythons=("3.12", "3.11"))) == (
        "2.15.0+cu130",
        "3.12",
    )
    assert chosen(plan(("3.11.7", "3.13.1"), preferred_pythons=("3.10",))) == (
        "2.15.0+cu130",
        "3.13",
    )


def test_the_newest_at_hand_that_the_build_supports_is_taken():
    assert chosen(plan(("3.9.2", "3.11.7", "3.12.1", "3.16.0"))) == ("2.15.0+cu130", "3.12")
    assert chosen(plan(("3.12.1", "3.14.0t"))) == ("2.15.0+cu130", "3.12")


def test_where_none_at_hand_fits_a_settled_one_is_fetched():
    assert chosen(plan(("3.8.10",))) == ("2.15.0+cu130", "3.14")
    assert chosen(plan(())) == ("2.15.0+cu130", "3.14")
    assert chosen(plan(("3.10.1",), requirements=("torch==2.3.1",), python=">=3.11")) == (
        "2.3.1+cu121",
        "3.12",
    )


def test_where_none_can_be_fetched_the_build_is_rejected_and_the_next_is_tried():
    made = plan(("3.8.10",), managed_pythons=False)

    assert chosen(made) == ("2.4.1+cu124", "3.8")
    assert {
        rejection.reason.code
        for rejection in made.rejected
        if str(rejection.candidate.torch) == "2.15.0"
    } == {
        "no-python",
        "unverified",
    }


def test_a_machine_whose_pythons_are_not_known_can_have_any():
    assert chosen(plan(None, managed_pythons=False)) == ("2.15.0+cu130", "3.14")


def test_without_a_single_python_nothing_fits():
    made = plan(("3.6.9",), managed_pythons=False)

    assert (made.exit_code, made.reasons[0].code) == (3, "no-python")
    assert "3.6" in made.reasons[0].message


@pytest.mark.parametrize("python", ["3.15", "3.15t"])
def test_a_python_that_only_the_torch_index_serves_is_taken_when_asked_for(python):
    made = choose(machine("GTX 1080"), Request(python=python), frozen_catalog())

    assert chosen(made) == ("2.14.1+cu126", python)


def test_a_fixed_python_that_cannot_be_had_is_named():
    made = plan(("3.12.1",), python="3.11", managed_pythons=False)

    assert (made.exit_code, made.reasons[0].code) == (3, "no-python")
    assert "no build of torch fits Python 3.11; " in made.reasons[0].message
    assert chosen(plan(("3.12.1",), python="3.12", managed_pythons=False)) == (
        "2.15.0+cu130",
        "3.12",
    )


def test_a_companion_without_wheels_for_a_python_keeps_it_from_being_chosen():
    both = ("torch", "torchvision", "torchaudio")

    assert chosen(plan(("3.12.1", "3.15.0"))) == ("2.15.0+cu130", "3.15")
    assert chosen(plan(("3.12.1", "3.15.0"), requirements=both)) == ("2.15.0+cu130", "3.12")
    assert chosen(plan(("3.15.0",), requirements=both)) == ("2.15.0+cu130", "3.14")

    refused = plan(None, requirements=both, python="3.15")
    assert (refused.exit_code, refused.reasons[0].code) == (3, "python-unsupported")
    assert "torchaudio and Python 3.15 are incompatible" in refused.reasons[0].message
    assert "it and torchaudio have wheels for Python 3.11 to 3.14" in refused.reasons[0].message


def test_a_companion_is_taken_in_the_version_that_has_wheels_for_the_python():
    made = plan(None, requirements=("torch==2.14.0", "torchvision"), python="3.15")

    assert made.choice is not None
    assert made.choice.requirements == ("torch==2.14.0+cu130", "torchvision==0.29.2+cu130")


def test_a_python_that_a_companion_s_metadata_forbids_is_not_taken_for_it():
    def python(*requirements: str, here: tuple[str, ...]) -> str | None:
        made = choose(machine("RTX 4090", pythons=here), Request(requirements), load_catalog())
        return made.choice.python if made.choice else None

    assert python("torch", here=("3.13.1", "3.14.1")) == "3.14"
    assert python("torch", "torchvision", here=("3.13.1", "3.14.1")) == "3.13"
    assert python("torch", "torchvision", here=("3.13.1", "3.14.2")) == "3.14"
    assert python("torch", "torchvision", here=("3.14.0", "3.14.1")) == "3.13"
