"""Vendor of a GPU, and plans for unknown GPUs."""

import pytest

from gpuinstall.api import choose
from gpuinstall.base.machine import Machine
from gpuinstall.base.request import Request
from gpuinstall.machine.vendors import find_vendor
from tests.frozen import frozen_catalog

LEAST = {"schema": "gpuinstall.machine/1", "os": "linux", "arch": "x86_64"}


def with_gpu(driver=None, **facts):
    gpu = {"compute_capability": None, **facts}
    return Machine.from_dict({**LEAST, "driver": driver, "gpus": [gpu]})


@pytest.mark.parametrize(
    ("facts", "vendor"),
    [
        ({"vendor": "amd"}, "amd"),
        ({"vendor": "amd", "pci_id": "10de:20b2"}, "amd"),
        ({"pci_id": "10DE:20b2"}, "nvidia"),
        ({"pci_id": "1002:744c"}, "amd"),
        ({"pci_id": "8086:e20b"}, "intel"),
        ({"pci_id": "1af4:1050"}, "other"),
        ({"compute_capability": "8.9"}, "nvidia"),
        ({"pci_id": "1002:744c", "compute_capability": "8.9"}, "amd"),
        ({"name": "AMD Radeon RX 7900 XTX"}, None),
    ],
)
def test_vendor_is_read_from_field_id_or_capability(facts, vendor):
    machine = with_gpu(**facts)

    assert find_vendor(machine.gpus[0], machine) == vendor


DRIVER = {"version": "610.43.02", "cuda": "13.3"}


@pytest.mark.parametrize(
    ("facts", "driver", "status", "code"),
    [
        ({"name": "B200"}, DRIVER, "refused", "unknown-gpu"),
        ({"vendor": "nvidia", "architecture": "sm_89"}, DRIVER, "ok", None),
        # NVIDIA's driver is not suggested for these.
        ({"name": "AMD Radeon RX 7900 XTX"}, None, "cpu", "gpu-not-supported"),
        ({"vendor": "amd"}, None, "cpu", "gpu-not-supported"),
        ({"pci_id": "1002:744c"}, None, "cpu", "gpu-not-supported"),
        ({}, None, "cpu", "gpu-not-supported"),
    ],
)
def test_gpu_with_missing_facts_is_planned_or_skipped(facts, driver, status, code):
    plan = choose(with_gpu(driver=driver, **facts), Request(), frozen_catalog())
    findings = plan.reasons if status == "refused" else plan.warnings

    assert plan.status == status
    assert [finding.code for finding in findings] == ([code] if code else [])
    assert "NVIDIA's" not in str(findings)
