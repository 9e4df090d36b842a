from __future__ import annotations

import pytest

from gpuinstall.verify.kernels.tolerance import EPSILON, tolerance


def test_one_term_is_rounding_alone() -> None:
    assert tolerance("float16") == pytest.approx(4 * EPSILON["float16"], rel=0.01)


def test_more_terms_allow_more_by_their_root() -> None:
    rounding = 4 * EPSILON["float32"]
    assert (tolerance("float32", 400) - rounding) / (tolerance("float32", 100) - rounding) == pytest.approx(2)


def test_a_margin_multiplies_all_of_it() -> None:
    assert tolerance("float32", 144, 16) == 16 * tolerance("float32", 144)
