"""Whose GPU it is, and what follows for a machine whose GPUs no build is chosen for."""

import pytest

from gpuinstall.api import choose
from gpuinstall.base.machine import Machine
from gpuinstall.base.request import Request
from gpuinstall.machine.vendors import vendor_of
from tests.frozen import frozen_catalog

LEAST = {"schema": "gpuinstall.machine/1", "os": "linux", "arch": "x86_64"}


def with_gpu(**facts):
    return Machine.from_dict({**LEAST, "gpus": [{"compute_capability": None, **facts}]})


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


def test_a_gpu_that_says_nothing_beside_the_nvidia_driver_is_refused_and_no_reason_for_the_cpu_build():
    driver = {"version": "610.43.02", "cuda": "13.3"}
    machine = Machine.from_dict(
        {
            **LEAST,
            "driver": driver,
            "gpus": [{"name": "B200", "compute_capability": None}],
        }
    )
    plan = choose(machine, Request(), frozen_catalog())

    assert (plan.status, plan.exit_code, plan.reasons[0].code) == (
        "refused",
        8,
        "unknown-gpu",
    )


@pytest.mark.parametrize(
    "facts",
    [{"name": "AMD Radeon RX 7900 XTX"}, {"vendor": "amd"}, {"pci_id": "1002:744c"}],
)
def test_an_amd_gpu_of_unknown_architecture_is_not_told_to_install_the_nvidia_driver(
    facts,
):
    plan = choose(with_gpu(**facts), Request(), frozen_catalog())

    assert (plan.status, plan.exit_code) == ("cpu", 0)
    assert [warning.code for warning in plan.warnings] == ["gpu-not-supported"]


def test_a_gpu_that_says_its_architecture_alone_is_planned_for():
    driver = {"version": "580.95.05", "cuda": "13.0"}
    gpu = {"vendor": "nvidia", "architecture": "sm_89", "compute_capability": None}
    plan = choose(
        Machine.from_dict({**LEAST, "driver": driver, "gpus": [gpu]}),
        Request(),
        frozen_catalog(),
    )

    assert (plan.status, plan.gpus[0].how) == ("ok", "sass")


def test_a_gpu_of_nobody_without_a_name_is_not_called_nvidias():
    (warning,) = choose(with_gpu(), Request(), frozen_catalog()).warnings

    assert warning.message == "GPU 0 (unknown) is not used: it is not from NVIDIA"
