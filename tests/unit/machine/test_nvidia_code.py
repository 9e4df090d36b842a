"""GPU code of a build that a GPU runs, or the reason why it runs none."""

import pytest
from packaging.version import Version

from gpuinstall.base.versions import Backend, ComputeCapability, CudaVersion
from gpuinstall.catalog import Build
from gpuinstall.catalog.loader import code_names
from gpuinstall.machine.nvidia.code import find_code
from gpuinstall.machine.nvidia.rules import NvidiaRules
from gpuinstall.machine.protocol import Code
from tests.frozen import frozen_catalog
from tests.unit.plan.machines import machine

# Code ("+" is PTX), toolkit, cuDNN, the driver's CUDA, GPU, and result.
TABLE = """
80 86              | 13.0 |          | 13.0 | 8.9  | sm_86
80 86              | 13.0 |          | 13.0 | 8.0  | sm_80
86                 | 13.0 |          | 13.0 | 8.0  | no-code
75 80 90           | 13.0 |          | 13.0 | 12.0 | no-code
90a                | 13.0 |          | 13.0 | 9.0  | sm_90a
100a               | 13.0 |          | 13.0 | 10.3 | no-code
100f               | 13.0 |          | 13.0 | 10.3 | sm_100f
100f               | 13.0 |          | 13.0 | 10.7 | no-code
100                | 13.0 |          | 13.0 | 10.7 | sm_100
103f               | 13.0 |          | 13.0 | 10.0 | no-code
120f               | 13.0 |          | 13.0 | 12.1 | sm_120f
100 120            | 13.0 |          | 13.0 | 12.1 | sm_120
# Tegra does not run code for other GPUs of its generation.
50 60 70 80 86     | 12.6 |          | 13.0 | 5.3  | no-code
50 60 70 80 86     | 12.6 |          | 13.0 | 6.2  | no-code
50 60 70 80 86     | 12.6 |          | 13.0 | 7.2  | no-code
50 60 70 80 86     | 12.6 |          | 13.0 | 8.7  | no-code
53 62 72 87        | 12.6 |          | 13.0 | 5.3  | sm_53
53 62 72 87        | 12.6 |          | 13.0 | 6.2  | sm_62
53 62 72 87        | 12.6 |          | 13.0 | 7.2  | sm_72
53 62 72 87        | 12.6 |          | 13.0 | 8.7  | sm_87
# Orin does, since the toolkit that unified them.
80                 | 13.0 |          | 13.0 | 8.7  | no-code
80                 | 13.2 |          | 13.0 | 8.7  | sm_80
# PTX runs on anything newer if the driver compiles it; SASS takes precedence.
80 +90             | 12.9 |          | 13.0 | 12.0 | compute_90
80 +90             | 12.9 |          | 12.9 | 12.0 | compute_90
80 +90             | 12.9 |          | 12.8 | 12.0 | driver-too-old-for-ptx
80 +90             | 12.9 |          |      | 12.0 | driver-too-old-for-ptx
80 +90             | 12.9 |          | 13.0 | 7.5  | no-code
90 120 +90         | 13.0 |          | 13.0 | 12.0 | sm_120
# A bundled library without code for the GPU excludes the wheel.
37 50              | 13.0 | 9.1.0.70 | 13.0 | 3.7  | no-cudnn-code
37 50              | 13.0 | 8.7.0.84 | 13.0 | 3.7  | sm_37
50                 | 13.0 | 9.1.0.70 | 13.0 | 3.7  | no-code
"""
ROWS = [line for line in TABLE.splitlines() if "|" in line]


@pytest.mark.parametrize("row", ROWS)
def test_gpu_runs_compatible_code(row):
    code, toolkit, cudnn, cuda, chip, found = map(str.strip, row.split("|"))
    build = Build(
        Version("2.9.0"),
        Backend.parse("cu130"),
        "linux",
        "x86_64",
        code=code_names(code),
        toolkit=CudaVersion.parse(toolkit),
        libraries=(("cudnn", cudnn),) if cudnn else (),
    )
    answer = find_code(
        build,
        ComputeCapability.parse(chip),
        frozen_catalog().drivers,
        CudaVersion.parse(cuda) if cuda else None,
    )
    assert (answer.name if isinstance(answer, Code) else answer.code) == found


@pytest.mark.parametrize(
    ("cards", "dropped"),
    [
        (("K80", "RTX 5090"), True),
        (("K80", "A100"), False),
        (("GTX 1080", "RTX 5090"), False),
    ],
)
def test_driver_fix_mentions_gpus_it_does_not_support(cards, dropped):
    there = machine(*cards, driver=None)
    finding = NvidiaRules(there, frozen_catalog()).find_driver_fault(there.gpus)
    assert finding is not None
    assert (
        "no driver supports all GPUs: the last for Kepler is 470" in str(finding.fix)
    ) is dropped
