from __future__ import annotations

import pytest

from gpuinstall.errors import MachineError, NoBuildError
from gpuinstall.lock.cover import cover
from gpuinstall.lock.request import LockRequest, machine_for_target, pinned, settle
from gpuinstall.lock.target import Target
from gpuinstall.machine import Driver, Gpu, Machine
from gpuinstall.request import Request
from gpuinstall.versions import ComputeCapability, DriverVersion
from tests.frozen import frozen_catalog

CATALOG = frozen_catalog()


def aims(*targets: str, requirements: tuple[str, ...] = ("torch",), python: str | None = None) -> list[LockRequest]:
    parsed = [Target.parse(text) for text in targets]
    return [LockRequest(machine_for_target(one), Request(requirements, python, one.backend), CATALOG) for one in parsed]


def torches(found: list[LockRequest], *, newest: bool = False) -> list[str]:
    return [str(settled.choice.build.torch) for settled in settle(found, newest=newest)]


def test_several_targets_get_the_newest_torch_that_all_can_have() -> None:
    alone = torches(aims("cu130"))
    together = torches(aims("cu126", "cu130", "cpu"))
    assert len(set(together)) == 1
    assert together[0] == torches(aims("cu126"))[0] != alone[0]


def test_one_python_serves_all() -> None:
    settled = settle(aims("cu126", "cu130-windows-x86_64", "cpu-macos-arm64"))
    assert len({each.choice.python for each in settled}) == 1
    assert {each.choice.python for each in settle(aims("cu126", "cpu", python="3.11"))} == {"3.11"}
    assert {each.choice.python for each in settle(aims("cu126", "cpu", python=">=3.11,<3.13"))} <= {"3.11", "3.12"}


def test_a_pinned_torch_holds_for_all() -> None:
    assert set(torches(aims("cu126", "cu130", requirements=("torch==2.10.*",)))) == {"2.10.0"}


def test_targets_without_a_common_torch_are_named_and_can_each_have_their_newest() -> None:
    disagreeing = aims("cu118", "cu132")
    with pytest.raises(NoBuildError) as caught:
        settle(disagreeing)
    assert caught.value.code == "targets-disagree"
    assert "cu118" in (caught.value.seen or "")
    assert torches(disagreeing, newest=True)[0] == torches(aims("cu118"))[0]


def test_a_pin_replaces_what_was_asked_of_torch_and_keeps_its_extras() -> None:
    asked = ("torch[opt-einsum]>=2.5", "numpy", "Torch<3")
    assert pinned(asked, "2.13.0+cu126") == ("torch[opt-einsum]==2.13.0", "numpy")
    assert pinned(("vllm",), "2.13.0") == ("torch==2.13.0", "vllm")


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
