"""Prints how often the answers of ``explain`` are right, by how sure they are: ``python -m tools.calibration``.

The texts are those that no pattern was written from (``tests/data/logs/held-out.toml``).
"""

from __future__ import annotations

import sys

from tests.unit.failures.held_out import CLASSES, answers, silent


def main() -> None:
    """Print a line for each class of confidence, then every wrong answer and every text without one."""
    found = answers()
    for low, high in CLASSES:
        inside = [answer for answer in found if low <= answer.confidence < high]
        right = sum(answer.named == answer.right for answer in inside)
        stated = sum(answer.confidence for answer in inside) / max(1, len(inside))
        average = f", {stated:.2f} stated" if inside else ""
        _say(f"{low:.1f} to {high:.1f}: {right:3} of {len(inside):3} right{average}")
    for answer in found:
        if answer.named != answer.right:
            _say(f"wrong: {answer.named} ({answer.confidence}) for {answer.right}: {answer.text[:150]!r}")
    for wanted, text in silent():
        _say(f"no answer for {wanted}: {text[:150]!r}")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
