"""Compute the package changes and the disk space before the download."""

from __future__ import annotations

import dataclasses
import re
from contextlib import suppress
from os.path import exists, isfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.base.advice import make_command
from gpuinstall.base.errors import InstallationError, UnreachableError
from gpuinstall.base.files import (
    check_cache,
    display_path,
    expand_home,
    real_path,
)
from gpuinstall.base.requirement import requirement_names
from gpuinstall.base.text import format_size, join_names
from gpuinstall.base.threads import map_concurrently
from gpuinstall.base.values import Value, asdict, replace
from gpuinstall.environments.guard import find_guard_obstacle, read_guard_lines
from gpuinstall.environments.packages import InstalledPackage
from gpuinstall.install.state import (
    Action,
    ExistingEnvironment,
    InstallState,
    PackageChange,
    package_change,
)
from gpuinstall.lock.file.fit import CompatibleLock, select_sources
from gpuinstall.lock.file.lock import (
    Lock,
    LockedFile,
    LockEntry,
    VersionChange,
    compare_versions,
    find_given_file,
    format_changes,
    list_files_with_url,
    parse_package_source,
)
from gpuinstall.lock.request.lock_sources import check_hosts
from gpuinstall.sources.requirements_file import join_files

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from gpuinstall.base.reporter import Reporter
    from gpuinstall.lock.uv.builds import BuildContext, SourceBuild
    from gpuinstall.lock.uv.resolution import Resolution
    from gpuinstall.project import Project
    from gpuinstall.sources.session import Session
    from gpuinstall.sources.web import Head
    from gpuinstall.verify.verdict import Verdict


UNPACKED = 2.3
"""The ratio of an environment's size to the size of its wheels.

Measured for torch 2.14 with CUDA 12.6: 6.8 GB from 2.9 GB of wheels.
"""

_WHEELS = "wheels-v8"
"""The folder of wheels in the cache of the pinned uv."""


class SizeEstimate(Value):
    """Estimated download and disk space of an installation, in bytes."""

    missing: Mapping[LockedFile, int]
    """Sizes of files to download; 0 if unknown."""
    unpacked: Mapping[Path, int] = {}
    """The estimated size of the unpacked files by folder.

    The folders are on separate file systems: uv's cache and the environment.
    """

    @property
    def download_size(self) -> int:
        """The total number of bytes to download."""
        return sum(self.missing.values())

    def check(self, reporter: Reporter) -> None:
        """Compare the unpacked sizes with the free space.

        An estimated shortage and an unknown size are only warnings.

        Raises:
            InstallationError: The wheels alone are larger than the free space.
        """
        unknown = [file.package for file, size in self.missing.items() if not size]
        if unknown:
            reporter.warn(f"the sizes of some files are unknown: {join_names(unknown)}")
        for folder, size in self.unpacked.items():
            free = _measure_free_space(folder)
            if size <= free:
                continue
            text = f"about {format_size(size)} required, {format_size(free)} free"
            if size <= UNPACKED * free:
                reporter.warn(f"{display_path(folder)} may lack space: {text}")
                continue
            raise InstallationError(
                "no-space",
                f"not enough space in {display_path(folder)}: {text}",
                hint=(
                    "Free some space",
                    "Select a folder on another disk with --venv",
                    "Move uv's cache to another disk with UV_CACHE_DIR",
                ),
            )

    def describe(self) -> str:
        """Return the sizes with the free space of each file system."""
        total = format_size(self.download_size) if self.download_size else ""
        if 0 in self.missing.values():
            total = f"at least {total}" if total else "unknown size"
        texts = [total or "nothing to download"]
        for folder, size in self.unpacked.items():
            free = format_size(_measure_free_space(folder))
            texts.append(
                f"unpacked {format_size(size)} in {display_path(folder)} ({free} free)"
            )
        return ", ".join(texts)


