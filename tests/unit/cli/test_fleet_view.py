"""How a step of a fleet goes on, in a terminal of its own (a pty), at three widths, and in a pipe."""

from __future__ import annotations

from io import StringIO

import pytest

from gpuinstall.cli import fleet
from gpuinstall.cli.fleet import StepView
from gpuinstall.cli.terminal import Terminal
from gpuinstall.fleet.hostlist import NodeName, expand
from gpuinstall.fleet.reconcile import OK, NodeState
from gpuinstall.fleet.report import FleetReport, ReportRow
from tests.lab.screen import screen

NODES = expand("n[1-2000]")
FULL = "disk-full"


def begun(done: int) -> dict[NodeName, NodeState]:
    """The first of all nodes are done, but for one whose disk is full; of the others every second one is at it."""
    states = {
        node: NodeState("ok" if i < done else "running" if i % 2 else "waiting")
        for i, node in enumerate(NODES)
    }
    return states | {NODES[6]: NodeState("failed", FULL)}


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_two_thousand_nodes_are_a_table_of_a_few_rows_that_fits_the_terminal(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("COLUMNS", raising=False)
    with screen(columns) as (stream, drawn):
        view = StepView(Terminal(err=stream))
        view.show("install", begun(1000))
        view.show("install", begun(1500))
        view.end()
    lines = [line.rstrip() for line in drawn if line.strip()]

    assert max(map(len, lines)) <= columns
    assert len(lines) < 30
    first, second = (
        lines.index(next(line for line in lines if f"install {done}/2000" in line))
        for done in (1000, 1500)
    )
    assert first < second
    assert any(line.startswith("1 failed (disk-full)  n7") for line in lines)
    assert any(line.startswith("1499 ok") and "n[1-6,8-1500]" in line for line in lines)


def test_the_table_goes_and_one_line_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    with screen(80) as (stream, drawn):
        view = StepView(Terminal(err=stream))
        view.show("verify-2", begun(2000))
        view.end()
    assert [line for line in drawn if line.strip()][-1] == "Verify      1999 ok, 1 failed of 2000"


def test_a_log_gets_a_line_now_and_then_where_something_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fleet, "PLAIN_S", 0.0)
    out = StringIO()
    view = StepView(Terminal(err=out))
    for done in (500, 500, 1000, 2000):
        view.show("install", begun(done))
    view.end()
    assert out.getvalue().splitlines() == [
        f"{'':11} install: 750 waiting, 750 running, 499 ok, 1 failed of 2000",
        f"{'':11} install: 999 ok, 500 waiting, 500 running, 1 failed of 2000",
        "Install     1999 ok, 1 failed of 2000",
    ]


def test_who_spoiled_a_round_is_said_at_once() -> None:
    out = StringIO()
    StepView(Terminal(err=out)).say("n3: rank 2 hung: no answer in 6 s")
    assert out.getvalue() == "Together    n3: rank 2 hung: no answer in 6 s\n"


def test_who_wants_no_words_gets_the_last_line_alone() -> None:
    out = StringIO()
    view = StepView(Terminal(err=out, quiet=True))
    view.show("install", begun(500))
    view.end()
    assert out.getvalue() == ""


def test_in_a_pipe_the_report_has_one_line_for_nodes_that_fared_alike() -> None:
    steps = dict.fromkeys(("survey", "plan", "install", "verify"), OK)
    full = ReportRow(
        NODES[:1], {"survey": OK, "install": NodeState("failed", "no-space-left-at-all")}
    )
    out = StringIO()
    fleet.show_report(Terminal(out=out), FleetReport((full, ReportRow(NODES[1::2], steps))))
    table = out.getvalue().splitlines()[:3]
    assert [line.split()[0] for line in table] == ["nodes", "n1", table[2].split()[0]]
    assert "failed (no-space-left-at-all)" in table[1]
    assert table[2].split()[-4:] == ["ok"] * 4
