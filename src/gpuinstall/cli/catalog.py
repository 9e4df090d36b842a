"""``gpuinstall catalog``: what is known of builds, shipped and learned, and reading those that are not."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import click

from gpuinstall.backend import known_backend
from gpuinstall.catalog import Build, Catalog, load_catalog
from gpuinstall.cli import options
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.cli.terminal import Terminal
from gpuinstall.errors import UsageError
from gpuinstall.learned.reader import Reader
from gpuinstall.learned.row import LearnedRow
from gpuinstall.learned.store import learned_store
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.project import Settings, open_project
from gpuinstall.request import Request
from gpuinstall.sourcing import Sourcing
from gpuinstall.units import display_path, readable

_PLATFORMS = {
    "linux": ("x86_64", "aarch64", "arm64"),
    "windows": ("x86_64", "arm64"),
    "macos": ("arm64", "x86_64"),
}
_platform = click.option(
    "--platform", metavar="OS-ARCH", help="Such as linux-x86_64 (default: this machine's)."
)
_backend = click.option("--backend", metavar="TAG", help="Only this backend, such as cu132.")


@click.group("catalog", help="Show the known builds, and read unknown ones from their wheels.")
def command() -> None:
    """Show and extend the catalogue."""


@command.command("list", help="List the known builds; a star marks those read from wheels.")
@_platform
@_backend
@framed("catalog")
def _list(_terminal: Terminal, *, platform: str | None, backend: str | None) -> Outcome:
    catalog, store = load_catalog(), learned_store()
    rows = [_shipped(build) for build in _builds(catalog, platform, backend)]
    named = platform or _here()
    learned_rows = [*store.builds(), *(row for row in store.companions() if row.architectures)]
    rows += [
        _learned(row, catalog)
        for row in learned_rows
        if row.platform == named and backend in {None, row.backend}
    ]

    def show(screen: Terminal) -> None:
        builds: dict[str, list[str]] = {}
        for row in (row for row in rows if row["package"] == "torch"):
            builds.setdefault(row["version"], []).append(
                f"{row['backend']}{'*' if row['learned'] else ''}"
            )
        for torch, tags in builds.items():
            screen.line(f"torch {torch:<10} {' '.join(tags)}")
        for row in (row for row in rows if row["learned"]):
            _show_row(row, screen)
        screen.line()
        screen.prose(
            f"* read from wheels, kept in {display_path(store.folder)}; the rest of {catalog.date}"
        )

    return Outcome({"date": catalog.date, "folder": str(store.folder), "rows": rows}, show)


@command.command("show", help="Show what is known of a release: GPU code, CUDA, source.")
@click.argument("requirements", nargs=-1, required=True, metavar="REQ...")
@_platform
@_backend
@framed("catalog")
def _show(
    _terminal: Terminal, *, requirements: tuple[str, ...], platform: str | None, backend: str | None
) -> Outcome:
    catalog, store = load_catalog(), learned_store()
    named, rows = platform or _here(), list[dict[str, Any]]()
    for requirement in [parse_requirement(text) for text in requirements]:
        if requirement.name == "torch":
            builds = (
                build
                for build in _builds(catalog, platform, backend)
                if requirement.allows(build.torch)
            )
            rows += [_shipped(build) for build in builds]
        stored = (
            row for row in (*store.builds(), *store.companions()) if row.package == requirement.name
        )
        stored = (row for row in stored if row.platform == named and backend in {None, row.backend})
        rows += [_learned(row, catalog) for row in stored if requirement.allows(row.version)]

    def show(screen: Terminal) -> None:
        for row in rows:
            _show_row(row, screen)
        if not rows:
            words = " ".join(requirements)
            screen.line(
                f"no entry for {words} for {named}; gpuinstall catalog learn {words} reads it"
            )

    return Outcome({"date": catalog.date, "rows": rows}, show)


@command.command(
    "learn", help="Read from its wheel which GPUs the newest release of each REQ supports."
)
@click.argument("requirements", nargs=-1, required=True, metavar="REQ...")
@_platform
@_backend
@options.fetching
@framed("catalog")
def _learn(
    terminal: Terminal,
    *,
    requirements: tuple[str, ...],
    platform: str | None,
    backend: str | None,
    sourcing: Sourcing,
) -> Outcome:
    from gpuinstall.learned.newest import Place, learn

    catalog = load_catalog()
    place = Place(*_parsed(platform), known_backend(backend))
    if backend and place.backend is None:
        raise UsageError("no-such-backend", f"{backend!r} is not a backend such as cu132 or cpu")
    with open_project(Path.cwd(), Settings(Request((), sourcing=sourcing)), terminal) as project:
        session = project.session
        everywhere = replace(session.sources, default_index=session.default_index)
        reader = Reader(everywhere, session.client, learned_store(), terminal)
        learned_rows = [row for text in requirements for row in learn(text, place, catalog, reader)]
    rows = [_learned(row, catalog) for row in learned_rows]

    def show(screen: Terminal) -> None:
        for row in rows:
            _show_row(row, screen)

    return Outcome({"rows": rows}, show)


def _here() -> str:
    from gpuinstall.facts.host import read_host
    from gpuinstall.facts.source import ThisMachine

    host = read_host(ThisMachine())
    return f"{host.os}-{host.arch}"


def _parsed(platform: str | None) -> tuple[str, str]:
    system, _, arch = (platform or _here()).partition("-")
    if arch not in _PLATFORMS.get(system, ()):
        raise UsageError("no-such-platform", f"{platform!r} is not a platform such as linux-x86_64")
    return system, arch


def _builds(catalog: Catalog, platform: str | None, backend: str | None) -> Iterable[Build]:
    everything = reduce(Catalog.serving, catalog.further, catalog)
    return (
        build
        for build in everything.builds_for(*_parsed(platform))
        if backend in {None, build.backend.tag}
    )


def _shipped(build: Build) -> dict[str, Any]:
    return {
        "package": "torch",
        "version": str(build.torch),
        "backend": build.backend.tag,
        "platform": f"{build.os}-{build.arch}",
        "architectures": list(build.code),
        "cuda": ".".join(map(str, build.toolkit)) if build.toolkit else None,
        "confidence": build.confidence,
        "evidence": list(build.evidence),
        "learned": None,
    }


def _learned(row: LearnedRow, catalog: Catalog) -> dict[str, Any]:
    """A row as documents hold it; with the architectures that it lacks of those in the catalogue as shipped."""
    system, _, arch = row.platform.partition("-")
    builds = catalog.builds_for(system, arch) if row.package == "torch" else ()
    code = next(
        (build.code for build in builds if build.name == f"{row.version}+{row.backend}"), ()
    )
    missing = [
        name for name in code if name not in row.architectures and not name.startswith("compute_")
    ]
    return row.to_dict() | ({"missing": missing} if missing else {})


def _show_row(row: dict[str, Any], screen: Terminal) -> None:
    code = " ".join(row["architectures"]) or "GPU architectures not listed"
    screen.prose(f"{row['package']} {row['version']} {row['backend']} {row['platform']}: {code}", 4)
    if row["learned"]:
        day = re.sub("T.*", "", row["learned"])
        cost = f"{readable(row['bytes'])} in {row['requests']} requests"
        screen.line(
            f"    learned on {day} from {row['file']} ({row['witness'] or 'of unknown origin'}; {cost})"
        )
    if row.get("missing"):
        screen.warn(
            f"the wheel lists less than the catalogue: {' '.join(row['missing'])} is missing"
        )
