"""Progress on a terminal (a pty) of three widths, and in a pipe."""

import json
import time
from io import StringIO

import pytest

from gpuinstall.cli import terminal
from gpuinstall.cli.terminal import Terminal

screen = pytest.importorskip("tests.lab.screen", reason="needs a pseudoterminal").screen

WHEELS = {"torch": 850_000_000, "nvidia_cudnn_cu12": 571_000_000, "sympy": 6_000_000}


@pytest.fixture(autouse=True)
def _cursor(monkeypatch):
    """Set a terminal type that can move its cursor."""
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_progress_bar_fits_the_terminal_and_disappears(columns, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    with screen(columns) as (stream, drawn):
        with Terminal(err=stream).progress("Download", WHEELS) as advance:
            for name in WHEELS:
                time.sleep(0.11)  # the interval between updates
                advance(name, 5_000_000)
        Terminal(err=stream).step("Fetched", "3 files")
    lines = [line.rstrip() for line in drawn if line.strip()]
    assert max(map(len, lines)) <= columns
    assert any(
        line.startswith("Download") and "15.0MB of 1.43GB" in line for line in lines
    )
    assert lines[-1] == "Fetched     3 files"


def test_output_without_terminal_contains_progress_lines(monkeypatch):
    monkeypatch.setattr(terminal, "LINE_INTERVAL_S", 0.0)
    out = StringIO()
    with Terminal(err=out).progress("Download", WHEELS) as advance:
        advance("torch", 40_000_000)
    last = out.getvalue().splitlines()[-1]
    assert last.startswith("Download    40.0MB of 1.43GB · ")


def test_warnings_are_printed_above_the_bar():
    with screen(80) as (stream, drawn):
        above = Terminal(err=stream)
        with above.progress("Unpack", {"3 wheels": 10}):
            above.warn("a warning")
    assert any(line.strip() == "warning: a warning" for line in drawn)


def test_restarted_download_reduces_progress():
    out = StringIO()
    following = Terminal(out=out, as_events=True).progress("Download", {"a": None})
    with following as advance:
        advance("a", 7)
        advance("a", -3)
    last = json.loads(out.getvalue().splitlines()[-1])
    assert (last["done"], last["size"]) == (4, None)


@pytest.mark.parametrize(("kind", "is_drawn"), [("dumb", False), ("xterm", True)])
def test_dumb_terminal_receives_lines_without_color(kind, is_drawn, monkeypatch):
    monkeypatch.setenv("TERM", kind)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    with screen(80) as (stream, drawn):
        terminal = Terminal(err=stream)
        with terminal.progress("Download", WHEELS) as advance:
            time.sleep(0.11)  # the interval between updates
            advance("torch", 5_000_000)
        is_colored = terminal.is_colored(stream)
    assert (is_colored, bool("".join(drawn).strip())) == (is_drawn, is_drawn)
