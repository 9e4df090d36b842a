from gpuinstall.base.machine import Gpu, Machine
from gpuinstall.base.values import replace
from gpuinstall.environments.environment import Marker, Origin, fingerprint, read_origin

NONE = Machine("linux", "x86_64")
TWO = Machine("linux", "x86_64", gpus=(Gpu(0, uuid="GPU-a"), Gpu(1, uuid="GPU-b")))


RADEON = Machine(
    "linux",
    "x86_64",
    gpus=(Gpu(0, vendor="amd", architecture="gfx1201"),),
    makers={"amd": {"kernel": "6.12.1", "driver": "6.14"}},
)
CPU = Origin(for_cpu=True)
CASES = {
    "the CPU, beside GPUs": (("cpu", True, TWO, ()), TWO, CPU),
    "the CPU, which was proven": (("cpu", True, TWO, (0,)), TWO, CPU),
    "the CPU, without GPUs": (("cpu", True, NONE, ()), NONE, CPU),
    "all there was, and is": (("cpu", False, NONE, ()), NONE, CPU),
    "all that fitted": (("cpu", False, TWO, ()), TWO, Origin()),
    "GPUs that are elsewhere": (("cu126", False, NONE, ()), NONE, Origin()),
    "a GPU that the plan left out": (
        ("cu126", False, TWO, (1,)),
        TWO,
        Origin(gpus=(1,)),
    ),
    "another machine": (("cu126", False, NONE, (1,)), TWO, Origin()),
}
"""What an environment was made of: backend, whether the CPU was requested, machine, proven devices; where it is now."""


def test_a_proof_is_of_the_chip_and_the_driver_of_every_maker():
    chip = replace(RADEON, gpus=(Gpu(0, vendor="amd", architecture="gfx1100"),))
    driver = replace(RADEON, makers={"amd": {"kernel": "6.12.1", "driver": "6.16"}})
    assert len({*map(fingerprint, (RADEON, chip, driver))}) == 3


def test_the_marker_says_what_an_environment_was_made_for(tmp_path):
    assert read_origin(tmp_path, TWO) == Origin()
    wrong = {}
    for name, ((backend, is_for_cpu, machine, devices), here, origin) in CASES.items():
        verdict = {"devices": [{"index": index} for index in devices]}
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
        ).write(tmp_path)
        found = read_origin(tmp_path, here)
        if found != origin:
            wrong[name] = found
    assert wrong == {}
