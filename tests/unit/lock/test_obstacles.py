import pytest
from packaging.version import Version

from gpuinstall.lock.programs import (
    ListedProgram,
    held_back,
    required_torches,
    who_requires_torch,
)

PAINTER = ListedProgram("painter", Version("4.0"))
VERSIONS = {
    "torch": "2.13.0+cu126",
    "painter": "2.0",
    "brush": "1.0",
}


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (
            "Because painter>=2.0 depends on torch==2.13.0 and x",
            "painter 2.0 requires torch 2.13.0",
        ),
        (
            "Because painter==2.0 depends on torch==2.13.0, we can",
            "painter 2.0 requires torch 2.13.0",
        ),
        (
            "And because brush==1.0 depends on torch<2.14 and you",
            "brush 1.0 requires torch<2.14",
        ),
        (
            "we can conclude that brush==1.0 depends on torch>=2.3.1,<2.14.",
            "brush 1.0 requires torch<2.14,>=2.3.1",
        ),
        (
            "Because painter==1.0 depends on torch==2.10.0 and x",
            (
                "no torch newer than 2.13.0 can be resolved: "
                "Because painter==1.0 depends on torch==2.10.0 and x"
            ),
        ),
        (
            "Because there is no version of triton==3.8.0 and torch==2.15.0 depends on it",
            (
                "no torch newer than 2.13.0 can be resolved: "
                "Because there is no version of triton==3.8.0 and torch==2.15.0 depends on it"
            ),
        ),
        ("", ""),
    ],
)
def test_who_wants_an_older_torch_is_read_from_uvs_account(told, expected):
    assert who_requires_torch(VERSIONS, {"torch": told}, [PAINTER]) == expected


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (
            "Because painter>=3.0 depends on torch==2.15.0 and there",
            "painter is 2.0 instead of 4.0, which requires torch==2.15.0",
        ),
        (
            "Because all of: painter>=2.5,<=2.7 painter>=3.0 depend on brush{sys_platform == 'linux'}>=2 and x",
            "painter is 2.0 instead of 4.0, which requires brush>=2",
        ),
        (
            "Because only painter<=2.0 is available",
            "painter is 2.0 instead of 4.0: Because only painter<=2.0 is available",
        ),
        ("", "painter is 2.0 instead of 4.0"),
    ],
)
def test_what_keeps_a_program_old_is_read_from_uvs_account(told, expected):
    assert list(held_back({"painter": "2.0"}, {"painter": told}, [PAINTER])) == [
        expected
    ]


def test_a_constraint_that_the_lock_meets_is_no_requirement_of_the_program():
    account = (
        "Because painter==4.0 depends on brush<=1.28 and brush>=1.31, we can conclude"
    )

    [line] = held_back(
        {"painter": "2.0", "brush": "1.28"}, {"painter": account}, [PAINTER]
    )

    assert line == "painter is 2.0 instead of 4.0, which requires brush>=1.31"


def test_a_program_at_its_newest_is_not_mentioned():
    assert list(held_back({"painter": "4.0"}, {}, [PAINTER])) == []
    assert list(held_back({}, {}, [PAINTER])) == []


def test_the_torches_that_are_wanted_are_those_of_packages():
    told = "a==1 depends on torch==2.15.0, we can. And b>1 depends on torch>=2.15 and the-request depends on torch<3"
    assert _texts(told) == ["torch==2.15.0", "torch>=2.15"]


def test_a_full_stop_of_uv_s_is_no_part_of_a_requirement():
    account = "Because chai==1 depends on torch>=2.3.1,<2.7. And because b==1 depends on torch==2.6.*,"
    assert _texts(account) == ["torch<2.7,>=2.3.1", "torch==2.6.*"]


def _texts(account):
    return [requirement.text for requirement in required_torches(account)]
