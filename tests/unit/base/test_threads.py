from threading import Barrier, get_ident

import pytest

from gpuinstall.base.threads import side_by_side


def test_parallel_calls_return_in_order():
    all_there = Barrier(3, timeout=10)

    def call(item):
        all_there.wait()
        return item * 2

    assert side_by_side(call, (3, 1, 2)) == [6, 2, 4]


def test_single_call_needs_no_thread():
    assert side_by_side(lambda _: get_ident(), [None]) == [get_ident()]
    assert side_by_side(lambda _: get_ident(), []) == []


def test_first_exception_is_raised():
    with pytest.raises(ZeroDivisionError):
        side_by_side(lambda item: 1 // item, (1, 0, 2))
