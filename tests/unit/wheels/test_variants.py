"""The file that describes the variants of a release: read where it is true to the draft, else no answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuinstall.wheels.variants import Variant, parse_variants

CU129 = {"cuda_version_lower_bound": ["12.9"], "sm_arch": ["100_real", "75_real", "90a_real", "120_virtual", "80"]}


def written(**variants: Any) -> str:
    return json.dumps({"default-priorities": {"namespace": ["nvidia"]}, "variants": variants})


def test_a_label_has_architectures_and_the_bounds_of_its_cuda() -> None:
    bounds = {"cuda_version_lower_bound": ["12.0"], "cuda_version_upper_bound": ["13"], "sm_arch": ["90_real"]}
    text = written(cu129={"nvidia": CU129}, wide={"nvidia": bounds, "x86_64": {"level": ["v3"]}})

    assert parse_variants(text, "cuda") == {
        "cu129": Variant(("sm_75", "sm_80", "sm_90a", "sm_100", "compute_80", "compute_120"), (12, 9)),
        "wide": Variant(("sm_90",), (12, 0), (13,)),
    }


@pytest.mark.parametrize(("version", "inside"), [((11, 8), False), ((12, 0), True), ((12, 9), True), ((13, 0), False)])
def test_a_toolkit_lies_within_the_bounds_or_not(version: tuple[int, int], *, inside: bool) -> None:
    assert Variant(("sm_90",), (12, 0), (13,)).is_for(version) is inside


def test_what_names_no_architecture_or_another_maker_says_nothing() -> None:
    text = written(null={}, cpu={"x86_64": {"level": ["v3"]}}, any={"nvidia": {"cuda_version_lower_bound": ["12.0"]}})

    assert parse_variants(text, "cuda") == {}
    assert parse_variants(written(cu129={"nvidia": CU129}), "rocm") == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        '{"variants": []}',
        '{"variants": {"cu129": 1}}',
        "[" * 100_000,
        written(cu129={"nvidia": {"sm_arch": ["sm_90; rm"]}}),
        written(cu129={"nvidia": {"sm_arch": [90]}}),
        written(cu129={"nvidia": {"sm_arch": 90}}),
        written(cu129={"nvidia": {"sm_arch": ["90_real"], "cuda_version_lower_bound": ["twelve"]}}),
        f'{{"variants": {{}}}}{" " * (2 << 20)}',
    ],
    ids=range(11),
)
def test_what_is_no_such_file_is_one_clear_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_variants(text, "cuda")
