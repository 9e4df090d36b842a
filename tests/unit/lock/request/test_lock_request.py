import pytest

from gpuinstall.base.errors import NoBuildError
from gpuinstall.base.request import Request
from gpuinstall.lock.file.target import GLIBC, Target
from gpuinstall.lock.request.lock_request import LockRequest, pin_torch
from gpuinstall.lock.resolve.question import create_questions
from gpuinstall.plan import Rejected
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
        LockRequest.for_target(Target.parse(text), asked, CATALOG, glibc=GLIBC)
        for text in targets
    ]


def pythons(requests):
    return {planned.python for planned in create_questions(requests)}


def test_unsatisfiable_lock_is_planned_once(monkeypatch):
    [request] = lock_requests("cu126")
    assert request.plan.choice
    tried = []
    monkeypatch.setattr(
        LockRequest, "choose_build", lambda _, **pins: tried.append(pins)
    )
    with pytest.raises(NoBuildError):
        create_questions([request])
    assert tried == [{"torch": None, "python": None}]


def test_all_targets_use_the_same_python():
    targets = ("cu126", "cu130-windows-x86_64", "cpu-macos-arm64")
    assert len(pythons(lock_requests(*targets))) == 1
    assert pythons(lock_requests("cu126", "cpu", python="3.11")) == {"3.11"}
    bounded = pythons(lock_requests("cu126", "cpu", python=">=3.11,<3.13"))
    assert bounded <= {"3.11", "3.12"}


def test_pin_replaces_torch_and_keeps_its_extras():
    asked = required("torch[opt-einsum]>=2.5", "numpy", "Torch<3")
    pinned = pin_torch(asked, "2.13.0+cu126")
    assert written(pinned) == ("torch[opt-einsum]==2.13.0", "numpy")
    assert written(pin_torch(required("vllm"), "2.13.0")) == ("torch==2.13.0", "vllm")


def test_rejected_target_suggests_another_target():
    [one] = lock_requests("rocm6.4-linux-x86_64", requirements=["torch==2.6.0"])
    assert isinstance(one.outcome, Rejected)
    assert "Run it again with --target rocm6-2-4: torch" in str(one.outcome.fix)
