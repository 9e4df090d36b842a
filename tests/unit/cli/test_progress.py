"""Progress on a terminal (a pty) of three widths, and in a pipe."""

import json
import re
import time
from io import StringIO

import pytest

from gpuinstall.base.advice import read_hint
from gpuinstall.base.errors import UsageError
from gpuinstall.cli import terminal
from gpuinstall.cli.progress import WorkMeter
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


def test_time_left_is_averaged_over_fifteen_seconds():
    lines = list[WorkMeter]()
    meter = WorkMeter("Download", {"torch": 1_000}, None, lines.append, 0.0)
    left = []
    for second in range(60):
        meter.start_t -= 1  # a second passes
        # The first ten seconds are faster, and later every other second is idle.
        meter.update(20 if second < 10 else 10 * (second % 2))
        [[minutes, seconds]] = re.findall(r", (\d\d):(\d\d) left", str(meter))
        left.append(60 * int(minutes) + int(seconds))
        meter.display()
    meter.close()
    assert left[9] == (1_000 - 200) // 20
    expected = [(1_000 - 200 - 5 * (second - 9)) / 5 for second in range(60)]
    differences = [
        abs(one - other) for one, other in zip(left[30:], expected[30:], strict=True)
    ]
    assert max(differences) <= 15


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


@pytest.mark.parametrize("columns", [60, 200])
def test_sentences_are_wrapped_between_words(columns):
    text = "the newest torch with code for sm_61: 2.15.0+cu132 begins at sm_75, and driver 580 supports it"
    with screen(columns) as (stream, drawn):
        above = Terminal(err=stream, out=stream)
        above.warn(text)
        above.print_field("Build", text)
        above.step("PATH", f"export PATH={'x' * 80}:$PATH")
    lines = [line.rstrip() for line in drawn if line.strip()]
    assert lines[-1] == f"PATH        export PATH={'x' * 80}:$PATH"
    sentences = lines[:-1]
    assert max(map(len, sentences)) <= columns
    assert len(sentences) == (5 if columns == 60 else 2)
    words = " ".join(sentences).split()
    assert words == ["warning:", *text.split(), "Build", *text.split()]
    if columns == 60:
        assert [len(line) - len(line.lstrip()) for line in sentences] == [
            0,
            9,
            0,
            12,
            12,
        ]


def test_commands_in_hints_are_not_wrapped():
    command = "gpuinstall install --replace cowsay --venv a/long/path   # takes them into the request"
    error = UsageError(
        "users-packages", "they would be lost", hint=(read_hint(command), "Or leave it")
    )
    with screen(60) as (stream, drawn):
        Terminal(err=stream).fault(error)
    assert [line.rstrip() for line in drawn if line.strip()] == [
        "error: they would be lost",
        f"  do    {command}",
        "        Or leave it",
    ]


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
