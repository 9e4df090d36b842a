"""Who spoils an all-reduce, by what the ranks say."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gpuinstall.fleet.hostlist import NodeName, expand
from gpuinstall.fleet.search import (
    Culprit,
    Findings,
    GroupResult,
    JobGroup,
    read_together,
    result_of,
    search,
)

if TYPE_CHECKING:
    Nodes = tuple[NodeName, ...]

NODES = expand("n[1-8]")
OK = {"rank": 0, "status": "ok", "stage": "done", "message": None, "gb_s": 2.0}
WAITED = {"rank": 0, "status": "failed", "stage": "met", "message": "timed out"}


def test_what_is_written_of_a_group_is_read_back() -> None:
    group = JobGroup(NODES, "cu126", NODES[:7], 2.0, 3.5, (Culprit(NODES[7:], "it waited"),))

    written = json.dumps({"groups": [group.to_dict()]})
    assert read_together(json.loads(written)) == (group,)


def test_a_group_in_which_all_waited_is_named_as_a_whole() -> None:
    waited = result_of(NODES, {node: [WAITED] for node in NODES})
    found = search(NODES, lambda _: waited)

    assert found.good == ()
    assert [culprit.nodes for culprit in found.culprits] == [NODES]
    assert "timed out; no rank is at fault by itself" in found.culprits[0].why


def test_a_good_group_takes_one_try() -> None:
    tries: list[Nodes] = []

    def run(nodes: Nodes) -> GroupResult:
        tries.append(nodes)
        return result_of(nodes, {node: [OK] for node in nodes})

    assert search(NODES, run) == Findings(NODES, gb_s=2.0)
    assert tries == [NODES]


@pytest.mark.parametrize(
    ("rank", "why"),
    [
        (
            {"rank": 0, "status": "hung", "stage": "met", "message": "it hung"},
            "rank 0 hung: it hung",
        ),
        (
            {"rank": 0, "status": "died", "stage": "met", "message": "by SIGKILL"},
            "rank 0 died: by SIGKILL",
        ),
        (
            {"rank": 0, "status": "failed", "stage": "start", "message": "no torch"},
            "rank 0 failed: no torch",
        ),
    ],
)
def test_who_stood_still_or_died_is_at_fault_and_not_who_waited(
    rank: dict[str, Any], why: str
) -> None:
    result = result_of(NODES[:2], {NODES[0]: [WAITED], NODES[1]: [rank]})

    assert dict(result.suspects) == {"n2": why}
    assert set(result.wrong) == {"n1", "n2"}


def test_a_node_without_an_answer_is_at_fault() -> None:
    assert dict(result_of(NODES[:2], {NODES[0]: [WAITED]}).suspects) == {"n2": "it never responded"}


def test_a_name_is_given_after_the_others_have_passed() -> None:
    tries: list[Nodes] = []

    def run(nodes: Nodes) -> GroupResult:
        tries.append(nodes)
        return (
            GroupResult({NODES[2]: "died"}, {NODES[2]: "died"})
            if "n3" in nodes
            else GroupResult({}, {}, 1.5)
        )

    found = search(NODES, run)

    assert tries == [NODES, tuple(node for node in NODES if node != "n3")]
    assert (found.gb_s, [culprit.nodes for culprit in found.culprits]) == (1.5, [("n3",)])
