"""The lock to install, there already or only resolved, and what it costs: known before anything is paid."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import tomli

from gpuinstall.environments.packages import read_packages, required_names
from gpuinstall.environments.paths import packages_folders
from gpuinstall.errors import UsageError
from gpuinstall.facts.pythons import find_python
from gpuinstall.install.clone import editable_folders, unchanged_packages
from gpuinstall.install.space import FREE, Bill, price_files
from gpuinstall.lock.document import build_incomplete
from gpuinstall.lock.fit import Fit, best_files, selected
from gpuinstall.lock.lock import LockedFile, VersionChange, compare_versions
from gpuinstall.lock.making import resolve_locks
from gpuinstall.lock.resolution import Resolution
from gpuinstall.lock.source_builds import (
    BuildSite,
    SourceBuild,
    check_builds,
    check_wheels,
    source_builds,
    this_site,
)
from gpuinstall.lock.strangers import check_hosts, name_torch_source
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.plan.values import UNASKED
from gpuinstall.text import some
from gpuinstall.units import readable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpuinstall.install.inspection import ExistingEnvironment
    from gpuinstall.install.options import InstallState
    from gpuinstall.machine import Machine
    from gpuinstall.plan.values import Choice
    from gpuinstall.project import Project
    from gpuinstall.session import Session
    from gpuinstall.web import Head


UNCONFIRMED = "download-not-confirmed"
UNASKED_BYTES = 1_000_000_000


@dataclass(frozen=True)
class PricedLock:
    """What is to be installed, and what that costs."""

    of: Fit | Resolution
    """A lock that is there, or a resolution that a lock has yet to be made of."""
    changes: tuple[VersionChange, ...] = ()
    """The packages of the environment that come, go and move."""
    existing: ExistingEnvironment | None = None
    """The environment that another one is to replace; None if none is built."""
    bill: Bill = FREE
    """What it costs."""
    stays: tuple[str, ...] = ()
    """Why packages do not change that were to."""
    unchanged: frozenset[str] = frozenset()
    """The packages that stay as they are."""

    @property
    def choice(self) -> Choice:
        """The build that it holds."""
        return self.of.choice

    @property
    def heads(self) -> Mapping[LockedFile, Head]:
        """What is said of the files whose index gives no hash."""
        return self.of.hashes.missing if isinstance(self.of, Resolution) else {}

    def to_dict(self, commands: Iterable[Sequence[str]]) -> dict[str, Any]:
        """Return the document of ``install --dry-run --json``."""
        return {
            "plan": self.of.plan.to_dict(),
            "lock": {"changes": [change._asdict() for change in self.changes]},
            "bytes": self.bill.fetch,
            "sources": [{"host": host, "bytes": size} for host, size in self.bill.sources.items()],
            "space": [
                {"path": str(folder), "bytes": size}
                for folder, size in self.bill.folders.items()
                if size
            ],
            "commands": [list(words) for words in commands],
        }

    def lines(self) -> Iterator[tuple[str, str]]:
        """What is told of it before it is carried out, line by line with the label of each."""
        if self.existing is None:
            return
        yield "Build", f"torch {self.choice.build.name} · Python {self.choice.python}"
        if isinstance(self.of, Resolution):
            yield from (("", remark) for remark in self.of.remarks)
        if self.existing.is_empty:
            named = {parse_requirement(text).name for text in self.choice.requirements}
            first = sorted(self.changes, key=lambda change: change.package not in named)
            lines = [f"+ {some([f'{change.package} {change.new}'.rstrip() for change in first])}"]
        else:
            lines = [*map(str, self.changes), *self.stays] or ["no version changes"]
        yield from (("" if position else "Changes", line) for position, line in enumerate(lines))
        fetched = (
            ""
            if find_python(self.choice.python)
            else f"; uv downloads Python {self.choice.python} too"
        )
        yield "Download", f"{self.bill}{fetched}"

    def announce(self, session: Session, *, yes: bool) -> None:
        """Say what it is and costs; raise InstallationError where there is no space for it.

        Raise UsageError, unless ``yes``, for gigabytes that come only because the CPU build's index is unreachable.
        """
        for label, text in self.lines():
            session.reporter.step(label, text)
        self.bill.check()
        silent = None if yes else session.client.unreachable(session.sources.torch_index)
        unasked = isinstance(self.of, Resolution) and any(
            one.code == UNASKED for one in self.of.plan.warnings
        )
        if silent and unasked and self.bill.fetch > UNASKED_BYTES:
            what = f"torch {self.choice.build.name} is a download of {readable(self.bill.fetch)}"
            hint = "the same again   # when it is reachable\nthe same with --yes   # downloads it all the same"
            message = f"{what}: the index of the CPU build, {silent.host}, is unreachable"
            raise UsageError(UNCONFIRMED, message, why=silent.why, hint=hint)

    def make_lock(self, state: InstallState, project: Project) -> Fit:
        """Return the lock; of files whose index gives no hash the installation takes it."""
        if isinstance(self.of, Fit):
            return self.of
        request, folder = state.request.request, project.paths.folder
        return Fit(
            build_incomplete(self.of, request, project.session, state.asked, folder), self.of.plan
        )


def price_lock(fit: Fit, state: InstallState, project: Project) -> PricedLock:
    """Reckon what a lock that is there costs and changes."""
    existing, machine, session = state.existing, state.request.machine, project.session
    builds, site = builds_of(fit, machine, project)
    if session.sourcing.only_binary:
        check_wheels(builds)
    check_builds(builds, site, session.reporter, here=True)
    if unserved := fit.lock.unserved:
        session.reporter.warn(
            f"{fit.lock.name} takes {', '.join(unserved)} from files of this machine"
        )
    files = selected(fit.lock, fit.choice.python, machine)
    if not (project.sourcing.wheels or session.environment.get("UV_OFFLINE")):
        check_hosts(fit.lock, files, fit.choice.build.backend.tag, session)
    name_torch_source(files, "", session)
    unchanged = unchanged_packages(
        existing,
        fit.lock.versions,
        fit.lock.hashes_by_package,
        editable_folders(fit.lock, project.paths.folder),
        fit.choice.python,
    )
    new = [file for file in files if file.package not in unchanged]
    price = price_files(new, {}, project.paths.venv, session)
    changes = compare_versions(existing.packages, fit.lock.held)
    return PricedLock(fit, changes, existing, price, unchanged=unchanged)


def resolve_lock(state: InstallState, project: Project) -> PricedLock:
    """Resolve a new lock, and reckon what it costs and changes. Raise what choosing or resolving raises.

    Versions that are locked stay unless they are to move.
    """
    options, existing, session = state.options, state.existing, project.session
    held = [existing.held_by] if existing.held_by and not options.upgrade else []
    moving = options.moving if held else ()
    resolution = resolve_locks([state.request], session, held=held, moving=moving)[0]
    hashes = resolution.hashes
    for warning in resolution.plan.warnings:
        session.reporter.warn(warning.message)
    files = best_files(resolution.files, resolution.choice.python, state.request.machine)
    files = tuple(replace(file, sha256=hashes.known.get(file.url)) for file in files)
    known: dict[str, set[str]] = defaultdict(set)
    for file in files:
        known[file.package].add(file.sha256 or "")
    unchanged = unchanged_packages(
        existing, resolution.versions, known, resolution.editable_folders, resolution.choice.python
    )
    listed = {file.url: head.size or 0 for file, head in hashes.missing.items()}
    for package in resolution.document.get("packages", ()):  # whose index says sizes
        listed |= {
            entry["url"]: entry["size"] for entry in package.get("wheels", ()) if entry.get("size")
        }
    new = [file for file in files if file.package not in unchanged]
    price = price_files(new, listed, project.paths.venv, session)
    changes = compare_versions(existing.packages, resolution.held)
    stays = tuple(_unmoved(state, resolution.held))
    return PricedLock(resolution, changes, existing, price, stays, unchanged)


def _unmoved(state: InstallState, held: Mapping[str, str]) -> Iterator[str]:
    """Say why a package that was to go or to be upgraded is in the environment as before."""
    existing, asked = state.existing, state.asked
    wanted = [parse_requirement(text) for text in (*asked.requirements, *asked.constraints)]
    before = {
        parse_requirement(text).name for text in (existing.lock.inputs if existing.lock else ())
    }
    packages = read_packages(packages_folders(existing.paths.venv))
    for name in sorted(before & held.keys() - {requirement.name for requirement in wanted}):
        needing = [other.name for other in packages if name in required_names(other)]
        yield f"{name} {held[name]} stays: {some(needing) or 'another package'} requires it"
    for name in state.options.moving:
        if name in held and existing.packages.get(name) == held[name]:
            limits = [
                f"{one.name}{one.specifier}" for one in wanted if one.name == name and one.specifier
            ]
            yield f"{name} stays at {held[name]}, the newest that fits {' and '.join(limits) or 'the other packages'}"


def builds_of(
    fit: Fit, machine: Machine, project: Project
) -> tuple[tuple[SourceBuild, ...], BuildSite]:
    """What an installation of a lock builds, and where."""
    site = this_site(
        fit.choice, fit.lock.versions, machine, project.session, project.sourcing.wheels
    )
    return source_builds(tomli.loads(fit.lock.text)), site
