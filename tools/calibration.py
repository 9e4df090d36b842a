"""Prints how often the answers of ``explain`` are right, by how sure they are: ``python -m tools.calibration``.

The texts are those that no pattern was written from (``tests/data/logs/held-out.toml``). With a file of JSON lines,
each with an ``id`` and a ``text``, prints the first answer to each instead, for somebody who has the labels.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.unit.failures.held_out import CLASSES, answers, silent

from gpuinstall.failures.classify import classify


def main() -> None:
    """Print a line for each class of confidence, then every wrong answer and every text without one."""
    found = answers()
    for low, high in CLASSES:
        inside = [answer for answer in found if low <= answer.confidence < high]
        right = sum(answer.is_right for answer in inside)
        stated = sum(answer.confidence for answer in inside) / max(1, len(inside))
        average = f", {stated:.2f} stated" if inside else ""
        _say(f"{low:.1f} to {high:.1f}: {right:3} of {len(inside):3} right{average}")
    for answer in found:
        if not answer.is_right:
            right_entries = " or ".join(answer.right)
            _say(
                f"wrong: {answer.named} ({answer.confidence}) for {right_entries}: {answer.text[:150]!r}"
            )
    for wanted, text in silent():
        _say(f"no answer for {wanted}: {text[:150]!r}")


def print_answers(file: Path) -> None:
    """Print the first answer to each text of a file."""
    for line in file.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        causes = classify(row["text"])
        answer = (
            f"{causes[0].id} {causes[0].confidence:.2f} {causes[0].title}"
            if causes
            else "no answer"
        )
        _say(f"{row['id']}: {answer}")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    if sys.argv[1:]:
        print_answers(Path(sys.argv[1]))
    else:
        main()
