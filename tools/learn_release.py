"""Learn a whole release of torch, every backend and platform that the indexes have, and print its rows for builds.toml.

``python -m tools.learn_release [2.16.0] [--write]`` reads 6 to 8 MB of one wheel for each build of a release, else of
the newest, and prints what the catalogue does not have; ``--write`` puts it there. The rows are for review.
"""

from __future__ import annotations

import os
import re
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import tomli
from packaging.requirements import Requirement
from packaging.version import Version

from gpuinstall import load_catalog
from gpuinstall.errors import InstallationError
from gpuinstall.learned.newest import Place, learn
from gpuinstall.learned.reader import Reader
from gpuinstall.learned.store import learned_store
from gpuinstall.reporter import SilentReporter
from gpuinstall.session import open_session
from gpuinstall.sources import read_sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpuinstall.catalog import Catalog
    from gpuinstall.learned.row import LearnedRow

DATA = Path(__file__).parent.parent / "src" / "gpuinstall" / "catalog" / "data" / "builds.toml"
PLATFORMS = (Place("linux", "x86_64"), Place("linux", "aarch64"), Place("windows", "x86_64"))
SOURCE = "the list in torch's own library, read by range"


class Additions(NamedTuple):
    """Lines for the tables of builds.toml, and the days that they are of."""

    releases: str
    builds: str
    evidence: str
    days: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.releases}{self.builds}{self.evidence}"


def main(words: Sequence[str]) -> None:
    """Print the rows of one release that the catalogue does not have, or put them there."""
    release = next((f"torch=={word}" for word in words if word != "--write"), "torch")
    sources, catalog = read_sources(None, os.environ, Path.cwd()), load_catalog()
    with open_session(sources, SilentReporter()) as session:
        sources = replace(sources, default_index=session.default_index)
        reader = Reader(sources, session.client, learned_store(), SilentReporter())
        rows = [row for place in PLATFORMS for row in _learned(release, place, catalog, reader)]
    found = additions(rows, catalog)
    sys.stdout.write(str(found))
    if "--write" in words and found.builds:
        DATA.write_text(extended(DATA.read_text("utf-8"), found), encoding="utf-8")


def _learned(release: str, place: Place, catalog: Catalog, reader: Reader) -> list[LearnedRow]:
    try:
        return learn(release, place, catalog, reader)
    except InstallationError as error:
        sys.stderr.write(f"{place.os} {place.arch}: {error.message}\n")
        return []


def additions(rows: Iterable[LearnedRow], catalog: Catalog) -> Additions:
    """Write what the catalogue does not have: rows of releases and of builds, and the evidence that they name."""
    known = {
        (build.name, build.platform) for build in catalog.builds if build.confidence != "unverified"
    }
    releases: dict[str, list[LearnedRow]] = defaultdict(list)
    builds: dict[tuple[str, str], list[LearnedRow]] = defaultdict(list)
    for row in rows:
        if row.architectures and (row.build().name, row.build().platform) not in known:
            builds[row.version, row.backend].append(row)
            if Version(row.version) not in catalog.releases:
                releases[row.version].append(row)
    days = tuple(sorted({row.day for found in builds.values() for row in found}))
    return Additions(
        "".join(_release(torch, found) for torch, found in sorted(releases.items())),
        "".join(_build(torch, tag, found) for (torch, tag), found in sorted(builds.items())),
        "".join(f'{_evidence(day)} = {{ source = "{SOURCE}", date = "{day}" }}\n' for day in days),
        days,
    )


def extended(text: str, found: Additions) -> str:
    """Put rows at the end of their tables, and let the catalogue be of the day of the newest."""
    for table, lines in (("releases", found.releases), ("builds", found.builds)):
        end = text.index("\n]\n", text.index(f"\n{table} = [\n")) + 1
        text = f"{text[:end]}{lines}{text[end:]}"
    told = tomli.loads(text)
    new = [
        line
        for line in found.evidence.splitlines()
        if line.partition(" ")[0] not in told["evidence"]
    ]
    newest = max((told["date"], *found.days))
    dated = re.sub(r'\Adate = "[^"]*"|(?<=\n)date = "[^"]*"', f'date = "{newest}"', text, count=1)
    return dated.rstrip("\n") + "\n" + "".join(f"{line}\n" for line in new)


def _release(torch: str, rows: list[LearnedRow]) -> str:
    """What wheels say of their release; its day and its torchvision are for whoever reviews it."""
    pythons = sorted({python for row in rows for python in row.pythons}, key=_in_order)
    default = ", ".join(f'{_platform(row)} = "{row.backend}"' for row in rows if not row.source)
    triton = next((pin for row in rows for pin in _pins(row, "triton")), None)
    facts = {
        "torch": f'"{torch}"',
        "released": f'"{min(row.day for row in rows)}"',
        "requires_python": f'">={pythons[0]}"',
        "pythons": f'{{ any = "{" ".join(pythons)}" }}',
        "default": f"{{ {default} }}" if default else "{}",
        "torchvision": '""',
        "torchaudio": '""',
        **({"triton": f'"{triton}"'} if triton else {}),
        "evidence": f'"{_evidence(rows[0].day)}"',
    }
    return f"    {{ {', '.join(f'{key} = {value}' for key, value in facts.items())} }},\n"


def _build(torch: str, tag: str, rows: list[LearnedRow]) -> str:
    libraries = dict(library for row in rows for library in row.build().libraries)
    facts = {"torch": torch, "tag": tag, "toolkit": rows[0].cuda or "", **libraries}
    told = [f'{key} = "{value}"' for key, value in facts.items()]
    told += [
        f'{_platform(row)} = ["{_numbers(row.architectures)}", "high", "{_evidence(row.day)}"]'
        for row in rows
    ]
    return f"    {{ {', '.join(told)} }},\n"


def _pins(row: LearnedRow, name: str) -> Iterator[str]:
    yield from (
        str(asked.specifier) for asked in map(Requirement, row.requires) if asked.name == name
    )


def _platform(row: LearnedRow) -> str:
    return row.platform.replace("-", "_")


def _numbers(architectures: Iterable[str]) -> str:
    return " ".join(name.replace("sm_", "").replace("compute_", "+") for name in architectures)


def _evidence(day: str) -> str:
    return f"LEARNED-{day}"


def _in_order(python: str) -> tuple[int, str]:
    return int(python.rstrip("t").partition(".")[2]), python


if __name__ == "__main__":
    main(sys.argv[1:])