class PlannedInstallation(Value):
    """A lock file to install, with its changes and sizes."""

    state: InstallState
    """The environment and the requested packages."""
    fit: CompatibleLock
    """The lock file and its plan. The installation adds missing hashes."""
    action: Action
    """The action to take."""
    change: PackageChange = PackageChange(frozenset())
    """The packages to install and remove."""
    changes: tuple[VersionChange, ...] = ()
    """The packages to install and remove, with versions for the output."""
    sources: tuple[LockEntry, ...] = ()
    """The packages of the lock file with their files for this machine."""
    sizes: SizeEstimate = SizeEstimate({})
    """The download sizes and the required disk space."""
    heads: Mapping[LockedFile, Head] = {}
    """The HTTP headers of files for which the index has no hash."""
    requested: frozenset[str] = frozenset()
    """The packages requested by the user and the folder's own files."""
    introduced: frozenset[str] = frozenset()
    """The packages to build from source that only the lock file introduces."""
    remarks: tuple[str, ...] = ()
    """The reasons why packages are not at their latest version."""

    @property
    def existing(self) -> ExistingEnvironment:
        """The environment before the installation."""
        return self.state.existing

    @property
    def files(self) -> tuple[LockedFile, ...]:
        """The files of the lock file for this machine."""
        return list_files_with_url(self.sources)

    @property
    def old_packages(self) -> list[InstalledPackage]:
        """The packages that are removed or replaced."""
        return self.existing.find_packages(self.change.comes | self.change.goes)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON document of ``install --dry-run``."""
        sizes = self.sizes
        return {
            "plan": self.fit.plan.to_dict(),
            "lock": {"changes": [*map(asdict, self.changes)]},
            "bytes": sizes.download_size,
            "space": [
                {"path": str(folder), "bytes": size}
                for folder, size in sizes.unpacked.items()
            ],
        }

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield labeled lines that describe the planned installation."""
        if self.state.is_installed:
            return
        python = self.fit.choice.python
        yield "Build", f"torch {self.fit.choice.build.name} · Python {python}"
        for remark in self.remarks:
            yield "", remark
        label = "Changes"
        for line in self._change_lines():
            yield label, line
            label = ""
        yield "Download", self.sizes.describe()

    def _change_lines(self) -> list[str]:
        if not self.existing.is_empty:
            return format_changes(self.changes) or ["no version changes"]
        requested = requirement_names(self.fit.choice.requirements)
        # List requested packages first.
        changes = sorted(
            self.changes,
            key=lambda change: change.package not in {"torch", *requested},
        )
        return [
            f"+ {join_names([str(change).removeprefix('+ ') for change in changes])}"
        ]


class UnpackedPackages(Value):
    """New packages in a staging folder with the layout of an environment."""

    planned: PlannedInstallation
    """The installation, whose lock file now has all hashes."""
    python: Path | None = None
    """An interpreter that prefers the new packages to installed packages."""
    packages: tuple[InstalledPackage, ...] = ()
    """The new packages."""
    verdict: Verdict | None = None
    """The verdict on a new torch before the environment changes."""


def plan_installation(
    state: InstallState, fit: CompatibleLock, project: Project
) -> PlannedInstallation:
    """Return the package changes and sizes of installing a lock file.

    Args:
        state: The environment and the request.
        fit: The lock file and its plan.
        project: The project.

    Raises:
        LockError: A URL's host is not one of the package sources.
        InstallationError: A package cannot be built, or uv's cache is not trusted.
    """
    existing = state.existing
    if state.is_installed:
        return PlannedInstallation(state, fit, state.action)
    change = package_change(existing, fit, state.options)
    action = state.find_action(fit)
    if not existing.paths.is_managed:
        place = existing.paths
        guarded = find_guard_obstacle(place) or read_guard_lines(place.venv)
        action = Action.VERIFY if guarded and not change.comes else Action.BUILD
    sources = select_sources(fit.lock, fit.python, state.lock_request.machine)
    present = existing.versions
    if not change.is_rebuild:
        # Keep packages that are in no lock file.
        concerned = change.goes | fit.lock.names
        present = {name: present[name] for name in present if name in concerned}
    planned = PlannedInstallation(
        state,
        fit,
        action,
        change=change,
        changes=compare_versions(present, fit.lock.all_versions),
        sources=tuple(sources),
    )
    listed: Mapping[str, int] = {}
    resolution = state.resolution
    if resolution:
        listed = _collect_reported_sizes(resolution)
        heads = resolution.hashes.missing
        planned = replace(planned, heads=heads, remarks=resolution.remarks)
    else:
        planned = _check_sources(planned, project)
    new = [file for file in planned.files if file.package in change.comes]
    sizes = estimate_sizes(new, listed, existing.paths.root, project.open_session())
    return replace(planned, sizes=sizes)


