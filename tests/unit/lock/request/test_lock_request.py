import pytest

from gpuinstall.base.errors import NoBuildError
from gpuinstall.base.request import Request
from gpuinstall.lock.file.target import Target
from gpuinstall.lock.request.lock_request import LockRequest, pin_torch
from gpuinstall.lock.resolve.pose import pose_together
from tests.frozen import frozen_catalog
from tests.lab.parsed import required, written

CATALOG = frozen_catalog()


def lock_requests(
    *targets,
    requirements=("torch",),
    python=None,
    newest=False,
):
    asked = Request(requirements, python, newest_per_target=newest)
    return [
        LockRequest.for_target(Target.parse(text), asked, CATALOG) for text in targets
    ]


def torches(requests):
    return [str(planned.builds[0].torch) for planned in pose_together(requests)]


def pythons(requests):
    return {planned.python for planned in pose_together(requests)}


def test_several_targets_get_the_newest_torch_that_all_can_have():
    alone = torches(lock_requests("cu130"))
    together = torches(lock_requests("cu126", "cu130", "cpu"))
    assert len(set(together)) == 1
    assert together[0] == torches(lock_requests("cu126"))[0] != alone[0]


def test_a_lock_that_cannot_be_had_is_planned_once(monkeypatch):
    [request] = lock_requests("cu126")
    assert request.plan.choice
    tried = []
    monkeypatch.setattr(
        LockRequest, "outcome_with", lambda _, **pins: tried.append(pins)
    )
    with pytest.raises(NoBuildError):
        pose_together([request])
    assert tried == [{"torch": None, "python": None}]


def test_one_python_serves_all():
    targets = ("cu126", "cu130-windows-x86_64", "cpu-macos-arm64")
    assert len(pythons(lock_requests(*targets))) == 1
    assert pythons(lock_requests("cu126", "cpu", python="3.11")) == {"3.11"}
    bounded = pythons(lock_requests("cu126", "cpu", python=">=3.11,<3.13"))
    assert bounded <= {"3.11", "3.12"}


def test_a_pinned_torch_holds_for_all():
    assert set(
        torches(lock_requests("cu126", "cu130", requirements=("torch==2.10.*",)))
    ) == {"2.10.0"}


def test_targets_without_a_common_torch_are_named_and_can_each_have_their_newest():
    disagreeing = lock_requests("cu118", "cu132")
    with pytest.raises(NoBuildError) as caught:
        pose_together(disagreeing)
    assert caught.value.code == "targets-disagree"
    assert "cu118" in (caught.value.evidence or "")
    each = lock_requests("cu118", "cu132", newest=True)
    assert torches(each)[0] == torches(lock_requests("cu118"))[0]


def test_a_pin_replaces_what_was_asked_of_torch_and_keeps_its_extras():
    asked = required("torch[opt-einsum]>=2.5", "numpy", "Torch<3")
    pinned = pin_torch(asked, "2.13.0+cu126")
    assert written(pinned) == ("torch[opt-einsum]==2.13.0", "numpy")
    assert written(pin_torch(required("vllm"), "2.13.0")) == ("torch==2.13.0", "vllm")
