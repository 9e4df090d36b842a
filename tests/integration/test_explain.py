"""``gpuinstall explain`` as a person and a program meet it."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gpuinstall.base import process, uv
from tests.frozen import GPUINSTALL
from tests.lab.driver import NO_GPU, FakeDriver
from tests.lab.forked import gpuinstall
from tests.stories.test_stories import CARDS

NO_KERNEL = (
    "RuntimeError: CUDA error: no kernel image is available for execution on the device"
)


def explain(*words, text=None):
    return gpuinstall("explain", *map(str, words), text=text or "")


def steps(name, count):
    return "".join(
        f"{name}\tRun\t2026-11-20T07:00:{n % 60:02}.0Z step {n} passed\n"
        for n in range(count)
    )


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminal")
def test_a_paste_in_a_terminal_is_read_to_its_end():
    import pty

    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*GPUINSTALL, "explain"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as run:
        os.write(ours, f"Traceback:\n\n{NO_KERNEL}\n".encode() + b"\x04")
        out, err = run.communicate(timeout=30)
    os.close(ours)
    os.close(theirs)
    assert err.decode().startswith("Paste the error, then press Ctrl-D")
    assert "[F37, " in out.decode()


@pytest.mark.skipif(sys.platform == "win32", reason="sh closes it")
def test_a_closed_stdin_is_an_empty_text():
    done = process.run(["sh", "-c", f"{shlex.join(GPUINSTALL)} explain <&-"])
    assert (done.status, done.err) == (0, "")
    assert done.out == "the text is empty: there is nothing to explain\n"


@pytest.mark.skipif(
    not Path("/proc/self/mem").exists(),
    reason="no file that cannot be read (/proc/self/mem)",
)
def test_a_file_that_cannot_be_read_is_not_taken_for_the_text():
    done = explain("/proc/self/mem")
    error = "error: /proc/self/mem cannot be read: Input/output error"
    assert (done.status, done.err.splitlines()[0]) == (2, error)


GTX_1080 = FakeDriver((CARDS["GTX 1080"],))
CPU_BUILD = "AssertionError: Torch not compiled with CUDA enabled"


def test_no_command_is_one_of_a_uv_that_is_not_on_the_path(workshop, play):
    play(NO_GPU)
    for path, name in (
        ("/usr/bin:/bin", str(uv.uv())),
        (f"{uv.uv().parent}:/usr/bin:/bin", "uv"),
    ):
        here = workshop.having(PATH=path)
        (cause, *_) = here.document("explain", CPU_BUILD)["data"]["causes"]
        assert any(fix.startswith(f"{name} pip install") for fix in cause["fix"])


def test_the_command_is_for_the_environment_of_the_folder(workshop, play):
    play(GTX_1080)
    first = [workshop.document("explain", CPU_BUILD)["data"]["causes"][0]["fix"][0]]
    venv = workshop.folder / ".venv"
    process.run([uv.uv(), "venv", "--no-project", "--python", sys.executable, venv])
    first.append(workshop.document("explain", CPU_BUILD)["data"]["causes"][0]["fix"][0])
    assert [fix.partition("   #")[0] for fix in first] == [
        "gpuinstall install",
        f"gpuinstall install --into --venv {venv}",
    ]
    found = workshop.document("doctor", "--venv", ".venv", exit_code=5)["data"][
        "findings"
    ]
    assert "--replace" not in str([finding["fix"] for finding in found])
