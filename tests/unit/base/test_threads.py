from threading import Barrier, get_ident

import pytest

from gpuinstall.base.threads import map_concurrently


def test_parallel_calls_return_in_order():
    all_there = Barrier(3, timeout=10)

    def call(item):
        all_there.wait()
        return item * 2

    assert map_concurrently(call, (3, 1, 2)) == [6, 2, 4]


def test_single_call_does_not_start_a_thread():
    assert map_concurrently(lambda _: get_ident(), [None]) == [get_ident()]
    assert map_concurrently(lambda _: get_ident(), []) == []


def test_first_exception_is_raised():
    with pytest.raises(ZeroDivisionError):
        map_concurrently(lambda item: 1 // item, (1, 0, 2))
