"""Learn a whole release of torch, every backend and platform that the indexes have, and print its rows for builds.toml.

``python -m tools.learn_release 2.16.0`` reads 6 to 8 MB of one wheel for each build; the rows are for review.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall import load_catalog
from gpuinstall.errors import InstallationError
from gpuinstall.learned.asked import Place, learn
from gpuinstall.learned.reader import Reader
from gpuinstall.learned.store import learned_store
from gpuinstall.reporter import SilentReporter
from gpuinstall.session import open_session
from gpuinstall.sources import read_sources

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuinstall.learned.row import LearnedRow

PLATFORMS = (Place("linux", "x86_64"), Place("linux", "aarch64"), Place("windows", "x86_64"))


def main() -> None:
    """Print the rows of one release."""
    torch = sys.argv[1]
    sources = read_sources(None, os.environ, Path.cwd())
    with open_session(sources, SilentReporter()) as session:
        sources = replace(sources, default_index=session.default_index)
        reader = Reader(sources, session.client, learned_store(), SilentReporter())
        sys.stdout.write(written(row for place in PLATFORMS for row in _learned(torch, place, reader)))


def _learned(torch: str, place: Place, reader: Reader) -> list[LearnedRow]:
    try:
        return learn(f"torch=={torch}", place, load_catalog(), reader)
    except InstallationError as error:
        sys.stderr.write(f"{place.os} {place.arch}: {error.message}\n")
        return []


def written(rows: Iterable[LearnedRow]) -> str:
    """Write rows as builds.toml has them, one for each backend, and below them the evidence that they name."""
    found: dict[tuple[str, str], list[LearnedRow]] = defaultdict(list)
    for row in rows:
        if row.architectures:
            found[row.version, row.backend].append(row)
    lines = [_line(torch, tag, builds) for (torch, tag), builds in sorted(found.items())]
    days = sorted({row.day for builds in found.values() for row in builds})
    evidence = [
        f'LEARNED-{day} = {{ source = "the list in torch\'s own library, read by range", date = "{day}" }}\n'
        for day in days
    ]
    return "".join((*lines, *evidence))


def _line(torch: str, tag: str, rows: list[LearnedRow]) -> str:
    libraries = dict(library for row in rows for library in row.build().libraries)
    facts = {"torch": torch, "tag": tag, "toolkit": rows[0].cuda or "", **libraries}
    told = [f'{key} = "{value}"' for key, value in facts.items()]
    told += [f'{_key(row)} = ["{_numbers(row.architectures)}", "high", "LEARNED-{row.day}"]' for row in rows]
    return f"    {{ {', '.join(told)} }},\n"


def _key(row: LearnedRow) -> str:
    return row.platform.replace("-", "_")


def _numbers(architectures: Iterable[str]) -> str:
    return " ".join(name.replace("sm_", "").replace("compute_", "+") for name in architectures)


if __name__ == "__main__":
    main()