def _check_sources(
    planned: PlannedInstallation, project: Project
) -> PlannedInstallation:
    """Check the hosts of a lock file, and report builds from source.

    Returns:
        The installation, with the packages that only the lock file introduces.
    """
    from gpuinstall.lock.uv.builds import check_builds, check_wheels, report_builds
    from gpuinstall.lock.uv.fetch import find_local_file

    lock = planned.fit.lock
    session = project.open_session()
    requested = find_requested_names(lock, project)
    builds, site = find_builds(planned, planned.change.comes, project, requested)
    if ":all:" in session.sources.uv.only_binary:
        check_wheels(builds, session.sources.uv)
    report_builds(builds, site, session.reporter)
    _report_local_wheels(planned, project)
    check_builds(builds, site, here=True)
    wheels = session.sourcing.wheels
    if lock.local_only_packages and not wheels:
        packages = ", ".join(lock.local_only_packages)
        session.reporter.warn(
            f"{lock.name} has packages from files on this machine: {packages}"
        )
    # Local files have no host to check.
    remote = [file for file in planned.files if not find_local_file(file, wheels)]
    if not session.sourcing.offline:
        sources = session.find_listed_sources()
        check_hosts(lock, remote, sources, session.client, session.reporter)
    introduced = frozenset(build.package for build in builds if build.is_introduced)
    return replace(planned, requested=requested, introduced=introduced)


def _report_local_wheels(planned: PlannedInstallation, project: Project) -> None:
    """Report wheels by path that no index or find-links contains."""
    for package, entry in planned.sources:
        for source in parse_package_source(package, entry, project.paths.folder):
            is_local = source.location.is_local and not source.is_built
            is_listed = project.sources.addresses.has_files_at(source.location)
            sha256 = getattr(entry, "hashes", {}).get("sha256")
            wheels = project.sourcing.wheels
            if wheels and find_given_file(source.filename, sha256, wheels):
                continue
            is_new = package.name in planned.change.comes
            if is_local and not is_listed and is_new:
                project.reporter.notice(
                    "Source", f"{package.name} is installed from {source.address}"
                )


def _collect_reported_sizes(resolution: Resolution) -> dict[str, int]:
    """Return the file sizes that indexes and servers report, by URL."""
    sizes = {
        file.url: head.size or 0 for file, head in resolution.hashes.missing.items()
    }
    for package in resolution.packages:
        for wheel in package.wheels or ():
            if wheel.url and wheel.size:
                sizes[wheel.url] = wheel.size
    return sizes


def find_builds(
    planned: PlannedInstallation,
    names: Collection[str],
    project: Project,
    requested: Collection[str] | None = None,
) -> tuple[list[SourceBuild], BuildContext]:
    """Return the packages to build from source, and their build environment.

    Args:
        planned: The installation.
        names: The packages to install.
        project: The project.
        requested: The packages that the user and the folder's files require. None: all.
    """
    from gpuinstall.lock.uv.builds import BuildContext, find_source_builds

    site = BuildContext(
        backend=planned.fit.choice.build.backend,
        versions=planned.fit.lock.versions,
        machine=project.machine,
        environ=project.open_session().environment,
        sources=project.sources,
    )
    from_wheels = {
        package.name
        for package, source in planned.sources
        if source in (package.wheels or ())
    }
    # Build an sdist if all wheels are for other machines.
    packages = [
        package
        if package.name in from_wheels
        else dataclasses.replace(package, wheels=None)
        for package in planned.fit.lock.pylock.packages
    ]
    builds = find_source_builds(packages, requested)
    return [build for build in builds if build.package in names], site


