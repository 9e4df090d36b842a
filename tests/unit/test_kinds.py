"""How the page of the kinds of wrong answers is made: ``tools/kinds.py``."""

from __future__ import annotations

from tools.kinds import Example, answer_in_words, answer_of, read_kinds
from tools.unseen import Case, KnownMachine, Outcome, Truth

MACHINE = KnownMachine("T4", "535.183.01", "2.31", ("2.14.1+cu126",))
EXAMPLE = Example(Case("prog", MACHINE, Truth(needs={"dep": "<13"})), "METADATA", "newest that", ())
VERSIONS = {"torch": "2.14.1+cu126", "prog": "2.0", "dep": "12.9"}


def test_a_false_sentence_is_no_right_answer() -> None:
    lines = ["warning: prog 3.0 does not run; prog 2.0 is the newest that does"]
    answer = answer_of(EXAMPLE, Outcome(0, VERSIONS, lines, 1.0))
    assert answer.verdict == "right, with a false sentence"
    assert not answer.is_right


def test_an_answer_in_words_names_versions_and_the_first_own_warning() -> None:
    lines = [
        "warning: lock: can be installed only where the index is reachable",
        "warning: prog is old",
        "warning: dep is older",
    ]
    words = answer_in_words(EXAMPLE, Outcome(0, VERSIONS, lines, 1.0))
    assert words == "prog 2.0, dep 12.9, torch 2.14.1+cu126; warning: prog is old (and 1 more)"


def test_a_refusal_in_words_is_its_error() -> None:
    outcome = Outcome(3, {}, ["error: prog has no code for T4", "why   it is old"], 1.0)
    assert answer_in_words(EXAMPLE, outcome) == "error: prog has no code for T4"


def test_every_kind_has_an_example_with_a_source() -> None:
    kinds = read_kinds()
    assert len(kinds) == 10
    assert [
        example.words for kind in kinds for example in kind.examples if not example.source
    ] == []
