"""Join alternative version ranges (``1.5|2.0``) into one specifier."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.ranges import VersionRange

_START = r"(?<![<!~=])(?:>=|==)([^,*=]+)(?=,|$)"
"""Pattern for the lower bound of a version range."""


def join_alternatives(alternatives: Sequence[str]) -> str | None:
    """Return a specifier that allows the versions in any alternative.

    Args:
        alternatives: Standard specifiers, such as ``>=1.2,<2``.

    Returns:
        The specifier, or None if no specifier allows exactly these versions, as
        for ``==1.0`` and ``==1.5``.

    Raises:
        InvalidSpecifier: An alternative is not a specifier.
    """
    joined = reduce(or_, map(_parse_range, alternatives))
    if len(alternatives) == 1:
        return alternatives[0]
    for start in re.findall(_START, ",".join(alternatives)):
        # "<2" excludes the pre-releases of 2, which would be a gap before ">=2".
        if not joined.is_disjoint(_parse_range(f"<{start}")):
            joined |= _parse_range(f">={start}.dev0,<={start}")
    whole = joined.to_specifier_set()
    return None if whole is None else str(whole).replace(".dev0", "")


def _parse_range(specifier: str) -> VersionRange:
    from packaging.specifiers import SpecifierSet

    # A preference for pre-releases cannot be joined.
    return SpecifierSet(specifier, prereleases=True).to_range()
