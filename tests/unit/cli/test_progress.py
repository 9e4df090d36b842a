"""Progress in a terminal of its own (a pty), at three widths, and in a pipe."""

from __future__ import annotations

from io import StringIO

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.cli import progress
from gpuinstall.cli.progress import Drawing, Tally, short
from gpuinstall.cli.terminal import Terminal, broken, columns, folded
from tests.lab.screen import screen

WHEELS = {
    "torch-2.14.1+cu126-cp312-cp312-manylinux_2_28_x86_64.whl": 850_000_000,
    "nvidia_cudnn_cu12-9.14.0.64-py3-none-manylinux_2_27_x86_64.whl": 571_000_000,
    "sympy-1.14.0-py3-none-any.whl": 6_000_000,
}


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_bars_of_files_and_of_all_fit_the_terminal(columns, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("COLUMNS", raising=False)
    with screen(columns) as (stream, drawn):
        with Terminal(err=stream).progress("Download", WHEELS) as advance:
            for name in WHEELS:
                advance(name, 5_000_000)
        Terminal(err=stream).step("Fetched", "3 files")
    lines = [line.rstrip() for line in drawn if line.strip()]
    assert max(map(len, lines)) <= columns
    assert any(
        line.startswith("Download    torch 2.14.1") and "of 850 MB" in line for line in lines
    )
    assert any("total" in line and "15 MB of 1.4 GB" in line for line in lines)
    assert lines[-1] == "Fetched     3 files"


def test_a_line_is_no_wider_than_columns_says(monkeypatch):
    widths = {}
    for size, variable in (
        (120, "60"),
        (60, "120"),
        (0, "60"),
        (60, ""),
        (60, "wide"),
        (60, "0"),
        (0, ""),
    ):
        monkeypatch.setenv("COLUMNS", variable)
        with screen(size) as (stream, _):
            widths[size, variable] = columns(stream)
    assert widths.pop((0, "")) == 80
    assert {case: width for case, width in widths.items() if width != 60} == {}


def test_the_bars_are_gone_when_all_is_done():
    tally = Tally(WHEELS, "bytes")
    for name, size in WHEELS.items():
        tally.add(name, size - 1)
    assert "total" in rendered(tally)

    for name in WHEELS:
        tally.add(name, 1)
    assert rendered(tally) == ""


def rendered(tally: Tally) -> str:
    """What the bars of a work are on the screen."""
    text = StringIO()
    Terminal().console(text).print(Drawing("Download", tally, 80), end="")
    return text.getvalue()


def test_a_log_gets_a_line_now_and_then(monkeypatch):
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    out = StringIO()
    with Terminal(err=out).progress("Download", WHEELS) as advance:
        advance(next(iter(WHEELS)), 40_000_000)
    assert out.getvalue() == "Download    40 MB of 1.4 GB\n"


def test_a_short_work_leaves_no_line_in_a_log():
    out = StringIO()
    with Terminal(err=out).progress("Download", WHEELS) as advance:
        advance(next(iter(WHEELS)), 40_000_000)
    assert out.getvalue() == ""


def test_what_is_said_meanwhile_stands_above_the_bars(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    with screen(80) as (stream, drawn):
        terminal = Terminal(err=stream)
        with terminal.progress("Unpack", {"3 wheels": 10}):
            terminal.warn("a warning")
    assert any(line.strip() == "warning: a warning" for line in drawn)


def test_no_more_is_counted_than_there_is_and_a_transfer_that_begins_again_takes_back():
    tally = Tally({"a": 10, "b": None}, "bytes")
    tally.add("a", 25)
    tally.add("b", 7)
    tally.add("b", -7)
    assert (tally.state("a"), tally.state("b"), tally.state()) == ((10, 10), (0, None), (10, None))
    assert tally.running == ["b"]


def test_a_wheel_is_called_by_its_package_and_version():
    names = [short(name, 24) for name in WHEELS]
    assert names == ["torch 2.14.1+cu126", "nvidia-cudnn-cu12 9.14.…", "sympy 1.14.0"]
    assert short("GPU 0", 24) == "GPU 0"


def test_a_long_line_is_folded_behind_commas_and_dots_and_a_command_stays_whole():
    text = "2 × NVIDIA GeForce RTX 4090 (sm_89, 24 GB) · driver 535.183.01 (CUDA 12.2) · Debian 12"
    assert folded(text, None) == folded(text, 120) == text
    narrow = folded(text, 60).split("\n")
    assert len(narrow) == 2
    assert narrow[1] == f"{'':12}driver 535.183.01 (CUDA 12.2) · Debian 12"
    command = "source /a/very/long/path/to/the/place/where/the/environment/lies/bin/activate"
    assert folded(command, 60) == command


def test_a_program_within_a_command_line_is_shown_by_its_beginning():
    out = StringIO()
    Terminal(err=out, verbose=True).started(["python", "-c", "import os\nprint(os)\n"])
    assert out.getvalue() == "            $ python -c 'import os…'\n"


def test_in_a_narrow_terminal_prose_is_broken_at_words_and_a_command_stays_whole_with_its_remark_below():
    error = UsageError(
        "users-packages",
        "the environment holds packages that its lock does not, and they would be lost",
        why="they were installed by hand and would be lost with the environment that is replaced",
        hint="gpuinstall install --replace cowsay --venv a/long/path   # takes them into the request\n"
        "For a machine whose driver cannot be updated: gpuinstall install --backend cpu",
    )
    with screen(60) as (stream, drawn):
        Terminal(err=stream).fault(error)
        Terminal(err=stream).warn(
            "a warning that is longer than what a terminal of sixty columns takes in"
        )
    assert [line.rstrip() for line in drawn if line.strip()] == [
        "error: the environment holds packages that its lock does",
        "       not, and they would be lost",
        "  why   they were installed by hand and would be lost with",
        "        the environment that is replaced",
        "  do    gpuinstall install --replace cowsay --venv a/long/path",
        "        # takes them into the request",
        "        For a machine whose driver cannot be updated:",
        "        gpuinstall install --backend cpu",
        "warning: a warning that is longer than what a terminal of",
        "         sixty columns takes in",
    ]
    piped = StringIO()
    Terminal(err=piped).fault(error)
    assert len(piped.getvalue().splitlines()) == 4, "a line for each, in a log"


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("Or update the driver: sudo apt install nvidia-driver-570   # then restart", "sudo apt"),
        ("Where `modinfo -F version nvidia` says the libraries' version, reload it", "`modinfo"),
        ("Without numpy: uv pip uninstall numpy; with it: pip install numpy", "uv pip"),
    ],
)
def test_a_command_in_prose_is_one_piece(text, command):
    [line] = [line for line in broken(text, 24).splitlines() if command in line]
    assert line in {
        "sudo apt install nvidia-driver-570",
        "`modinfo -F version nvidia`",
        "uv pip uninstall numpy;",
    }
