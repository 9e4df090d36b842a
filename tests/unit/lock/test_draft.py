from __future__ import annotations

from gpuinstall.lock.draft import fitting
from gpuinstall.lock.target import Target
from tests.unit.lock.wheels_here import listed, torch

TAGS = Target("cu126").tags("3.12")


def test_only_wheels_of_the_backend_and_the_target_are_offered() -> None:
    right = torch()
    others = (
        torch("2.14.1+cu130"),
        torch("2.14.1+cpu"),
        torch(tag="cp311-cp311-manylinux_2_28_x86_64"),
        torch(tag="cp312-cp312-win_amd64"),
    )
    assert fitting((*others, right), "cu126", TAGS) == (right,)


def test_a_wheel_without_a_tag_of_its_own_is_that_of_its_page() -> None:
    name = "triton-3.8.0-cp312-cp312-manylinux_2_28_x86_64.whl"
    here, other = listed(name, backend="cu126"), listed(name, backend="cu130")
    assert fitting((other, here), "cu126", TAGS) == (here,)
    assert fitting((listed(name),), "cu126", TAGS) == (listed(name),)


def test_of_one_version_the_best_fitting_wheel_of_the_first_source_is_taken() -> None:
    old, new = torch(tag="cp312-cp312-manylinux_2_17_x86_64"), torch(tag="cp312-cp312-manylinux_2_28_x86_64")
    assert fitting((old, new), "cu126", TAGS) == (new,)
    first, second = torch(source="https://first.example"), torch(source="https://second.example")
    assert fitting((first, second), "cu126", TAGS) == (first,)


def test_every_version_is_offered() -> None:
    assert len(fitting((torch("2.14.1+cu126"), torch("2.13.0+cu126")), "cu126", TAGS)) == 2
