"""Parallel calls, for requests to servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def map_concurrently(
    call: Callable[[_Item], _Result],
    items: Iterable[_Item],
    at_once: int = 16,
) -> list[_Result]:
    """Call a function for each item in parallel, and return results in order.

    Raises:
        Exception: The exception raised by the first failed call.
    """
    arguments = list(items)
    if len(arguments) < 2:
        return [call(item) for item in arguments]
    from concurrent.futures import ThreadPoolExecutor  # slow to import

    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(call, arguments))
