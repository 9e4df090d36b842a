import pytest

from gpuinstall.base.machine import Gpu, Machine
from gpuinstall.base.values import replace
from gpuinstall.environments.environment import Marker, Origin, fingerprint, read_origin

NONE = Machine("linux", "x86_64")
TWO = Machine("linux", "x86_64", gpus=(Gpu(0, uuid="GPU-a"), Gpu(1, uuid="GPU-b")))


def made(venv, machine, backend="cu126", *, is_for_cpu=False, devices=()):
    """Leave in a folder what an installation leaves in an environment."""
    verdict = {
        "status": "passed",
        "devices": [{"index": index} for index in devices],
    }
    Marker(
        "1",
        "pylock.cpu.toml",
        "0",
        "3.12",
        "2.15.0",
        backend,
        fingerprint(machine),
        verdict,
        is_for_cpu=is_for_cpu,
    ).write(venv)


RADEON = Machine(
    "linux",
    "x86_64",
    gpus=(Gpu(0, vendor="amd", architecture="gfx1201"),),
    makers={"amd": {"kernel": "6.12.1", "driver": "6.14"}},
)


def test_a_proof_is_of_the_chip_and_the_driver_of_every_maker():
    chip = replace(RADEON, gpus=(Gpu(0, vendor="amd", architecture="gfx1100"),))
    driver = replace(RADEON, makers={"amd": {"kernel": "6.12.1", "driver": "6.16"}})
    assert len({*map(fingerprint, (RADEON, chip, driver))}) == 3


@pytest.mark.parametrize(
    ("backend", "is_requested", "machine", "for_cpu"),
    [
        ("cpu", True, TWO, True),
        ("cpu", True, NONE, True),
        ("cpu", False, NONE, True),
        ("cpu", False, TWO, False),
        ("cu126", False, NONE, False),
    ],
)
def test_the_marker_says_whether_the_cpu_was_requested(
    tmp_path, backend, is_requested, machine, for_cpu
):
    made(tmp_path, machine, backend, is_for_cpu=is_requested)
    assert read_origin(tmp_path, machine).for_cpu is for_cpu


def test_a_gpu_that_the_plan_left_out_is_left_out_again(tmp_path):
    made(tmp_path, TWO, devices=(1,))
    assert read_origin(tmp_path, TWO).gpus == (1,)


def test_the_cpu_is_no_gpu_that_the_plan_had(tmp_path):
    made(tmp_path, TWO, "cpu", is_for_cpu=True, devices=(0,))
    assert read_origin(tmp_path, TWO) == Origin(for_cpu=True)


def test_on_another_machine_every_gpu_is_proven(tmp_path):
    made(tmp_path, NONE, devices=(1,))
    assert read_origin(tmp_path, TWO).gpus is None


def test_an_environment_that_is_not_ours_was_asked_nothing(tmp_path):
    assert read_origin(tmp_path, TWO) == Origin()
