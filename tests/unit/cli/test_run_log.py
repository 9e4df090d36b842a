from __future__ import annotations

import sys
from pathlib import Path

import pytest

from gpuinstall.base import process
from gpuinstall.base.process import heard_by
from gpuinstall.cli.run_log import KEPT, RUN_BYTES, RunLog, log_folder
from gpuinstall.cli.terminal import Terminal


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def text(log: RunLog) -> str:
    assert log.path is not None
    return log.path.read_text(encoding="utf-8")


def test_programs_their_errors_and_what_was_said_are_kept(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    log = RunLog("install", ["install", "torch"])
    terminal = Terminal(quiet=False, log=log)
    with heard_by(terminal):
        process.run([sys.executable, "-c", "import sys; sys.exit('broken')"])
    terminal.warn("careful")
    kept = text(log)
    assert "gpuinstall install torch" in kept
    assert "sys.exit" in kept
    assert "broken\n= 1" in kept
    assert "warning: careful" in kept
    assert "\x1b" not in kept
    assert log.path is not None
    assert log.path.stat().st_mode & 0o777 == 0o600


def test_no_password_is_kept():
    log = RunLog("install", ["install", "--torch-index", "https://me:secret@index.example/whl"])
    log.started(["uv", "https://me:secret@index.example/simple"])
    assert "secret" not in text(log)
    assert text(log).count("****@index.example") == 2


def test_only_the_last_runs_are_kept_and_none_grows_without_end():
    mine = log_folder() / "20260101-mine.log"
    mine.parent.mkdir(parents=True)
    mine.touch()
    for number in range(KEPT + 5):
        log = RunLog(f"run{number:02}", [])
        log.write("x" * RUN_BYTES)
        log.write("more")
    assert len(list(log_folder().glob("*-run*.log"))) == KEPT
    assert mine.exists()
    assert "more" not in text(log)


def test_a_folder_that_cannot_be_written_is_no_fault(state, monkeypatch):
    (state / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(state / "file"))
    log = RunLog("install", [])
    log.write("something")
    assert log.path is None


def test_a_run_that_does_nothing_leaves_no_log(state):
    RunLog("install", [])
    assert list(state.iterdir()) == []
