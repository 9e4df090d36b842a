from __future__ import annotations

import pytest

from gpuinstall.errors import MachineError
from gpuinstall.lock.cover import cover
from gpuinstall.machine import Driver, Gpu, Machine
from gpuinstall.request import Request
from gpuinstall.versions import ComputeCapability, DriverVersion
from tests.frozen import frozen_catalog

CATALOG = frozen_catalog()


def machine(driver: str | None, *capabilities: str) -> Machine:
    gpus = tuple(Gpu(i, "GPU", compute_capability=ComputeCapability.parse(cc)) for i, cc in enumerate(capabilities))
    return Machine(
        "linux", "x86_64", "glibc", "2.36", driver=Driver(DriverVersion.parse(driver)) if driver else None, gpus=gpus
    )


def test_machines_that_one_build_serves_get_one_target() -> None:
    machines = [machine("580.95.05", "6.1"), machine("535.183.01", "8.9"), machine("580.95.05", "8.0")]
    assert [str(target) for target in cover(machines, Request(), CATALOG)] == ["cu126"]


def test_machines_that_need_two_builds_get_two_and_a_cpu_machine_its_own() -> None:
    machines = [machine("580.95.05", "6.1"), machine("580.95.05", "12.1"), machine(None)]
    found = {str(target) for target in cover(machines, Request(), CATALOG)}
    assert len(found) == 3
    assert {"cpu", "cu126"} < found


def test_a_tie_is_broken_by_what_a_machine_would_choose_alone() -> None:
    assert [str(target) for target in cover([machine("580.95.05", "9.0")] * 2, Request(), CATALOG)] == ["cu130"]


def test_the_torch_that_is_asked_for_is_kept() -> None:
    asked = Request(("torch==2.6.*",))
    assert [str(target) for target in cover([machine("580.95.05", "9.0")] * 2, asked, CATALOG)] == ["cu126"]


def test_a_machine_that_can_have_nothing_is_refused() -> None:
    with pytest.raises(MachineError):
        cover([machine("418.40.04", "7.5"), machine("580.95.05", "8.0")], Request(), CATALOG)
