"""What Poetry writes in a way of its own."""

from __future__ import annotations

import re


def poetry_specifiers(text: str) -> list[str]:
    """Return constraints of Poetry as the standard has them: ``^1.2`` is ``>=1.2`` and ``<2``, ``~1.2`` is ``<1.3``."""
    bounds: list[str] = []
    # A blank is a comma, but not after an operator.
    joined = re.sub(r"(?<=[<>=!~^])\s+", "", text)
    parts = joined.replace(",", " ").split()
    for part in parts:
        if part == "*":
            continue
        if part[0].isdigit():
            bounds.append(f"=={part}")
        elif part[0] in "^~" and not part.startswith("~="):
            number = part.lstrip("^~")
            bounds += [f">={number}", f"<{_limit(part[0], number)}"]
        else:
            bounds.append(part)
    return bounds


def _limit(operator: str, version: str) -> str:
    """Return the first version that is too new beside one that follows a caret or a tilde."""
    release, _, _ = version.partition("-")
    kept = []
    for digits in re.findall(r"\d+", release):
        kept.append(int(digits))
        # A caret lets everything change behind the first number that is not 0, a tilde behind the second.
        if operator == "^":
            is_last = kept[-1] > 0
        else:
            is_last = len(kept) == 2
        if is_last:
            break
    kept[-1] += 1
    return ".".join(map(str, kept))
