"""Alternatives of version ranges (``1.5|2.0``) as one standard specifier."""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

from gpuinstall.base.values import Value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from packaging.specifiers import Specifier
    from packaging.version import Version

_LONGEST_GAP = 20
"""The maximum number of ``!=X.*`` for a gap between two ranges."""


class _Range(Value):
    """Range of versions; ``None`` is no bound."""

    lower: Version | None = None
    upper: Version | None = None
    has_lower: bool = True
    """Whether ``lower`` belongs to the range."""
    has_upper: bool = True
    """Whether ``upper`` belongs to the range."""

    def __and__(self, other: _Range) -> _Range:
        """Return the intersection."""
        low = max((self, other), key=_Range.start)
        high = min((self, other), key=_Range.end)
        return _Range(
            low.lower, high.upper, has_lower=low.has_lower, has_upper=high.has_upper
        )

    def start(self) -> tuple[bool, Version | int, bool]:
        """Return the sort key of the lower bound."""
        return self.lower is not None, self.lower or 0, not self.has_lower

    def end(self) -> tuple[bool, Version | int, bool]:
        """Return the sort key of the upper bound."""
        return self.upper is None, self.upper or 0, self.has_upper

    def touches(self, later: _Range) -> bool:
        """Return whether no version is between this range and a later one."""
        if self.upper is None or later.lower is None or later.lower < self.upper:
            return True
        return later.lower == self.upper and (self.has_upper or later.has_lower)


def join_alternatives(alternatives: Sequence[str]) -> str | None:
    """Return a specifier that allows the versions of all alternatives.

    Args:
        alternatives: Standard specifiers, such as ``>=1.2,<2``.

    Returns:
        The specifier, or None if no specifier allows exactly these versions:
        ``==1.0`` or ``==1.5``.

    Raises:
        InvalidSpecifier: An alternative is not a specifier.
    """
    from packaging.specifiers import SpecifierSet

    sets = [SpecifierSet(text) for text in alternatives]
    if len(alternatives) == 1:
        return alternatives[0]
    ranges = []
    for specifiers in sets:
        known = _range_of(specifiers)
        if known is None:
            return None
        ranges.append(known)
    first, *others = sorted(ranges, key=_Range.start)
    excluded: list[str] = []
    for other in others:
        if not first.touches(other):
            gap = _prefixes_between(first, other)
            if gap is None:
                return None
            excluded += gap
        last = max((first, other), key=_Range.end)
        first = _Range(
            first.lower,
            last.upper,
            has_lower=first.has_lower,
            has_upper=last.has_upper,
        )
    return ",".join([*_bounds(first), *excluded])


def _range_of(specifiers: Iterable[Specifier]) -> _Range | None:
    """Return the range of a specifier set, or None if it has gaps."""
    whole = _Range()
    for one in specifiers:
        known = _range_of_one(one)
        if known is None:
            return None
        whole &= known
    return whole


def _range_of_one(specifier: Specifier) -> _Range | None:
    from packaging.version import Version

    operator = specifier.operator
    text = specifier.version.removesuffix(".*")
    version = Version(text)
    match operator:
        case "==" if text != specifier.version:
            return _Range(version, _next_release(version.release), has_upper=False)
        case "==":
            return _Range(version, version)
        case "~=":
            limit = _next_release(version.release[:-1])
            return _Range(version, limit, has_upper=False)
        case ">=" | ">":
            return _Range(version, has_lower=operator == ">=")
        case "<=" | "<":
            return _Range(upper=version, has_upper=operator == "<=")
        case _:
            return None


def _next_release(release: tuple[int, ...]) -> Version:
    from packaging.version import Version

    *kept, last = release
    return Version(".".join(map(str, (*kept, last + 1))))


def _prefixes_between(earlier: _Range, later: _Range) -> list[str] | None:
    """Return ``!=X.*`` for the versions between two ranges, or None."""
    if earlier.has_upper or not later.has_lower:
        return None
    if earlier.upper is None or later.lower is None:
        return None
    releases = zip_longest(earlier.upper.release, later.lower.release, fillvalue=0)
    pairs = list(releases)
    while len(pairs) > 1 and pairs[-1] == (0, 0):
        pairs.pop()
    *parents, (first, last) = pairs
    prefix = "".join(f"{number}." for number, _ in parents)
    if any(one != other for one, other in parents) or last - first > _LONGEST_GAP:
        return None
    return [f"!={prefix}{number}.*" for number in range(first, last)]


def _bounds(versions: _Range) -> list[str]:
    bounds = []
    if versions.lower is not None:
        bounds.append(f"{'>=' if versions.has_lower else '>'}{versions.lower}")
    if versions.upper is not None:
        bounds.append(f"{'<=' if versions.has_upper else '<'}{versions.upper}")
    return bounds
