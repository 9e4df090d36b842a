"""``gpuinstall explain`` as a person and a program meet it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frozen import GPUINSTALL
from tests.lab.forked import gpuinstall

LOGS = Path(__file__).resolve().parents[1] / "data" / "logs"
NO_KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device"


def explain(*words, text=None):
    return gpuinstall("explain", *map(str, words), text=text or "")


def document(*words, text=None):
    done = explain("--json", *words, text=text)
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert (found["command"], found["status"], found["exit_code"], found["errors"]) == (
        "explain",
        "success",
        0,
        [],
    )
    return found["data"]


def steps(name, count):
    return "".join(
        f"{name}\tRun\t2026-11-20T07:00:{n % 60:02}.0Z step {n} passed\n" for n in range(count)
    )


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminal")
def test_a_paste_in_a_terminal_is_read_to_its_end():
    import pty

    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*GPUINSTALL, "explain"], stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        os.write(ours, f"Traceback:\n\n{NO_KERNEL}\n".encode() + b"\x04")
        out, err = run.communicate(timeout=30)
    os.close(ours)
    os.close(theirs)
    assert err.decode().startswith("Paste the error, then press Ctrl-D")
    assert "[F37, " in out.decode()


def test_what_only_looks_like_a_gpu_fault_is_said_and_is_no_cause():
    data = document(LOGS / "healthy-out-of-memory.txt")
    assert data["causes"] == []
    assert [other["id"] for other in data["lookalikes"]] == ["out-of-memory"]
    assert "expandable_segments" in explain(LOGS / "healthy-out-of-memory.txt").out


@pytest.mark.skipif(
    not Path("/proc/self/mem").exists(), reason="no file that cannot be read (/proc/self/mem)"
)
def test_a_file_that_cannot_be_read_is_not_taken_for_the_text():
    done = explain("/proc/self/mem")
    assert (done.status, done.err) == (
        2,
        "error: /proc/self/mem cannot be read: Input/output error\n",
    )
