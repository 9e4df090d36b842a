"""How programs that no rule was made with are judged: ``tools/unseen.py``."""

from __future__ import annotations

import pytest
from tools.unseen import STOPPED, Case, KnownMachine, Outcome, Truth, Verdict, judge

MACHINE = KnownMachine("T4", "535.183.01", "2.31", ("2.14.1+cu126",))
NEEDS = Truth(newest={"prog": "2.0"}, needs={"dep": "<13"})
BESIDE = Truth(beside={"runtime": "libcudart"})


def outcome(*lines: str, status: int = 0, **versions: str) -> Outcome:
    return Outcome(status, {"torch": "2.14.1+cu126", **versions}, list(lines), 1.0)


@pytest.mark.parametrize(
    ("truth", "result", "verdict"),
    [
        (NEEDS, outcome(prog="2.0", dep="12.9"), Verdict.RIGHT),
        (NEEDS, outcome(prog="1.0", dep="12.9"), Verdict.OLDER),
        (NEEDS, outcome(prog="2.0", dep="13.1"), Verdict.SILENT),
        (NEEDS, outcome("warning: dep 13.1 needs driver 580", dep="13.1"), Verdict.WARNED),
        (NEEDS, outcome(prog="2.1a1", dep="12.9"), Verdict.SILENT),
        (NEEDS, Outcome(3, {}, ["error: prog does not run"], 1.0), Verdict.REFUSED),
        (Truth(cuda="13"), outcome(prog="2.0"), Verdict.SILENT),
        (Truth(says="extra"), outcome(prog="2.0"), Verdict.SILENT),
        (Truth(says="extra"), outcome("warning: prog has no extra x"), Verdict.RIGHT),
        (BESIDE, outcome(prog="2.0", runtime="12.9"), Verdict.RIGHT),
        (BESIDE, outcome("warning: no package has libcudart.so.12", prog="2.0"), Verdict.RIGHT),
        (BESIDE, outcome(prog="2.0"), Verdict.SILENT),
        (BESIDE, outcome("warning: prog could not be read", prog="2.0"), Verdict.WARNED),
        (NEEDS, Outcome(STOPPED, {}, [], 420.0), Verdict.LATE),
        (Truth(unknown="who knows"), outcome(), Verdict.UNKNOWN),
    ],
)
def test_a_lock_is_compared_with_the_truth(truth: Truth, result: Outcome, verdict: Verdict) -> None:
    assert judge(Case("prog", MACHINE, truth), result).verdict is verdict


@pytest.mark.parametrize(
    ("result", "verdict"),
    [
        (Outcome(3, {}, ["error: prog has no code for T4"], 1.0), Verdict.RIGHT),
        (Outcome(3, {}, ["error: prog is yanked"], 1.0), Verdict.FALSE_CAUSE),
        (Outcome(2, {}, ["error: prog has no code for T4"], 1.0), Verdict.FALSE_CAUSE),
        (outcome("warning: prog has no code for T4", prog="2.0"), Verdict.RIGHT),
        (outcome("warning: prog is old", prog="2.0"), Verdict.SILENT),
    ],
)
def test_what_runs_nowhere_is_refused_or_warned_of_for_its_cause(
    result: Outcome, verdict: Verdict
) -> None:
    truth = Truth(impossible="no code below sm_80", why="no code for")
    assert judge(Case("prog", MACHINE, truth), result).verdict is verdict


def test_a_build_that_does_not_run_on_the_machine_is_wrong() -> None:
    result = Outcome(0, {"torch": "2.15.0+cu130", "prog": "2.0"}, [], 1.0)
    assert judge(Case("prog", MACHINE, Truth()), result).verdict is Verdict.SILENT


def test_two_packages_that_write_the_same_files_are_wrong() -> None:
    both = Outcome(0, {"nvidia-cudnn-cu12": "9.28", "nvidia-cudnn-cu13": "9.19"}, [], 1.0)
    assert judge(Case("prog", MACHINE, Truth()), both).verdict is Verdict.SILENT
