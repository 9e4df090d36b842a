"""``gpuinstall catalog``: what is known of builds, shipped and learned, and reading those that are not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

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
from gpuinstall.sourcing import Sourcing
from gpuinstall.units import display_path, readable

_PLATFORMS = {
    "linux": ("x86_64", "aarch64", "arm64"),
    "windows": ("x86_64", "arm64"),
    "macos": ("arm64", "x86_64"),
}


class BuildFilter(NamedTuple):
    """Which builds to show."""

    platform: str | None
    backend: str | None

    @property
    def platform_name(self) -> str:
        """The platform that is selected, or this machine's."""
        if self.platform:
            return self.platform
        from gpuinstall.facts.host import read_host
        from gpuinstall.facts.source import ThisMachine

        host = read_host(ThisMachine())
        return f"{host.os}-{host.arch}"

    @property
    def platform_parts(self) -> tuple[str, str]:
        """The operating system and the architecture.

        Raises:
            UsageError: if there is no such platform.
        """
        system, _, arch = self.platform_name.partition("-")
        if arch not in _PLATFORMS.get(system, ()):
            raise UsageError(
                "no-such-platform",
                f"{self.platform!r} is not a platform such as linux-x86_64",
            )
        return system, arch

    def builds(self, catalog: Catalog) -> Iterator[Build]:
        """Yield the builds of the catalogue, of every maker."""
        for kind in catalog.further:
            catalog = catalog.serving(kind)
        for build in catalog.builds_for(*self.platform_parts):
            if self.backend in {None, build.backend.tag}:
                yield build

    def learned(self, rows: Iterable[LearnedRow]) -> Iterator[LearnedRow]:
        """Yield the rows of wheels that were read."""
        for row in rows:
            if row.platform == self.platform_name and self.backend in {None, row.backend}:
                yield row


_filter = options.bundled(
    "selected",
    BuildFilter,
    {
        "platform": click.option(
            "--platform", metavar="OS-ARCH", help="Such as linux-x86_64 (default: this machine's)."
        ),
        "backend": click.option(
            "--backend", metavar="TAG", help="Only this backend, such as cu132."
        ),
    },
)


@click.group("catalog", help="Show the known builds, and read unknown ones from their wheels.")
def command() -> None:
    """Show and extend the catalogue."""


@command.command("list", help="List the known builds; a star marks those read from wheels.")
@_filter
@framed("catalog")
def _list(_terminal: Terminal, *, selected: BuildFilter) -> Outcome:
    catalog, store = load_catalog(), learned_store()
    rows = [_shipped(build) for build in selected.builds(catalog)]
    companions = [row for row in store.companions() if row.architectures]
    learned_rows = selected.learned([*store.builds(), *companions])
    rows += [_learned(row, catalog) for row in learned_rows]

    def show(screen: Terminal) -> None:
        tags: dict[str, list[str]] = {}
        for row in rows:
            if row["package"] == "torch":
                star = "*" if row["learned"] else ""
                tags.setdefault(row["version"], []).append(f"{row['backend']}{star}")
        for torch, backends in tags.items():
            screen.line(f"torch {torch:<10} {' '.join(backends)}")
        _show_rows([row for row in rows if row["learned"]], screen)
        screen.line()
        folder = display_path(store.folder)
        screen.prose(f"* read from wheels, kept in {folder}; the rest of {catalog.date}")

    return Outcome(
        {
            "date": catalog.date,
            "folder": str(store.folder),
            "rows": rows,
        },
        show,
    )


@command.command("show", help="Show what is known of a release: GPU code, CUDA, source.")
@click.argument("requirements", nargs=-1, required=True, metavar="REQ...")
@_filter
@framed("catalog")
def _show(_terminal: Terminal, *, requirements: tuple[str, ...], selected: BuildFilter) -> Outcome:
    catalog, store = load_catalog(), learned_store()
    learned_rows = list(selected.learned([*store.builds(), *store.companions()]))
    rows: list[dict[str, Any]] = []
    for requirement in map(parse_requirement, requirements):
        if requirement.name == "torch":
            builds = selected.builds(catalog)
            rows += [_shipped(build) for build in builds if requirement.allows(build.torch)]
        of_package = [row for row in learned_rows if row.package == requirement.name]
        rows += [_learned(row, catalog) for row in of_package if requirement.allows(row.version)]

    def show(screen: Terminal) -> None:
        _show_rows(rows, screen)
        if not rows:
            words = " ".join(requirements)
            place = selected.platform_name
            screen.line(
                f"no entry for {words} for {place}; gpuinstall catalog learn {words} reads it"
            )

    return Outcome({"date": catalog.date, "rows": rows}, show)


@command.command(
    "learn", help="Read from its wheel which GPUs the newest release of each REQ supports."
)
@click.argument("requirements", nargs=-1, required=True, metavar="REQ...")
@_filter
@options.fetching
@framed("catalog")
def _learn(
    terminal: Terminal,
    *,
    requirements: tuple[str, ...],
    selected: BuildFilter,
    sourcing: Sourcing,
) -> Outcome:
    from gpuinstall.learned.newest import Place, learn

    catalog = load_catalog()
    place = Place(*selected.platform_parts, known_backend(selected.backend))
    if selected.backend and place.backend is None:
        raise UsageError(
            "no-such-backend",
            f"{selected.backend!r} is not a backend such as cu132 or cpu",
        )
    learned_rows: list[LearnedRow] = []
    with options.open_folder(sourcing, terminal) as project:
        session = project.session
        sources = replace(session.sources, default_index=session.default_index)
        reader = Reader(sources, session.client, learned_store(), terminal)
        for text in requirements:
            learned_rows += learn(text, place, catalog, reader)
    rows = [_learned(row, catalog) for row in learned_rows]
    return Outcome({"rows": rows}, lambda screen: _show_rows(rows, screen))


def _shipped(build: Build) -> dict[str, Any]:
    cuda = None
    if build.toolkit:
        cuda = ".".join(map(str, build.toolkit))
    return {
        "package": "torch",
        "version": str(build.torch),
        "backend": build.backend.tag,
        "platform": f"{build.os}-{build.arch}",
        "architectures": list(build.code),
        "cuda": cuda,
        "confidence": build.confidence,
        "evidence": list(build.evidence),
        "learned": None,
    }


def _learned(row: LearnedRow, catalog: Catalog) -> dict[str, Any]:
    """Return a row as documents hold it, with the architectures of the catalogue as shipped that it lacks."""
    document = row.to_dict()
    if row.package != "torch":
        return document
    for build in catalog.builds_for(*row.platform.split("-", 1)):
        if build.name == f"{row.version}+{row.backend}":
            missing = set(build.code).difference(row.architectures)
            names = [
                name for name in build.code if name in missing and not name.startswith("compute_")
            ]
            if names:
                document["missing"] = names
            break
    return document


def _show_rows(rows: Sequence[dict[str, Any]], screen: Terminal) -> None:
    for row in rows:
        name = f"{row['package']} {row['version']} {row['backend']} {row['platform']}"
        code = " ".join(row["architectures"]) or "GPU architectures not listed"
        screen.prose(f"{name}: {code}", 4)
        if row["learned"]:
            day = row["learned"].partition("T")[0]
            origin = row["witness"] or "of unknown origin"
            cost = f"{readable(row['bytes'])} in {row['requests']} requests"
            screen.line(f"    learned on {day} from {row['file']} ({origin}; {cost})")
        if row.get("missing"):
            missing = " ".join(row["missing"])
            screen.warn(f"the wheel lists less than the catalogue: {missing} is missing")
