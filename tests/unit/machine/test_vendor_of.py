"""Whose GPU it is, and what follows for a machine whose GPUs no build is chosen for."""

import pytest

from gpuinstall.api import choose
from gpuinstall.base.machine import Machine
from gpuinstall.base.request import Request
from gpuinstall.machine.vendors import vendor_of
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
def test_a_gpu_is_its_vendors_else_its_pci_ids_else_of_who_has_capabilities(
    facts, vendor
):
    machine = with_gpu(**facts)

    assert vendor_of(machine.gpus[0], machine) == vendor


DRIVER = {"version": "610.43.02", "cuda": "13.3"}


@pytest.mark.parametrize(
    ("facts", "driver", "status", "code"),
    [
        ({"name": "B200"}, DRIVER, "refused", "unknown-gpu"),
        ({"vendor": "nvidia", "architecture": "sm_89"}, DRIVER, "ok", None),
        # Nobody is told to install NVIDIA's driver for these.
        ({"name": "AMD Radeon RX 7900 XTX"}, None, "cpu", "gpu-not-supported"),
        ({"vendor": "amd"}, None, "cpu", "gpu-not-supported"),
        ({"pci_id": "1002:744c"}, None, "cpu", "gpu-not-supported"),
        ({}, None, "cpu", "gpu-not-supported"),
    ],
)
def test_a_gpu_that_tells_little_is_planned_for_refused_or_passed_over(
    facts, driver, status, code
):
    plan = choose(with_gpu(driver=driver, **facts), Request(), frozen_catalog())
    findings = plan.reasons if status == "refused" else plan.warnings

    assert plan.status == status
    assert [finding.code for finding in findings] == ([code] if code else [])
    assert "NVIDIA's" not in str(findings)
