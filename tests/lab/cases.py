"""Long tables of cases: ``make test`` runs those that differ most, ``make test-all`` every one."""

from collections.abc import Collection, Iterable
from typing import TypeVar

import pytest
from _pytest.mark import ParameterSet

Case = TypeVar("Case")


def mostly_heavy(cases: Iterable[Case], quick: Collection[Case]) -> list[ParameterSet]:
    """Return the cases for ``parametrize``, with the mark ``heavy`` on all but the quick ones."""
    cases = list(cases)
    assert [case for case in quick if case not in cases] == []
    return [
        pytest.param(case, marks=() if case in quick else pytest.mark.heavy)
        for case in cases
    ]