def find_requested_names(lock: Lock, project: Project) -> frozenset[str]:
    """Return the packages requested by the user and the folder's own files."""
    files = project.contents.declaration.files.values()
    requirements = join_files((*files, project.settings.requested)).requirements
    requested = set(requirement_names(requirements))
    own = {real_path(project.folder)}
    for requirement in requirements:
        if requirement.path:
            own.add(real_path(project.folder / expand_home(requirement.path)))
    for name, (place, _) in lock.find_projects(project.paths.folder).items():
        if place in own:
            requested.add(name)
    return frozenset(requested)


def estimate_sizes(
    files: Collection[LockedFile],
    listed: Mapping[str, int],
    venv: Path,
    session: Session,
) -> SizeEstimate:
    """Return the download size and the disk space that files to install need.

    uv unpacks every file into its cache, and links or copies it into the environment.

    Args:
        files: The files to install.
        listed: Sizes reported by indexes and servers, by URL.
        venv: The environment.
        session: The clients of this command.

    Raises:
        InstallationError: uv's cache cannot be trusted.
    """
    # slow to import
    from gpuinstall.lock.uv.fetch import find_local_file

    given = session.sourcing.wheels
    cache = session.find_uv_cache()
    check_cache(cache, session.reporter)

    near = {file: find_local_file(file, given) for file in files}
    present = {file for file, path in near.items() if path and isfile(path)}

    def size(file: LockedFile) -> int:
        path = near[file]
        if path:
            return path.stat().st_size if file in present else 0
        with suppress(UnreachableError):
            return listed.get(file.url) or session.client.head(file.url).size or 0
        return 0

    cached = _find_cached_wheels(files, cache)
    # uv copies cached files to another file system.
    is_copied = _read_device_id(venv) != _read_device_id(cache)
    used = [file for file in files if is_copied or file not in cached]
    sizes = dict(zip(used, map_concurrently(size, used), strict=True))
    missing = {file: sizes[file] for file in used if file not in cached | present}
    if given and missing:
        names = ", ".join(file.package for file in missing)
        outcome = "cannot be" if session.sourcing.offline else "are"
        session.reporter.warn(
            f"packages not in {given} {outcome} downloaded: {names}",
            make_command("lock", "download", str(given), note="downloads all files"),
        )
    wheels = {cache: sum(size for file, size in sizes.items() if file not in cached)}
    if is_copied:
        wheels[venv] = sum(sizes.values())
    unpacked = {folder: int(UNPACKED * size) for folder, size in wheels.items() if size}
    return SizeEstimate(missing, unpacked)


def _find_cached_wheels(files: Collection[LockedFile], cache: Path) -> set[LockedFile]:
    """Return the wheels that uv's cache has.

    uv replaces long tags with a digest, so such a wheel can be for another platform.
    """
    folder = cache / _WHEELS
    indexes = [folder / "pypi", *folder.glob("index/*"), *folder.glob("url/*")]
    cached = set()
    for file in files:
        _, _, release = file.name.removesuffix(".whl").partition("-")
        version, _, _ = release.partition("-")
        name = (
            rf"({re.escape(release)}|{re.escape(version)}-[0-9a-f]{{16}})\.(http|rev)"
        )
        for index in indexes:
            with suppress(OSError):
                entries = [one.name for one in (index / file.package).iterdir()]
                if any(re.fullmatch(name, entry) for entry in entries):
                    cached.add(file)
    return cached


def _read_device_id(folder: Path) -> int:
    return _find_existing_parent(folder).stat().st_dev


def _measure_free_space(folder: Path) -> int:
    import shutil  # slow to import

    return shutil.disk_usage(_find_existing_parent(folder)).free


def _find_existing_parent(folder: Path) -> Path:
    """Return a folder or its nearest existing parent."""
    return next(path for path in (folder, *folder.parents) if exists(path))
