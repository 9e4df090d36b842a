"""Inspect a release of torch and print its rows for the catalog.

``python -m tools.learn_release [2.16.0] [--write]`` reads 6 to 8 MB of one wheel for each
build of a release, by default the latest, and prints the rows that the catalog lacks: the
release, its builds (also for ROCm and XPU), and its companions. ``--write`` adds them to
the catalog, and checks it. Review the rows. The exit status is 1 if an index cannot be
read, or lists no such release.
"""

from __future__ import annotations

import argparse
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
from gpuinstall.catalog.listing import (
    platforms,
    python,
    read_family_wheels,
    read_listing,
    update_builds,
)
from gpuinstall.catalog.loader import OTHER_KINDS
from gpuinstall.sources import read_sources
from gpuinstall.sources.session import open_session
from gpuinstall.wheels.learned.reader import Reader
from gpuinstall.wheels.learned.store import open_row_cache
from tools.catalog_check import check_catalog

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

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


VERSIONS_TO_READ = 4
"""The number of versions of a companion to read, from the latest on."""


class CompanionRow(NamedTuple):
    """Facts about one version of torchvision or torchaudio."""

    package: str
    version: str
    torch: str | None
    """The torch that METADATA requires; None for any version."""
    pythons: tuple[str, ...]
    platforms: tuple[str, ...]


class Additions(NamedTuple):
    """New rows of builds.toml and of files of other kinds."""

    releases: str
    builds: str
    evidence: str
    days: tuple[str, ...] = ()
    companions: str = ""
    others: Mapping[str, str] = {}
    """The rows of other files by kind, such as ``rocm``."""

    def __str__(self) -> str:
        others = "".join(self.others.values())
        return f"{self.companions}{self.releases}{self.builds}{others}{self.evidence}"


