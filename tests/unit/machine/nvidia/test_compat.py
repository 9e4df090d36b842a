"""Whether a forward-compatibility libcuda counts: decided by cards, versions and the answers of both libcudas."""

from gpuinstall.base.finding import Finding
from gpuinstall.base.values import replace
from gpuinstall.base.versions import CudaVersion
from gpuinstall.machine.nvidia.compat import compat_rejection
from gpuinstall.machine.nvidia.libraries import CudaDevice, LibcudaFacts
from tests.frozen import frozen_catalog
from tests.unit.plan.machines import machine

DEVICES = (CudaDevice(uuid="GPU-0"), CudaDevice(uuid="GPU-1"))
SYSTEM = LibcudaFacts(
    "/usr/lib/libcuda.so.550.163.01", 0, CudaVersion(12, 4), devices=DEVICES
)
ABOVE = LibcudaFacts(
    "/p/.cuda-compat/libcuda.so.580.95.05", 0, CudaVersion(13, 0), devices=DEVICES
)
OF_590 = replace(ABOVE, driver_version=CudaVersion(13, 1))
A100 = machine("A100", driver="550.163.01")


def code(
    on=A100,
    system=SYSTEM,
    above=ABOVE,
):
    reason = compat_rejection(on, system, above, frozen_catalog().drivers)
    return reason and reason.code


def test_it_counts_only_if_nothing_speaks_against_it():
    broken = A100.with_problems((Finding("driver-library-mismatch", "they differ"),))
    rows = [
        ("eligible", code(), None),
        ("GeForce", code(machine("RTX 4090")), "forward-compatibility-unsupported"),
        ("Volta with 580", code(machine("V100", driver="550.163.01")), None),
        (
            "Volta with 590",
            code(machine("V100", driver="550.163.01"), above=OF_590),
            "driver-dropped-gpu",
        ),
        (
            "Volta beside",
            code(machine("A100", "V100"), above=OF_590),
            "driver-dropped-gpu",
        ),
        (
            "Hopper with 590",
            code(machine("H100", driver="570.148.08"), above=OF_590),
            None,
        ),
        (
            "the driver was updated",
            code(system=replace(SYSTEM, driver_version=CudaVersion(13, 0))),
            "cuda-compat-not-newer",
        ),
        (
            "older",
            code(above=replace(ABOVE, driver_version=CudaVersion(12, 2))),
            "cuda-compat-not-newer",
        ),
        (
            "803",
            code(above=replace(ABOVE, init=803, devices=())),
            "cuda-compat-unusable",
        ),
        (
            "804",
            code(above=replace(ABOVE, init=804, devices=())),
            "cuda-compat-unusable",
        ),
        # GB200 and one L40S: nobody knows why.
        (
            "unknown",
            code(above=replace(ABOVE, init=999, devices=())),
            "cuda-compat-unusable",
        ),
        (
            "a GPU less",
            code(above=replace(ABOVE, devices=DEVICES[:1])),
            "cuda-compat-unusable",
        ),
        (
            "not loaded",
            code(above=LibcudaFacts(fault="missing", error="GLIBC_2.99 not found")),
            "cuda-compat-unusable",
        ),
        (
            "the system's all the same",
            code(above=replace(ABOVE, path=SYSTEM.path)),
            "cuda-compat-unusable",
        ),
        (
            "no driver",
            code(system=LibcudaFacts(fault="missing")),
            "cuda-compat-unusable",
        ),
        ("a broken driver", code(broken), "cuda-compat-unusable"),
    ]

    assert [(name, said) for name, said, expected in rows if said != expected] == []
