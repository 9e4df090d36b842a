"""Measure gpuinstall against uv and pip in the same run.

``python -m bench [NAME…]`` runs all or the given measurements, and ``NAME=WORD`` the
rows with this word.
Rows with the real torch need its CPU wheel in PIP_FIND_LINKS.
"""

from __future__ import annotations

import sys
from importlib import import_module

PARTS = ("start", "install", "change", "lock")


def main(names: list[str]) -> None:
    """Print one line per measurement."""
    sys.stdout.write(f"{'':<46} {'ours':>9} {'other':>10} {'':>8}  goal\n")
    for name in names or PARTS:
        part, _, word = name.partition("=")
        rows = import_module(f"bench.{part}").rows
        for row in rows(word) if word else rows():
            sys.stdout.write(f"{row}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
