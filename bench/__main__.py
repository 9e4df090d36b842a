"""Measure, side by side in one run, what gpuinstall costs against what people would use otherwise.

``python -m bench [NAME…]`` runs those that are named of ``start``, ``install``, ``change``, ``lock``, ``extensions``,
``learn``, ``bootstrap``, ``verify``, ``fleet``, ``page``, ``script`` and ``transfer``, or all;
``NAME=WORD`` those rows of it whose names hold a word.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from bench import bootstrap, change, extensions, fleet, install, learn, lock, page, script, start, transfer, verify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.row import Row

PARTS: dict[str, Callable[..., Iterator[Row]]] = {
    "start": start.rows,
    "install": install.rows,
    "change": change.rows,
    "lock": lock.rows,
    "extensions": extensions.rows,
    "learn": learn.rows,
    "bootstrap": bootstrap.rows,
    "verify": verify.rows,
    "fleet": fleet.rows,
    "page": page.rows,
    "script": script.rows,
    "transfer": transfer.rows,
}


def main(names: list[str]) -> None:
    """Print one line a measurement as it is made."""
    sys.stdout.write(f"{'':<46} {'ours':>9} {'beside it':>10} {'':>8}  goal\n")
    for name in names or PARTS:
        part, _, word = name.partition("=")
        for row in PARTS[part](word) if word else PARTS[part]():
            sys.stdout.write(f"{row}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
