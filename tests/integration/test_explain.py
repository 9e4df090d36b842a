"""Tests of ``gpuinstall explain`` on a terminal."""

import os
import subprocess
import sys

import pytest

from gpuinstall.base import uv
from tests.frozen import GPUINSTALL
from tests.lab.driver import NO_GPU

NO_KERNEL = (
    "RuntimeError: CUDA error: no kernel image is available for execution on the device"
)


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminal")
def test_explain_reads_stdin_until_eof():
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
    assert "[F37]" in out.decode()


NUMPY_1 = "A module that was compiled using NumPy 1.x cannot be run in NumPy 2.1.2"


def test_uv_outside_path_is_suggested_by_full_path(workshop, play):
    play(NO_GPU)
    for path, name in (
        ("/usr/bin:/bin", str(uv.uv())),
        (f"{uv.uv().parent}:/usr/bin:/bin", "uv"),
    ):
        printed = workshop.having(PATH=path).run("explain", NUMPY_1).out
        assert f"  {name} pip install" in printed
