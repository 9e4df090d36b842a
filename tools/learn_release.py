"""Inspect a release of torch and print its rows for builds.toml.

``python -m tools.learn_release [2.16.0] [--write]`` reads 6 to 8 MB of one wheel for each
build of a release, by default the latest, and prints the rows that the catalog lacks.
``--write`` adds them to the catalog. Review the rows.
"""

from __future__ import annotations

import os
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import tomli
from packaging.requirements import Requirement

from gpuinstall.api import load_catalog
from gpuinstall.base.errors import InstallationError
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.requirement import parse_requirement
from gpuinstall.base.threads import map_concurrently
from gpuinstall.base.values import replace
from gpuinstall.catalog.listing import read_listing, update_builds
from gpuinstall.sources import read_sources
from gpuinstall.sources.session import open_session
from gpuinstall.wheels.learned.reader import Reader
from gpuinstall.wheels.learned.store import open_row_cache

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuinstall.catalog import Catalog
    from gpuinstall.wheels.learned.row import WheelRow

DATA = (
    Path(__file__).parent.parent
    / "src"
    / "gpuinstall"
    / "catalog"
    / "data"
    / "builds.toml"
)
PLATFORMS = (("linux", "x86_64"), ("linux", "aarch64"), ("windows", "x86_64"))
AT_ONCE = 4
SOURCE = "the list in torch's own library, read by range"


class Additions(NamedTuple):
    """New rows of builds.toml, and their dates."""

    releases: str
    builds: str
    evidence: str
    days: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.releases}{self.builds}{self.evidence}"


def main(words: Sequence[str]) -> None:
    """Print or add the rows that the catalog lacks."""
    versions = [word for word in words if word != "--write"]
    release = f"torch=={versions[0]}" if versions else "torch"
    catalog = load_catalog()
    sources = read_sources(None, os.environ, Path.cwd())
    rows: list[WheelRow] = []
    with open_session(sources, Reporter()) as session:
        sources = replace(sources, default_index=session.find_default_index())
        reader = Reader(sources, session.client, open_row_cache(), Reporter())
        for os_name, arch in PLATFORMS:
            rows += inspect_missing_builds(release, os_name, arch, catalog, reader)
    new = find_additions(rows, catalog)
    sys.stdout.write(str(new))
    if "--write" in words and new.builds:
        DATA.write_text(extend_catalog(DATA.read_text("utf-8"), new), encoding="utf-8")


def inspect_missing_builds(
    release: str,
    os: str,
    arch: str,
    catalog: Catalog,
    reader: Reader,
) -> list[WheelRow]:
    """Inspect the builds of one platform that the catalog lacks."""
    requirement = parse_requirement(release)
    verified = [build for build in catalog.builds if build.absent != "unverified"]
    backends = {build.backend for build in catalog.builds_for(os, arch)}
    tags = [backend.tag for backend in sorted(backends)]
    try:
        listing = read_listing(reader.sources, reader.client, tags, ("torch",))
    except InstallationError as error:
        sys.stderr.write(f"{os} {arch}: {error.message}\n")
        return []
    builds = [
        build
        for build in update_builds(verified, listing, f"{os}_{arch}")
        if build.platform == f"{os}_{arch}" and not build.absent
    ]
    newest = max(
        (build.torch for build in builds if requirement.allows(build.torch)),
        default=None,
    )
    to_read = [build for build in builds if build.torch == newest and build.unread]
    return map_concurrently(reader.read_torch_row, to_read, AT_ONCE)


