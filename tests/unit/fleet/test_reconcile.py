"""What became of nodes, by their records alone."""

from dataclasses import replace

from gpuinstall.errors import InstallationError
from gpuinstall.fleet.reconcile import counts, mixed_tools, reconcile
from gpuinstall.fleet.run_folder import NodeRecord

RUN = "a run"
BEGUN = NodeRecord(RUN, "n1", "install")
DONE = replace(BEGUN, status="ok", data={"sha256": "1"})


def state(record: NodeRecord | None, digest: str | None = None, *, ended: bool = True) -> str:
    found = reconcile(["n1"], {"n1": record} if record else {}, RUN, {"n1": digest}, ended=ended)
    return str(found["n1"])


def test_a_node_is_what_its_record_says() -> None:
    failed = BEGUN.failed(InstallationError("no-space", "there is no space left"), 1.0)

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
        return reconcile(["n1"], {"n1": record}, RUN)["n1"].may_be_retried

    assert [retried(code) for code in ("network", "busy", "no-space", "hash-mismatch")] == [True, True, False, False]


def test_nodes_with_different_releases_are_named() -> None:
    records = [DONE, replace(DONE, node="n2"), replace(DONE, node="n3", tool="0.0.1")]

    assert mixed_tools(records[:2]) is None
    assert "0.0.1 on n3" in str(mixed_tools(records))


def test_states_are_counted_for_people() -> None:
    assert counts(reconcile(["n1", "n2", "n3"], {"n1": DONE}, RUN).values()) == "2 never started, 1 ok"


def test_a_record_survives_being_written() -> None:
    assert NodeRecord.read(DONE.to_dict()) == DONE
    assert NodeRecord.read({**DONE.to_dict(), "schema": "gpuinstall.node/9"}) is None
    assert NodeRecord.read({"schema": "gpuinstall.node/1", "node": "n1"}) is None
    assert NodeRecord.read([]) is None
