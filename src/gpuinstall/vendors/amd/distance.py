"""How far apart a ROCm and the kernel's own driver are, by the days of their releases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_BEFORE_MONTH = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)


def days_apart(table: Mapping[str, Any], rocm: tuple[int, int], kernel: Sequence[int]) -> int | None:
    """Count the days between both releases, of the rows of ``distance``; None where one of them is in none.

    A kernel counts as the newest one of the table that is not newer than it.
    """
    rocm_day, kernel_day = table["rocm"].get(".".join(map(str, rocm))), _newest(table["kernel"], tuple(kernel[:2]))
    if rocm < _version(table["first"]) or rocm_day is None or kernel_day is None:
        return None
    return abs(_days(rocm_day) - _days(kernel_day))


def _newest(table: Mapping[str, str], kernel: tuple[int, ...]) -> str | None:
    older = [version for version in table if kernel and _version(version) <= kernel]
    return table[max(older, key=_version)] if older else None


def _version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


def _days(day: str) -> int:
    """Count from the year 0, to the day but for leap years."""
    year, month, of_month = map(int, day.split("-"))
    return year * 365 + _BEFORE_MONTH[month - 1] + of_month
