"""What Poetry writes in a way of its own."""

from __future__ import annotations

import re


def poetry_specifiers(text: str) -> list[str]:
    """Return constraints of Poetry as the standard has them: ``^1.2`` is ``>=1.2`` and ``<2``, ``~1.2`` is ``<1.3``."""
    bounds = list[str]()
    # A blank is a comma, but not after an operator.
    for part in re.sub(r"(?<=[<>=!~^])\s+", "", text).replace(",", " ").split():
        if part == "*":
            continue
        if part[0] not in "^~" or part.startswith("~="):
            bounds.append(f"=={part}" if part[0].isdigit() else part)
            continue
        number = part.lstrip("^~")
        numbers = [int(digits) for digits in re.findall(r"\d+", number.partition("-")[0])]
        last = len(numbers) - 1
        # A caret lets everything change behind the first number that is not 0.
        raised = (
            next((place for place, digits in enumerate(numbers) if digits), last)
            if part[0] == "^"
            else min(1, last)
        )
        limit = (*numbers[:raised], numbers[raised] + 1)
        bounds += [f">={number}", f"<{'.'.join(map(str, limit))}"]
    return bounds
