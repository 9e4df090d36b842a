"""Long tables of test cases, of which ``make test`` runs a part."""

from collections.abc import Collection, Iterable
from typing import TypeVar

import pytest
from _pytest.mark import ParameterSet

Case = TypeVar("Case")


def mostly_heavy(cases: Iterable[Case], quick: Collection[Case]) -> list[ParameterSet]:
    """Return cases for ``parametrize``, and mark the slow ones ``heavy``."""
    cases = list(cases)
    assert [case for case in quick if case not in cases] == []
    return [
        pytest.param(case, marks=() if case in quick else pytest.mark.heavy)
        for case in cases
    ]
