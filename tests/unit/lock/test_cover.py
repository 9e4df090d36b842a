import pytest

from gpuinstall.base.errors import MachineError
from gpuinstall.base.machine import Driver, Gpu, Machine
from gpuinstall.base.request import Request
from gpuinstall.base.values import replace
from gpuinstall.base.versions import ComputeCapability, DriverVersion
from gpuinstall.lock.cover import targets_for
from gpuinstall.lock.file.target import Target
from gpuinstall.lock.request.lock_request import LockRequest
from tests.frozen import frozen_catalog

CATALOG = frozen_catalog()


def machine(driver, *capabilities):
    gpus = tuple(
        Gpu(i, "GPU", compute_capability=ComputeCapability.parse(cc))
        for i, cc in enumerate(capabilities)
    )
    return Machine(
        "linux",
        "x86_64",
        "glibc",
        "2.36",
        driver=Driver(DriverVersion.parse(driver)) if driver else None,
        gpus=gpus,
    )


def covered(machines, asked=None):
    return targets_for(
        [LockRequest(each, asked or Request(), CATALOG) for each in machines]
    )


def test_machines_that_one_build_serves_get_one_target():
    machines = [
        machine("580.95.05", "6.1"),
        machine("535.183.01", "8.9"),
        machine("580.95.05", "8.0"),
    ]
    assert [str(target) for target in covered(machines)] == ["cu126"]


def test_machines_that_need_two_builds_get_two_and_a_cpu_machine_its_own():
    machines = [
        machine("580.95.05", "6.1"),
        machine("580.95.05", "12.1"),
        machine(None),
    ]
    found = {str(target) for target in covered(machines)}
    assert len(found) == 3
    assert {"cpu", "cu126"} < found


def test_a_tie_is_broken_by_what_a_machine_would_choose_alone():
    assert [str(target) for target in covered([machine("580.95.05", "9.0")] * 2)] == [
        "cu130"
    ]


def test_the_torch_that_is_asked_for_is_kept():
    asked = Request(("torch==2.6.*",))
    assert [
        str(target) for target in covered([machine("580.95.05", "9.0")] * 2, asked)
    ] == ["cu126"]


def test_a_machine_that_can_have_nothing_is_refused():
    with pytest.raises(MachineError):
        covered([machine("418.40.04", "7.5"), machine("580.95.05", "8.0")])


def test_a_target_takes_no_build_that_a_machine_of_its_does_not_run():
    old, newer = machine("470.256.02", "3.7"), machine("470.256.02", "8.6")
    (served,) = covered([old, newer]).items()
    assert str(served[0]) == "cu118"
    request = LockRequest.for_target(served[0], Request(), CATALOG, (old, newer))
    best = LockRequest(old, Request(), CATALOG).plan.choice.build
    assert request.plan.choice.build == best


def test_a_card_that_no_build_runs_on_is_left_out():
    assert [
        str(target)
        for target in covered(
            [machine("580.95.05", "9.0", "3.7"), machine("580.95.05", "9.0")]
        )
    ] == ["cu130"]


def test_a_lock_is_as_old_as_the_oldest_glibc_that_it_serves():
    serves = tuple(
        replace(machine("535.183.01", "8.0"), glibc=glibc) for glibc in ("2.39", "2.17")
    )
    request = LockRequest.for_target(Target("cu118"), Request(), CATALOG, serves)

    assert request.target(request.plan.choice.build).glibc == "2.17"


def test_catalogues_of_two_machines_share_a_target():
    catalogs = [
        replace(CATALOG, builds=tuple(replace(build) for build in CATALOG.builds))
        for _ in range(2)
    ]
    requests = [
        LockRequest(machine("580.95.05", "9.0"), Request(), catalog)
        for catalog in catalogs
    ]

    assert [str(target) for target in targets_for(requests)] == ["cu130"]
