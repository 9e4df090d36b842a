"""Whether a forward-compatibility libcuda counts: decided by cards, versions and the answers of both libcudas."""

import pytest

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
MISSING = LibcudaFacts(fault="missing", error="GLIBC_2.99 not found")


def answering(libcuda, *cuda):
    return replace(libcuda, driver_version=CudaVersion(*cuda))


def refusing(status):
    return replace(ABOVE, init=status, devices=())


OF_590 = answering(ABOVE, 13, 1)
A100 = machine("A100", driver="550.163.01")


V100 = machine("V100", driver="550.163.01")
BROKEN = A100.with_problems((Finding("driver-library-mismatch", "they differ"),))


@pytest.mark.parametrize(
    ("on", "system", "above", "code"),
    [
        (A100, SYSTEM, ABOVE, None),
        (machine("RTX 4090"), SYSTEM, ABOVE, "forward-compatibility-unsupported"),
        (V100, SYSTEM, ABOVE, None),
        (V100, SYSTEM, OF_590, "driver-dropped-gpu"),
        (machine("A100", "V100"), SYSTEM, OF_590, "driver-dropped-gpu"),
        (machine("H100", driver="570.148.08"), SYSTEM, OF_590, None),
        # The driver was updated, or the package is older.
        (A100, answering(SYSTEM, 13, 0), ABOVE, "cuda-compat-not-newer"),
        (A100, SYSTEM, answering(ABOVE, 12, 2), "cuda-compat-not-newer"),
        # It does not start; of 999, on GB200 and one L40S, nobody knows why.
        (A100, SYSTEM, refusing(803), "cuda-compat-unusable"),
        (A100, SYSTEM, refusing(804), "cuda-compat-unusable"),
        (A100, SYSTEM, refusing(999), "cuda-compat-unusable"),
        (A100, SYSTEM, replace(ABOVE, devices=DEVICES[:1]), "cuda-compat-unusable"),
        (A100, SYSTEM, MISSING, "cuda-compat-unusable"),
        # The loader takes the system's all the same.
        (A100, SYSTEM, replace(ABOVE, path=SYSTEM.path), "cuda-compat-unusable"),
        (A100, MISSING, ABOVE, "cuda-compat-unusable"),
        (BROKEN, SYSTEM, ABOVE, "cuda-compat-unusable"),
    ],
)
def test_it_counts_only_if_nothing_speaks_against_it(on, system, above, code):
    reason = compat_rejection(on, system, above, frozen_catalog().drivers)
    assert (reason and reason.code) == code