def find_additions(rows: Iterable[WheelRow], catalog: Catalog) -> Additions:
    """Return missing rows of releases and builds, with their evidence."""
    known = set()
    for build in catalog.builds:
        if build.absent != "unverified":
            known.add((build.name, build.platform))
    releases: dict[str, list[WheelRow]] = defaultdict(list)
    builds: dict[tuple[str, str], list[WheelRow]] = defaultdict(list)
    days = set()
    for row in rows:
        build = row.build()
        if not row.architectures or (build.name, build.platform) in known:
            continue
        days.add(row.day)
        builds[row.version, row.backend].append(row)
        if build.torch not in catalog.releases:
            releases[row.version].append(row)
    lines_of_builds = ""
    for (torch, tag), own_rows in sorted(builds.items()):
        lines_of_builds += _build(torch, tag, own_rows)
    evidence = ""
    for day in sorted(days):
        evidence += f'{_evidence(day)} = {{ source = "{SOURCE}", date = "{day}" }}\n'
    return Additions(
        releases="".join(
            _release(torch, releases[torch]) for torch in sorted(releases)
        ),
        builds=lines_of_builds,
        evidence=evidence,
        days=tuple(sorted(days)),
    )


def _release(torch: str, rows: list[WheelRow]) -> str:
    """Return the row of a release; its date and torchvision need review."""
    pythons: set[str] = set()
    tritons: list[str] = []
    for row in rows:
        pythons.update(row.pythons)
        tritons += _pins(row, "triton")
    versions = sorted(pythons, key=_in_order)
    # A row without a source is from the default index.
    default = [f'{_platform(row)} = "{row.backend}"' for row in rows if not row.source]
    facts = {
        "torch": f'"{torch}"',
        "released": f'"{min(row.day for row in rows)}"',
        "requires_python": f'">={versions[0]}"',
        "pythons": f'{{ any = "{" ".join(versions)}" }}',
        "default": f"{{ {', '.join(default)} }}" if default else "{}",
        "torchvision": '""',
        "torchaudio": '""',
    }
    if tritons:
        facts["triton"] = f'"{tritons[0]}"'
    facts["evidence"] = f'"{_evidence(rows[0].day)}"'
    return _table_row([f"{key} = {value}" for key, value in facts.items()])


def _in_order(python: str) -> tuple[int, str]:
    minor = python.rstrip("t").partition(".")[2]
    return int(minor), python


def _pins(row: WheelRow, name: str) -> list[str]:
    """Return the versions of a package that a wheel requires."""
    versions = []
    for text in row.requires:
        requirement = Requirement(text)
        if requirement.name == name:
            versions.append(str(requirement.specifier))
    return versions


def _build(
    torch: str,
    tag: str,
    rows: list[WheelRow],
) -> str:
    facts = {
        "torch": torch,
        "tag": tag,
        "toolkit": rows[0].cuda or "",
    }
    for row in rows:
        facts.update(row.build().libraries)
    entries = [f'{key} = "{value}"' for key, value in facts.items()]
    for row in rows:
        numbers = " ".join(row.architectures)
        numbers = numbers.replace("sm_", "").replace("compute_", "+")
        entries.append(
            f'{_platform(row)} = ["{numbers}", "high", "{_evidence(row.day)}"]'
        )
    return _table_row(entries)


def _table_row(entries: Iterable[str]) -> str:
    return f"    {{ {', '.join(entries)} }},\n"


def _platform(row: WheelRow) -> str:
    return row.platform.replace("-", "_")


def _evidence(day: str) -> str:
    return f"LEARNED-{day}"


def extend_catalog(text: str, new: Additions) -> str:
    """Return the catalog with the rows appended and its date updated."""
    for table, lines in (("releases", new.releases), ("builds", new.builds)):
        start = text.index(f"\n{table} = [\n")
        end = text.index("\n]\n", start) + 1
        text = f"{text[:end]}{lines}{text[end:]}"
    document = tomli.loads(text)
    newest = max((document["date"], *new.days))
    # The first date is the catalog's own.
    text = re.sub(
        r'\Adate = "[^"]*"|(?<=\n)date = "[^"]*"', f'date = "{newest}"', text, count=1
    )
    known = document["evidence"]
    evidence = [
        line
        for line in new.evidence.splitlines()
        if line.partition(" ")[0] not in known
    ]
    return "\n".join([text.rstrip("\n"), *evidence]) + "\n"


if __name__ == "__main__":
    main(sys.argv[1:])
