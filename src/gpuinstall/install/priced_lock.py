"""The lock to install, there already or only resolved, and what it costs: known before anything is paid."""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import tomli

from gpuinstall.base.environment_paths import packages_folders
from gpuinstall.base.errors import UsageError
from gpuinstall.base.requirement import parse_requirement
from gpuinstall.base.text import some
from gpuinstall.base.units import readable
from gpuinstall.base.values import dataclass
from gpuinstall.environments.packages import read_packages, required_names
from gpuinstall.install.space import FREE, Bill, price_files
from gpuinstall.lock.fit import Fit, best_files, selected
from gpuinstall.lock.lock import LockedFile, VersionChange, compare_versions
from gpuinstall.lock.strangers import check_hosts, name_torch_source
from gpuinstall.machine.pythons import find_python
from gpuinstall.plan.values import UNASKED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuinstall.base.machine import Machine
    from gpuinstall.install.inspection import ExistingEnvironment
    from gpuinstall.install.options import InstallState
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.lock.source_builds import BuildSite, SourceBuild
    from gpuinstall.plan.values import Choice
    from gpuinstall.project import Project
    from gpuinstall.sources.session import Session
    from gpuinstall.sources.web import Head


UNCONFIRMED = "download-not-confirmed"
UNASKED_BYTES = 1_000_000_000
"""What is downloaded at most without a question."""


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
        return {} if isinstance(self.of, Fit) else self.of.hashes.missing

    def to_dict(self) -> dict[str, Any]:
        """Return the document of ``install --dry-run --json``."""
        bill = self.bill
        folders = [folder for folder, size in bill.folders.items() if size]
        return {
            "plan": self.of.plan.to_dict(),
            "lock": {"changes": [change._asdict() for change in self.changes]},
            "bytes": bill.fetch,
            "sources": [{"host": host, "bytes": size} for host, size in bill.sources.items()],
            "space": [{"path": str(folder), "bytes": bill.folders[folder]} for folder in folders],
        }

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield what is reported of it before it is carried out, line by line with the label of each."""
        if self.existing is None:
            return
        python = self.choice.python
        yield "Build", f"torch {self.choice.build.name} · Python {python}"
        if not isinstance(self.of, Fit):
            for remark in self.of.remarks:
                yield "", remark
        label = "Changes"
        for line in self._change_lines():
            yield label, line
            label = ""
        download = str(self.bill)
        if find_python(python) is None:
            download += f"; uv downloads Python {python} too"
        yield "Download", download

    def _change_lines(self) -> list[str]:
        if self.existing and not self.existing.is_empty:
            return [*map(str, self.changes), *self.stays] or ["no version changes"]
        requested = {parse_requirement(text).name for text in self.choice.requirements}
        # What was requested comes first.
        changes = sorted(self.changes, key=lambda change: change.package not in requested)
        names = [f"{change.package} {change.new}".rstrip() for change in changes]
        return [f"+ {some(names)}"]

    def announce(self, session: Session, *, yes: bool) -> None:
        """Report what it is and costs.

        Args:
            session: The clients of this run.
            yes: Whether to download gigabytes also if they come only because the CPU build's index is unreachable.

        Raises:
            InstallationError: there is no space for it.
            UsageError: it would download gigabytes for that reason.
        """
        for label, text in self.lines():
            session.reporter.step(label, text)
        self.bill.check()
        if yes or isinstance(self.of, Fit) or self.bill.fetch <= UNASKED_BYTES:
            return
        silent = session.client.unreachable(session.sources.torch_index)
        codes = {warning.code for warning in self.of.plan.warnings}
        if silent and UNASKED in codes:
            download = (
                f"torch {self.choice.build.name} is a download of {readable(self.bill.fetch)}"
            )
            raise UsageError(
                UNCONFIRMED,
                f"{download}: the index of the CPU build, {silent.host}, is unreachable",
                why=silent.why,
                hint="Run it again when it is reachable\n"
                "Run it again with --yes: it is downloaded all the same",
            )

    def make_lock(self, state: InstallState, project: Project) -> Fit:
        """Return the lock; the installation takes the hash of a file whose index gives none."""
        if isinstance(self.of, Fit):
            return self.of
        from gpuinstall.lock.document import build_incomplete

        lock = build_incomplete(
            self.of,
            state.request.request,
            project.session,
            project.paths.folder,
        )
        return Fit(lock, self.of.plan)


def price_lock(
    fit: Fit,
    state: InstallState,
    project: Project,
) -> PricedLock:
    """Reckon what a lock that is there costs and changes."""
    from gpuinstall.install.clone import editable_folders, unchanged_packages
    from gpuinstall.lock.source_builds import check_builds, check_wheels

    lock, machine, session = fit.lock, state.request.machine, project.session
    builds, site = builds_of(fit, machine, project)
    if session.sourcing.only_binary:
        check_wheels(builds)
    check_builds(builds, site, session.reporter, here=True)
    if lock.unserved:
        packages = ", ".join(lock.unserved)
        session.reporter.warn(f"{lock.name} takes {packages} from files of this machine")
    files = selected(lock, fit.choice.python, machine)
    if not project.sourcing.wheels and not session.environment.get("UV_OFFLINE"):
        check_hosts(lock, files, fit.choice.build.backend.tag, session)
    name_torch_source(files, "", session)
    unchanged = unchanged_packages(
        state.existing,
        versions=lock.versions,
        hashes=lock.hashes_by_package,
        editable=editable_folders(lock, project.paths.folder),
        python=fit.choice.python,
    )
    new = [file for file in files if file.package not in unchanged]
    return PricedLock(
        fit,
        changes=compare_versions(state.existing.packages, lock.held),
        existing=state.existing,
        bill=price_files(new, {}, project.paths.venv, session),
        unchanged=unchanged,
    )


def resolve_lock(state: InstallState, project: Project) -> PricedLock:
    """Resolve a new lock, and reckon what it costs and changes.

    Versions that are locked stay unless they are to move.

    Raises:
        GpuInstallError: whatever choosing and resolving raise.
    """
    from gpuinstall.install.clone import unchanged_packages
    from gpuinstall.lock.making import resolve_locks

    existing, session = state.existing, project.session
    near_to = [] if state.options.upgrade else existing.pinned_locks
    moving = state.options.moving if near_to else ()
    with ThreadPoolExecutor(1) as pool:
        # uv says where its cache is while the servers are asked.
        pool.submit(getattr, session, "uv_cache")
        resolution = resolve_locks(
            [state.request.near(near_to)], session, held=near_to, moving=moving
        )[0]
    for warning in resolution.plan.warnings:
        session.reporter.warn(warning.message)
    python = resolution.choice.python
    hashes: dict[str, set[str]] = defaultdict(set)
    files = []
    for file in best_files(resolution.files, python, state.request.machine):
        sha256 = resolution.hashes.known.get(file.url)
        files.append(replace(file, sha256=sha256))
        hashes[file.package].add(sha256 or "")
    unchanged = unchanged_packages(
        existing,
        versions=resolution.versions,
        hashes=hashes,
        editable=resolution.editable_folders,
        python=python,
    )
    new = [file for file in files if file.package not in unchanged]
    return PricedLock(
        resolution,
        changes=compare_versions(existing.packages, resolution.held),
        existing=existing,
        bill=price_files(new, _reported_sizes(resolution), project.paths.venv, session),
        stays=tuple(_unmoved(state, resolution.held)),
        unchanged=unchanged,
    )


def _reported_sizes(resolution: Resolution) -> dict[str, int]:
    """Return the sizes that indexes and servers reported while a lock was resolved, by address."""
    sizes = {file.url: head.size or 0 for file, head in resolution.hashes.missing.items()}
    for package in resolution.document.get("packages", ()):
        for entry in package.get("wheels", ()):
            if entry.get("size"):
                sizes[entry["url"]] = entry["size"]
    return sizes


def _unmoved(state: InstallState, versions: Mapping[str, str]) -> Iterator[str]:
    """Yield why a package that was to go or to be upgraded is in the environment as before."""
    existing, request = state.existing, state.request.request
    requirements = list(map(parse_requirement, (*request.requirements, *request.constraints)))
    inputs = existing.lock.record.inputs if existing.lock else ()
    requested_before = {parse_requirement(text).name for text in inputs}
    no_longer_requested = requested_before - {requirement.name for requirement in requirements}
    packages = read_packages(packages_folders(existing.paths.venv))
    for name in sorted(no_longer_requested & versions.keys()):
        requiring = [package.name for package in packages if name in required_names(package)]
        by = some(requiring) or "another package"
        yield f"{name} {versions[name]} stays: {by} requires it"
    for name in state.options.moving:
        if name not in versions or existing.packages.get(name) != versions[name]:
            continue
        own = [requirement for requirement in requirements if requirement.name == name]
        limits = [f"{name}{requirement.specifier}" for requirement in own if requirement.specifier]
        bounds = " and ".join(limits) or "the other packages"
        yield f"{name} stays at {versions[name]}, the newest that fits {bounds}"


def builds_of(
    fit: Fit,
    machine: Machine,
    project: Project,
) -> tuple[tuple[SourceBuild, ...], BuildSite]:
    """Return what an installation of a lock builds, and where."""
    from gpuinstall.lock.source_builds import source_builds, this_site

    site = this_site(
        fit.choice,
        fit.lock.versions,
        machine,
        project.session,
    )
    return source_builds(tomli.loads(fit.lock.text)), site
