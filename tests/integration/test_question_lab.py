"""The question before gigabytes that nobody asked for, in a terminal (a pty), as somebody sees and answers it."""

import os
import subprocess
import sys
import time

import pytest

from tests.frozen import GPUINSTALL
from tests.lab import index as lab
from tests.lab.driver import FakeDriver
from tests.lab.screen import keyed, shown
from tests.lab.workshop import Workshop

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminal")
COLUMNS, LINES = 150, 60
TORCH, QUESTION = "2.14.1", "Download it?"
IN_A_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
"""Its keys are signals to whoever has it as the terminal of its session."""


@pytest.fixture
def workshop(stand_in, tmp_path, play, monkeypatch):
    """A machine without a GPU whose torch index does not answer; the default index says that files have 500 MB."""
    play(FakeDriver(nvml_missing=True, cu_missing=True))
    as_it_is = lab._json_file
    monkeypatch.setattr(lab, "_json_file", lambda *file: {**as_it_is(*file), "size": 500_000_000})
    stand_in.torch.close()
    (tmp_path / "project").mkdir()
    return Workshop(tmp_path / "project", tmp_path / "caches", stand_in.environment())


def answered(workshop, answer):
    """Install, and answer what is asked; return the status, and the lines on the screen."""
    with keyed(COLUMNS, LINES) as (keyboard, terminal, raw):
        running = subprocess.Popen(
            [sys.executable, "-c", IN_A_TERMINAL, *GPUINSTALL, "install", f"torch=={TORCH}"],
            env={**workshop.environment, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)},
            cwd=workshop.folder,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
        )
        os.close(terminal)
        until = time.monotonic() + 60
        while QUESTION.encode() not in raw and time.monotonic() < until:
            time.sleep(0.02)
        os.write(keyboard, answer)
        status = running.wait(60)
    return status, [row.rstrip() for row in shown(bytes(raw), COLUMNS, LINES).display]


def test_a_no_leaves_everything_as_it_was(workshop):
    status, rows = answered(workshop, b"n\n")

    assert status == 2, rows
    asked = next(row for row in rows if QUESTION in row)
    assert asked.startswith(
        f"torch {TORCH}+cu130 is a download of 2.5 GB: the index of the CPU build, "
    )
    assert asked.endswith(f"{QUESTION} [y/N]: n")
    assert any(row.endswith("with --yes: it is downloaded all the same") for row in rows)
    assert workshop.entries() == set()


def test_a_yes_goes_on_and_is_asked_for_once(workshop):
    status, rows = answered(workshop, b"y\n")

    assert status == 4, rows
    assert sum(QUESTION in row for row in rows) == 1
    assert any(row.startswith("error: ") and "bytes" in row for row in rows), (
        "its files are not as large as was said"
    )


@pytest.mark.parametrize("key", [b"\x03", b"\x04"], ids=["Ctrl-C", "Ctrl-D"])
def test_who_answers_with_an_interrupt_has_changed_nothing(workshop, key):
    status, rows = answered(workshop, key)

    assert status == 130, rows
    assert "Traceback" not in "".join(rows)
    assert workshop.entries() == set()
