"""AMD's preflight: a kernel needs ROCm, which only the build brings."""

from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Gpu, Machine
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.values import replace
from gpuinstall.machine import probe
from gpuinstall.machine.amd.prober import AmdProber

CARDS = tuple(
    Gpu(index, "AMD Navi 31", vendor="amd", architecture="gfx1100")
    for index in range(2)
)
TWO = Machine("linux", "x86_64", gpus=CARDS)


def preflight(machine):
    return AmdProber().preflight(machine, Reporter())


def test_the_proof_is_left_to_the_kernels():
    found = preflight(TWO)

    assert found.outcomes == {0: "unproven", 1: "unproven"}
    assert found.problems == ()
    assert probe.preflight(TWO, Reporter()).outcomes == found.outcomes


def test_a_card_that_may_not_be_used_is_left_out():
    closed = Finding(
        "kfd-not-permitted", "/dev/dri/renderD128 may not be opened", gpus=(0,)
    )

    found = preflight(replace(TWO, problems=(closed,)))
    assert found.outcomes == {1: "unproven"}


def test_a_machine_without_such_gpus_has_nothing_to_prove():
    nvidia = Machine("linux", "x86_64", gpus=(Gpu(0, "NVIDIA A100", vendor="nvidia"),))

    assert preflight(nvidia).outcomes == {}
