"""What is about to come, unpacked beside an environment: uv fetches, builds and unpacks it there, and nowhere else."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from gpuinstall.base import uv
from gpuinstall.base.environment_paths import interpreter, site_packages
from gpuinstall.base.errors import InstallationError
from gpuinstall.base.files import write_atomically, write_temporarily
from gpuinstall.base.removal import remove_path
from gpuinstall.base.shell import joined
from gpuinstall.base.values import dataclass
from gpuinstall.environments.activation import settle_activation
from gpuinstall.environments.environment import damaged_torch
from gpuinstall.environments.guard import (
    GUARD_FILES,
    constraint_lines,
    own_guard_files,
    write_guard,
)
from gpuinstall.environments.packages import InstalledPackage, read_packages
from gpuinstall.environments.written_files import check_written_files
from gpuinstall.install.priced_lock import PricedLock, builds_of
from gpuinstall.lock.file.fetch import (
    Transfer,
    build_index,
    is_served,
    local_path,
    refresh_words,
    run_uv,
)
from gpuinstall.lock.file.fit import Fit
from gpuinstall.lock.solve.members import members_beside
from gpuinstall.lock.uv.builds import sync_settings, sync_variables
from gpuinstall.machine.pythons import find_python

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gpuinstall.install.state import ExistingEnvironment
    from gpuinstall.lock.file.lock import Lock
    from gpuinstall.project import Project
    from gpuinstall.sources.session import Session


@dataclass(frozen=True)
class Unpacked:
    """What comes, in a folder that is laid out as the environment is."""

    fit: Fit
    """The lock, with the hashes that it lacked, and its plan."""
    folder: Path
    """A whole environment, or one of what comes alone, which finds the rest in the environment that is changed."""
    packages: tuple[InstalledPackage, ...] = ()
    """What comes."""
    seconds: float = 0.0

    @property
    def has_native_code(self) -> bool:
        """Whether a loader loads some of it: what has no native code is loaded by none."""
        return any(package.is_native for package in self.packages)


def unpack_packages(priced: PricedLock, project: Project) -> Unpacked:
    """Have uv bring what comes of a lock to ``paths.staging``, with the lock and the guard.

    Args:
        priced: The lock, what has to be fetched of it, and what comes and goes.
        project: The run.

    Raises:
        InstallationError: also if what uv has put there is damaged, or lies where it may not.
    """
    paths, session, fit = project.paths, project.session, priced.fit
    start = monotonic()
    staging = paths.staging
    remove_path(staging)
    existing = None if priced.is_rebuild else priced.existing
    if existing is None:
        _create(fit, staging, session)
        settle_activation(staging, paths.venv)
    elif priced.comes:
        _create_before(existing.paths.venv, staging, fit.choice.python, session)
    keeps_guard = existing is not None and _has_guard(existing, priced, project)
    packages: tuple[InstalledPackage, ...] = ()
    with ThreadPoolExecutor(2) as pool:
        # The index is asked while uv installs.
        pool.submit(_load_checks)
        if not keeps_guard:
            beside = pool.submit(members_beside, fit, project.catalog, session)
        if priced.comes:
            fit = replace(fit, lock=_install(priced.comes, priced, project))
            packages = _check_files(existing, priced, project)
    write_atomically(staging / fit.lock.name, fit.lock.text)
    if not keeps_guard:
        lines = constraint_lines(
            fit.lock.versions_of(project.catalog.family),
            beside.result(),
            fit.choice.build.backend.tag,
        )
        write_guard(
            staging,
            paths.venv,
            source=fit.lock.name,
            lines=lines,
            constraints=project.pip_constraints(paths.venv),
        )
    return Unpacked(fit, staging, packages, monotonic() - start)


def _create_before(venv: Path, staging: Path, python: str, session: Session) -> None:
    """Make an environment whose packages come before those of another, which it has too."""
    run_uv(uv.create(interpreter(venv), staging), session)
    write_front(site_packages(staging, python), [site_packages(venv, python)])


def write_front(site: Path, others: Iterable[Path]) -> None:
    """Have the packages in a folder come before those in other folders, which are found too."""
    lines = [f"import site; site.addsitedir({str(other)!r})\n" for other in others]
    write_temporarily(site / "zz_others.pth", "".join(lines))


def _create(
    fit: Fit,
    venv: Path,
    session: Session,
) -> None:
    """Make an empty environment, with a pip unless the lock holds one: an activated shell calls it."""
    base = _base_python(fit.choice.python, session)
    run_uv(uv.create(base, venv), session)
    if "pip" in fit.lock.names:
        return
    try:
        run_uv(uv.give_pip(interpreter(venv), carried_pip(base)), session)
    except InstallationError as error:
        reason = error.why or error.message
        session.reporter.warn(f"the environment has no pip of its own: {reason}")


def _load_checks() -> None:
    """Load what looks at the files and proves them."""
    for module in (
        "gpuinstall.wheels.linking",
        "gpuinstall.verify.cover",
        "gpuinstall.verify.runner",
    ):
        import_module(module)


def _has_guard(
    existing: ExistingEnvironment,
    priced: PricedLock,
    project: Project,
) -> bool:
    """Whether an environment has a guard that is right for a lock of the same torch too, or is the user's."""
    venv = project.paths.venv
    guard = own_guard_files(venv)
    if any(os.path.lexists(venv / name) for name in {*GUARD_FILES} - guard):
        return True
    family = project.catalog.family
    before = existing.lock.versions_of(family) if existing.lock else None
    return bool(guard) and before == priced.fit.lock.versions_of(family)


