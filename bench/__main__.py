"""Measure, side by side in one run, what gpuinstall costs against what people would use otherwise.

``python -m bench [NAME…]`` runs those that are named, or all; ``NAME=WORD`` those rows of it whose names hold a word.
What needs the real torch for the CPU is left out if PIP_FIND_LINKS has none for this Python.
"""

from __future__ import annotations

import sys
from importlib import import_module

PARTS = ("start", "install", "change", "lock")


def main(names: list[str]) -> None:
    """Print one line a measurement as it is made."""
    sys.stdout.write(f"{'':<46} {'ours':>9} {'beside it':>10} {'':>8}  goal\n")
    for name in names or PARTS:
        part, _, word = name.partition("=")
        rows = import_module(f"bench.{part}").rows
        for row in rows(word) if word else rows():
            sys.stdout.write(f"{row}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