def main(words: Sequence[str]) -> int:
    """Print or add the rows that the catalog lacks."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("release", nargs="?", help="such as 2.16.0 (default: latest)")
    parser.add_argument("--write", action="store_true", help="add the rows")
    options = parser.parse_args(words)
    release = f"torch=={options.release}" if options.release else "torch"
    catalog = load_catalog()
    for kind in OTHER_KINDS:
        catalog = catalog.with_kind(kind)
    sources = read_sources(None, Path.cwd())
    rows: list[WheelRow] = []
    errors: dict[str, None] = {}
    with open_session(sources, Reporter()) as session:
        sources = sources.with_default_index(session.find_default_index())
        reader = Reader(sources, session.client, open_row_cache(), Reporter())
        for os_name, arch in PLATFORMS:
            try:
                rows += inspect_missing_builds(release, os_name, arch, catalog, reader)
            except InstallationError as error:  # noqa: PERF203  three platforms
                errors[error.message] = None
        tags = [row.backend for row in rows if row.cuda]
        companions = [*read_companions(tags[-1], reader)] if tags else []
    new = find_additions(rows, catalog, companions)
    sys.stdout.write(str(new))
    for message in errors or (() if str(new) else ("the catalog lacks no rows",)):
        sys.stderr.write(f"{message}\n")
    if options.write and (new.builds or new.others):
        DATA.write_text(extend_catalog(DATA.read_text("utf-8"), new), encoding="utf-8")
        for kind in new.others:
            file = DATA.with_name(f"{OTHER_KINDS[kind]}.toml")
            file.write_text(extend_kind(file.read_text("utf-8"), kind, new), "utf-8")
        check_catalog()
    return int(bool(errors))


def inspect_missing_builds(
    release: str,
    os: str,
    arch: str,
    catalog: Catalog,
    reader: Reader,
) -> list[WheelRow]:
    """Inspect the builds of one platform that the catalog lacks.

    Raises:
        InstallationError: An index cannot be read, or lists no such release.
    """
    requirement = parse_requirement(release)
    verified = [build for build in catalog.builds if build.absent != "unverified"]
    backends = {build.backend for build in catalog.builds_for(os, arch)}
    tags = [backend.tag for backend in sorted(backends)]
    listing = read_listing(reader.sources, reader.client, tags, ("torch",))
    if listing.silent:
        raise listing.silent[0]
    builds = [
        build
        for build in update_builds(verified, listing, f"{os}_{arch}")
        if build.platform == f"{os}_{arch}" and not build.absent
    ]
    newest = max(
        (build.torch for build in builds if requirement.allows(build.torch)),
        default=None,
    )
    if newest is None:
        message = f"no index lists {release} for {os} {arch}"
        raise InstallationError("release-unlisted", message)
    to_read = [build for build in builds if build.torch == newest and build.unread]
    return map_concurrently(reader.read_torch_row, to_read, AT_ONCE)


def read_companions(tag: str, reader: Reader) -> Iterator[CompanionRow]:
    """Yield the latest torchvision and torchaudio for a backend."""
    for package in ("torchvision", "torchaudio"):
        wheels = read_family_wheels(reader.sources, reader.client, tag, package)
        versions = sorted({wheel.version for wheel in wheels}, reverse=True)
        for version in versions[:VERSIONS_TO_READ]:
            own = [wheel for wheel in wheels if wheel.version == version]
            required = reader.metadata(own[0]).get_all("Requires-Dist") or ()
            requirements = [parse_requirement(text) for text in required]
            pins = [one.pinned for one in requirements if one.name == "torch"]
            pythons = {python(wheel.tags) or "any" for wheel in own}
            supported = frozenset[str]().union(*(platforms(one.tags) for one in own))
            yield CompanionRow(
                package,
                version.public,
                pins[0].partition("+")[0] if pins and pins[0] else None,
                tuple(sorted(pythons, key=_in_order)),
                tuple(sorted(supported)),
            )


def find_additions(
    rows: Iterable[WheelRow],
    catalog: Catalog,
    companions: Sequence[CompanionRow] = (),
) -> Additions:
    """Return missing rows of releases, builds, and companions."""
    known = set()
    for build in catalog.builds:
        if build.absent != "unverified":
            known.add((build.name, build.platform))
    releases: dict[str, list[WheelRow]] = defaultdict(list)
    builds: dict[tuple[str, str], list[WheelRow]] = defaultdict(list)
    days = set()
    for row in rows:
        build = row.build()
        # The wheels for XPU list no code.
        is_empty = not row.architectures and build.backend.kind != "xpu"
        if is_empty or (build.name, build.platform) in known:
            continue
        days.add(row.learned[:10])
        builds[row.version, row.backend].append(row)
        if build.torch not in catalog.releases:
            releases[row.version].append(row)
    lines_of_builds = ""
    others: dict[str, str] = defaultdict(str)
    for (torch, tag), own_rows in sorted(builds.items()):
        kind = own_rows[0].build().backend.kind
        if kind in OTHER_KINDS:
            minor = torch.rpartition(".")[0]
            others[kind] += _build(minor, tag, own_rows)
        else:
            lines_of_builds += _build(torch, tag, own_rows)
    listed = [one for one in companions if one.torch in {None, *releases}]
    day = max(days, default="")
    evidence = ""
    for day in sorted(days):
        evidence += f'{_evidence(day)} = {{ source = "{SOURCE}", date = "{day}" }}\n'
    return Additions(
        releases="".join(
            _release(torch, releases[torch], listed) for torch in sorted(releases)
        ),
        builds=lines_of_builds,
        evidence=evidence,
        days=tuple(sorted(days)),
        companions="".join(
            _companion(one, day)
            for one in listed
            if releases and (one.package, one.version) not in catalog.companions
        ),
        others=dict(others),
    )


def _companion(row: CompanionRow, day: str) -> str:
    """Return the row of one version of a companion."""
    facts = {
        "package": row.package,
        "versions": row.version,
        "pythons": " ".join(row.pythons),
        "platforms": " ".join(row.platforms),
        "evidence": _evidence(day),
    }
    return _table_row([f'{key} = "{value}"' for key, value in facts.items()])


def _release(
    torch: str, rows: list[WheelRow], companions: Iterable[CompanionRow]
) -> str:
    """Return the row of a release with a date to review."""
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
        "released": f'"{min(row.learned[:10] for row in rows)}"',
        "requires_python": f'">={versions[0]}"',
        "pythons": f'{{ any = "{" ".join(versions)}" }}',
        "default": f"{{ {', '.join(default)} }}" if default else "{}",
    }
    for package in ("torchvision", "torchaudio"):
        own = [one for one in companions if one.package == package]
        versions = [one.version for one in own if one.torch == torch]
        # Any version is compatible if none requires a torch.
        versions = versions or [one.version for one in own][:1]
        facts[package] = f'"{" ".join(versions)}"'
    if tritons:
        facts["triton"] = f'"{tritons[0]}"'
    facts["evidence"] = f'"{_evidence(rows[0].learned[:10])}"'
    return _table_row([f"{key} = {value}" for key, value in facts.items()])


def _in_order(python: str) -> tuple[int, str]:
    minor = python.rstrip("t").partition(".")[2]
    return int(minor or 0), python


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
            f'{_platform(row)} = ["{numbers}", "high", "{_evidence(row.learned[:10])}"]'
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
    for table, lines in (
        ("companions", new.companions),
        ("releases", new.releases),
        ("builds", new.builds),
    ):
        text = _insert_rows(text, table, lines)
    document = tomli.loads(text)
    newest = max((document["date"], *new.days))
    # The first date is the catalog's own.
    text = re.sub(
        r'\Adate = "[^"]*"|(?<=\n)date = "[^"]*"', f'date = "{newest}"', text, count=1
    )
    return _add_evidence(text, new)


def extend_kind(text: str, kind: str, new: Additions) -> str:
    """Return the builds of another kind with the rows appended."""
    return _add_evidence(_insert_rows(text, "builds", new.others[kind]), new)


def _insert_rows(text: str, table: str, lines: str) -> str:
    start = text.index(f"\n{table} = [\n")
    end = text.index("\n]\n", start) + 1
    return f"{text[:end]}{lines}{text[end:]}"


def _add_evidence(text: str, new: Additions) -> str:
    known = tomli.loads(text)["evidence"]
    evidence = [
        line
        for line in new.evidence.splitlines()
        if line.partition(" ")[0] not in known
    ]
    return "\n".join([text.rstrip("\n"), *evidence]) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
