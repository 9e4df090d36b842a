"""Tests of ``gpuinstall explain`` on a terminal."""

from gpuinstall.base import uv
from tests.frozen import GPUINSTALL
from tests.lab.driver import NO_GPU
from tests.lab.screen import type_text

NO_KERNEL = (
    "RuntimeError: CUDA error: no kernel image is available for execution on the device"
)


def test_explain_reads_stdin_until_eof():
    typed = f"Traceback:\n\n{NO_KERNEL}\n\x04"
    done = type_text(typed, [*GPUINSTALL, "explain"], timeout=30)
    assert done.stderr.startswith("Paste the error, then press Ctrl-D")
    assert "[F37]" in done.stdout


NUMPY_1 = "A module that was compiled using NumPy 1.x cannot be run in NumPy 2.1.2"


def test_uv_outside_path_is_suggested_by_full_path(workshop, play):
    play(NO_GPU)
    for path, name in (
        ("/usr/bin:/bin", str(uv.uv())),
        (f"{uv.uv().parent}:/usr/bin:/bin", "uv"),
    ):
        printed = workshop.having(PATH=path).run("explain", NUMPY_1).out
        assert f"  {name} pip install" in printed
