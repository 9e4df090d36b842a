"""AMD's preflight: a kernel needs ROCm, which only the build brings."""

from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Gpu, Machine
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.values import replace
from gpuinstall.machine import probe

CARDS = tuple(
    Gpu(index, "AMD Navi 31", vendor="amd", architecture="gfx1100")
    for index in range(2)
)
TWO = Machine("linux", "x86_64", gpus=CARDS)


def test_the_proof_of_those_that_may_be_used_is_left_to_the_kernels():
    closed = Finding(
        "kfd-not-permitted", "/dev/dri/renderD128 may not be opened", gpus=(0,)
    )

    found = probe.preflight(replace(TWO, problems=(closed,)), Reporter())
    assert (found.outcomes, found.problems) == ({1: "unproven"}, ())