def _check_files(
    existing: ExistingEnvironment | None,
    priced: PricedLock,
    project: Project,
) -> tuple[InstalledPackage, ...]:
    """Return the packages that come; check that every one is whole, and is about to write only what it may.

    What stays was looked at when it was new.
    """
    staging, names = project.paths.staging, priced.comes
    damage = damaged_torch(staging) if "torch" in names else ""
    if damage:
        clean = joined((uv.uv(), "cache", "clean", "torch"))
        raise InstallationError(
            "cache-damaged",
            damage,
            why="uv's cache has the same damaged file: environments share the cache's files",
            hint=f"{clean}   # then run it again",
        )
    site = site_packages(staging, priced.choice.python)
    packages = read_packages([site])
    staying: tuple[InstalledPackage, ...] = ()
    if existing:
        folder = site_packages(existing.paths.venv, priced.choice.python)
        new = [package for package in packages if package.name in names]
        staying = packages_beside(new, folder, {*names, *priced.goes})
    overlapping = set[str]()
    for fault in check_written_files(packages, names, staging, staying):
        project.reporter.warn(
            f"{fault.message}; the last in the lock wins, as with pip"
        )
        overlapping.update(package.name for package in fault.packages)
    # uv installs all of them at once: those that write the same files come again, one after the other.
    for package in priced.fit.lock.pylock.packages:
        if package.name in overlapping and package.name in names:
            # With --reinstall uv would download it again.
            run_uv(uv.take_out(interpreter(staging), package.name), project.session)
            _install({package.name}, priced, project)
    return tuple(package for package in packages if package.name in names)


def packages_beside(
    new: Collection[InstalledPackage],
    present: Path,
    replaced: Collection[str],
) -> tuple[InstalledPackage, ...]:
    """Return the packages of an environment that stay, if what comes may write into a folder of one of them.

    Args:
        new: The packages that come.
        present: The folder of the packages of the environment.
        replaced: The names of those that go.
    """

    def module(name: str) -> str:
        # Some file systems ignore case, and "pip.py" would be imported as pip.
        return name.partition(".")[0].partition("-")[0].lower()

    coming = {module(file.path.partition("/")[0]) for one in new for file in one.files}
    coming -= {name.replace("-", "_") for name in replaced}
    if coming.isdisjoint(module(path.name) for path in present.iterdir()):
        return ()
    return tuple(one for one in read_packages([present]) if one.name not in replaced)


def _install(
    names: Collection[str],
    priced: PricedLock,
    project: Project,
) -> Lock:
    """Have uv install packages of a lock; return the lock with the hashes that it lacked."""
    paths, session, fit = project.paths, project.session, priced.fit
    all_builds, site = builds_of(fit, project.machine, project)
    builds = [build for build in all_builds if build.package in names]
    # What is built apart from the environment is built with its torch all the same.
    constraints = session.scratch / "build-constraints.txt"
    write_temporarily(constraints, f"{_torch_requirement(fit.lock)}\n")
    index = build_index(fit.choice, session)
    settings = session.scratch / "uv.toml"
    served = index if is_served(index) else None
    write_temporarily(settings, sync_settings(builds, site, served))
    private_lock = session.scratch / "pylock.private.toml"
    transfer = Transfer(
        fit.lock,
        fit.choice,
        private_lock,
        paths.folder,
        missing=priced.bill.missing,
        heads=priced.heads,
        wheels=project.sourcing.wheels,
        only=names,
    )
    words = refresh_words(fit.lock)
    command = uv.add(interpreter(paths.staging), private_lock, settings, words)
    variables = {
        "UV_BUILD_CONSTRAINT": str(constraints),
        **sync_variables(builds, site),
    }
    return transfer.run(command, session, variables)


def _torch_requirement(lock: Lock) -> str:
    """Return the torch of a lock, by its address if its file lies here."""
    for file in lock.files:
        if file.package == "torch" and local_path(file.url):
            return f"torch @ {file.url}"
    return f"torch=={lock.versions['torch']}"


def carried_pip(base: Path) -> Path | None:
    """Return the wheel of pip that an interpreter carries for environments; Debian's has none."""
    root = base.resolve().parent
    posix_wheels = root.parent.glob("lib/python3*/ensurepip/_bundled/pip-*.whl")
    windows_wheels = root.glob("Lib/ensurepip/_bundled/pip-*.whl")
    return min((*posix_wheels, *windows_wheels), default=None)


def _base_python(version: str, session: Session) -> Path:
    """Find an interpreter for ``X.Y``, or have uv fetch one."""
    present = find_python(version)
    if present:
        return present
    session.reporter.wait(f"downloading Python {version}")
    run_uv(uv.fetch_python(version), session)
    fetched = find_python(version)
    if fetched is None:
        raise InstallationError(
            "no-python",
            f"uv downloaded Python {version}, but it cannot be found",
        )
    return fetched
