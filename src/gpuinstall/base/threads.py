"""Calls made side by side: what waits for servers takes as long as the slowest of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def side_by_side(
    call: Callable[[_Item], _Result],
    items: Iterable[_Item],
    at_once: int = 16,
) -> list[_Result]:
    """Return the results of a call for each item, in order; a few calls run at once.

    Args:
        call: Is made in other threads.
        items: What it is made for.
        at_once: The most calls at once.

    Raises:
        Exception: What the first call raises that fails.
    """
    arguments = list(items)
    # One call needs no threads, nor the module that makes them.
    if len(arguments) < 2:
        return [call(item) for item in arguments]
    from concurrent.futures import ThreadPoolExecutor  # takes long to load

    with ThreadPoolExecutor(min(at_once, len(arguments))) as pool:
        results = pool.map(call, arguments)
        return list(results)
