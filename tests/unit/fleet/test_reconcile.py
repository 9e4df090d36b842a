"""What became of nodes, by their records alone."""

from dataclasses import replace
from typing import Any

import pytest

from gpuinstall.errors import InstallationError
from gpuinstall.fields import MalformedError
from gpuinstall.fleet.documents import MALFORMED, NodeRecord, Sha256
from gpuinstall.fleet.hostlist import expand
from gpuinstall.fleet.reconcile import counts, mixed_tools, reconcile

RUN = "0123"
N1, N2, N3 = expand("n[1-3]")
BEGUN = NodeRecord(RUN, N1, "install")
DONE = replace(BEGUN, status="ok", data={"sha256": "1", "verdict": "passed"})


def state(record: NodeRecord | None, digest: str | None = None, *, ended: bool = True) -> str:
    digests = {N1: Sha256(digest)} if digest else None
    return str(reconcile([N1], [record] if record else [], RUN, digests, ended=ended)[N1])


def test_a_node_is_what_its_record_says() -> None:
    failed = BEGUN.failed(InstallationError("no-space", "no space left on the disk"), 1.0)

    assert state(DONE) == "ok"
    assert state(failed) == "failed (no-space)"


def test_a_node_that_began_and_never_ended_is_lost() -> None:
    assert state(BEGUN) == "lost"


def test_a_node_without_a_word_never_started() -> None:
    assert state(None) == "never started"


def test_a_record_of_another_run_or_of_another_lock_is_stale() -> None:
    assert state(replace(DONE, run="another")) == "stale"
    assert state(DONE, "2") == "stale"
    assert state(DONE, "1") == "ok"


def test_while_a_step_runs_nobody_is_lost_yet() -> None:
    assert (state(BEGUN, ended=False), state(None, ended=False)) == ("running", "waiting")


def test_only_what_another_time_may_help_is_retried() -> None:
    def retried(code: str) -> bool:
        record = BEGUN.failed(InstallationError(code, "…"), 1.0)
        return reconcile([N1], [record], RUN)[N1].may_be_retried

    assert [retried(code) for code in ("network", "busy", "no-space", "hash-mismatch")] == [
        True,
        True,
        False,
        False,
    ]


def test_nodes_with_different_releases_are_named() -> None:
    records = [DONE, replace(DONE, node=N2), replace(DONE, node=N3, tool="0.0.1")]

    assert mixed_tools(records[:2]) is None
    assert "0.0.1 on n3" in str(mixed_tools(records))


def test_states_are_counted_for_people() -> None:
    assert counts(reconcile([N1, N2, N3], [DONE], RUN).values()) == "2 never started, 1 ok"


def test_a_verdict_that_nobody_knows_is_a_failure() -> None:
    assert (
        state(replace(DONE, data={"sha256": "1", "verdict": "zzz"}), "1") == f"failed ({MALFORMED})"
    )
    assert state(replace(DONE, data={"sha256": "1"}), "1") == f"failed ({MALFORMED})"


def test_a_record_survives_being_written() -> None:
    assert NodeRecord.read(DONE.to_dict()) == DONE


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"schema": "gpuinstall.node/9"}, "schema"),
        ({"status": "zzz"}, "status"),
        ({"status": None}, "status"),
        ({"node": "../../victim"}, "node"),
        ({"node": "n1;touch PWNED;#"}, "node"),
        ({"node": 7}, "node"),
        ({"step": None}, "step"),
        ({"code": "a\nb"}, "code"),
        ({"message": ["a"]}, "message"),
        ({"exit_code": "0"}, "exit_code"),
        ({"seconds": float("nan")}, "seconds"),
        ({"started": "now"}, "started"),
        ({"tool": {}}, "tool"),
        ({"data": []}, "data"),
    ],
)
def test_a_record_that_is_not_what_it_must_be_is_refused_with_the_key(
    change: dict[str, Any], key: str
) -> None:
    with pytest.raises(MalformedError, match=rf"^{key} "):
        NodeRecord.read(DONE.to_dict() | change)


def test_what_is_no_object_is_no_record() -> None:
    documents: list[object] = [[], 1, None, "\ud800"]
    for document in documents:
        with pytest.raises(MalformedError):
            NodeRecord.read(document)
