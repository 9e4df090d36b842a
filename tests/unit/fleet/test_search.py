"""Who spoils an all-reduce: named by what the ranks say, else found by halving."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuinstall.fleet.hostlist import NodeName, expand
from gpuinstall.fleet.search import Findings, GroupResult, result_of, search

if TYPE_CHECKING:
    from collections.abc import Collection

    Nodes = tuple[NodeName, ...]

NODES = expand("n[1-8]")
OK = {"rank": 0, "status": "ok", "stage": "done", "message": None, "gb_s": 2.0}
WAITED = {"rank": 0, "status": "failed", "stage": "met", "message": "timed out"}


def silent(bad: set[NodeName], links: Collection[frozenset[NodeName]] = (), tries: list[Nodes] | None = None) -> Any:
    """A network where everybody only ever says that it waited in vain."""
    tries = [] if tries is None else tries

    def run(nodes: Nodes) -> GroupResult:
        tries.append(nodes)
        spoiled = bad & set(nodes) or any(link <= set(nodes) for link in links)
        return result_of(nodes, {node: [WAITED if spoiled else OK] for node in nodes})

    return run


def test_a_good_group_takes_one_try() -> None:
    tries: list[Nodes] = []

    assert search(NODES, silent(set(), tries=tries)) == Findings(NODES, gb_s=2.0)
    assert tries == [NODES]


@given(st.sets(st.sampled_from(NODES), max_size=3))
def test_bad_nodes_are_found_without_a_word_from_them(bad: set[NodeName]) -> None:
    found = search(NODES, silent(bad))

    assert {node for culprit in found.culprits for node in culprit.nodes} == bad
    assert set(found.good) == set(NODES) - bad


@pytest.mark.parametrize("link", [*combinations(NODES[:5], 2)], ids="-".join)
def test_a_bad_link_is_named_by_its_two_ends(link: tuple[NodeName, NodeName]) -> None:
    (culprit,) = search(NODES, silent(set(), {frozenset(link)})).culprits

    assert culprit.nodes == link
    assert "link" in culprit.why


@pytest.mark.parametrize(
    ("rank", "why"),
    [
        ({"rank": 0, "status": "hung", "stage": "met", "message": "it hung"}, "rank 0 hung: it hung"),
        ({"rank": 0, "status": "died", "stage": "met", "message": "by SIGKILL"}, "rank 0 died: by SIGKILL"),
        ({"rank": 0, "status": "failed", "stage": "start", "message": "no torch"}, "rank 0 failed: no torch"),
    ],
)
def test_who_stood_still_or_died_is_at_fault_and_not_who_waited(rank: dict[str, Any], why: str) -> None:
    result = result_of(NODES[:2], {NODES[0]: [WAITED], NODES[1]: [rank]})

    assert dict(result.suspects) == {"n2": why}
    assert set(result.wrong) == {"n1", "n2"}


def test_a_node_without_an_answer_is_at_fault() -> None:
    assert dict(result_of(NODES[:2], {NODES[0]: [WAITED]}).suspects) == {"n2": "it never responded"}


def test_a_name_is_given_after_the_others_have_passed() -> None:
    tries: list[Nodes] = []

    def run(nodes: Nodes) -> GroupResult:
        tries.append(nodes)
        return GroupResult({NODES[2]: "died"}, {NODES[2]: "died"}) if "n3" in nodes else GroupResult({}, {}, 1.5)

    found = search(NODES, run)

    assert tries == [NODES, tuple(node for node in NODES if node != "n3")]
    assert (found.gb_s, [culprit.nodes for culprit in found.culprits]) == (1.5, [("n3",)])
