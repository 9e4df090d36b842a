"""The environment, the lock files, and the request before an installation."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from gpuinstall.base.environment_paths import EnvironmentPaths, Layout, below
from gpuinstall.base.errors import UsageError
from gpuinstall.base.requirement import Requirement, names_of
from gpuinstall.base.text import some
from gpuinstall.base.values import Value, replace
from gpuinstall.environments.environment import read_marker, versions_of
from gpuinstall.environments.guard import (
    CONSTRAINTS,
    is_own_guard_file,
    reason_against_guard,
)
from gpuinstall.environments.packages import read_packages
from gpuinstall.environments.records import check_records
from gpuinstall.environments.rights import check_rights, reason_unmanaged
from gpuinstall.install.environment_lock import environment_lock, needs_recovery
from gpuinstall.install.moved import relocate_environment
from gpuinstall.install.state import (
    Action,
    ExistingEnvironment,
    InstallOptions,
    InstallState,
    check_folder,
    inspect_environment,
    is_created_from,
    judge_locks,
)
from gpuinstall.lock.file.fit import read_locks
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.lock.request.lock_sources import with_locked_builds
from gpuinstall.project import Project
from gpuinstall.project.extras import select_extras
from gpuinstall.project.request import declared_request, read_request
from gpuinstall.project.targets import environment_request, project_targets
from gpuinstall.verify.interpreter import answer_of
from gpuinstall.verify.kernels.context import MARK
from gpuinstall.wheels.learned.store import known_catalog


@contextmanager
def locked_state(project: Project, options: InstallOptions) -> Iterator[InstallState]:
    """Read the state, and lock the environment if a change is necessary.

    After a wait, the state is read again. A small kernel verifies the driver.

    Args:
        project: The project.
        options: The options of the installation.
    """
    state = read_state(project, options)
    place = state.existing.paths
    if state.action is Action.NOTHING and not needs_recovery(place):
        yield state
        return
    check_rights(place)
    check_records()
    with environment_lock(place, project.reporter) as meanwhile:
        may_have_changed = any(meanwhile)
        relocate_environment(place, state.here, project.reporter)
        # Each change and relocation writes another marker.
        if may_have_changed:
            project.read_anew()
        if may_have_changed or read_marker(place.venv) != state.existing.marker:
            state = read_state(project, options, again=True)
        if not state.existing.made_here:
            reason = reason_unmanaged(place.venv)
            project.reporter.warn(f"{place.venv} {reason}; rebuilding it")
        if state.action is not Action.NOTHING and not state.existing.is_proven:
            state = with_preflight(state, project)
        yield state


def with_preflight(state: InstallState, project: Project) -> InstallState:
    """Run a small kernel before the download.

    Args:
        state: The state.
        project: The project.

    Returns:
        The state with the problems of the driver, unchanged if no kernel is necessary.
    """
    from gpuinstall.machine.probe import preflight

    request = state.lock_request
    here = state.here
    if here is None or not here.gpus or request.request.is_for_cpu:
        return state
    proof = preflight(here, project.reporter)
    if proof.outcomes:
        project.reporter.step("Preflight", proof.summary, proof.seconds)
    machine = request.machine.with_problems(proof.problems)
    return judge_locks(replace(state, lock_request=replace(request, machine=machine)))


def read_state(
    project: Project,
    options: InstallOptions,
    *,
    again: bool = False,
    check_ownership: bool = True,
) -> InstallState:
    """Read the state of an environment, and the request.

    Args:
        project: The project.
        options: The options of the installation.
        again: Whether this command has read and reported it before.
        check_ownership: Whether to refuse an unmanaged environment without ``--replace``.

    Raises:
        UsageError: A file or an unmanaged environment is at the path.
        LockError: A lock file cannot be read.
    """
    if options.python:
        return _read_unmanaged(options.python, options, project)
    if check_ownership:
        check_folder(project.paths.venv)
    # The attempt with the failed build has reported everything.
    quiet = again or options.catalog is not None
    request = read_request(project, quiet=quiet)
    request = environment_request(project, request, quiet=quiet)
    folder = project.paths.folder
    here = project.here(request)
    existing = inspect_environment(project.paths, here)
    base = project.settings.base_python
    if base and existing.has_python and not is_created_from(project.paths, base):
        existing = replace(existing, has_python=False)
    if not options.upgrade:
        existing = replace(existing, locks=tuple(read_locks(folder)))
    if check_ownership and not options.replace:
        existing.check_ownership()
    changed = {**existing.changed_versions, **existing.damaged}
    if existing.lacks_pip:
        changed["pip"] = "pip is missing"
    if changed and not again:
        text = f"{some([*changed.values()])}; restoring the locked versions"
        project.reporter.step("Changed", text)
    catalog = options.catalog
    if catalog is None:
        # A locked build can be from any index.
        known = known_catalog() if options.locked else project.catalog
        catalog = with_locked_builds(known, folder, lambda: project.session)
    state = InstallState(
        existing,
        lock_request=LockRequest(project.machine, request, catalog),
        here=here,
        options=options,
        gate=project.lock_gate,
        names_folder=bool(project.named_folders),
        targets=() if options.locked else tuple(map(str, project_targets(project))),
    )
    return judge_locks(state)


def _read_unmanaged(
    python: Path, options: InstallOptions, project: Project
) -> InstallState:
    """Return the state of an unmanaged environment, and the request for it."""
    place = inspect_unmanaged(python)
    # Python imports the first of two packages.
    visible = reversed(read_packages(place.search_path))
    existing = ExistingEnvironment(
        place,
        is_empty=False,
        versions=versions_of(visible),
        packages=read_packages(place.packages_folders),
    )
    request = select_extras(
        project, project.machine, declared_request(project), project.catalog
    )
    # Packages that were built for the installed torch change with it.
    companions = {"torchvision", "torchaudio"} & existing.versions.keys()
    unnamed = sorted(companions - names_of(request.requirements))
    request = replace(
        request,
        requirements=(*request.requirements, *map(Requirement.of, unnamed)),
        python=place.layout and place.layout.version,
        managed_pythons=False,
    )
    return InstallState(
        existing,
        LockRequest(project.machine, request, options.catalog or project.catalog),
        here=project.here(request),
        options=options,
        is_guarded=reason_against_guard(place) is not None
        or is_own_guard_file(place.venv / CONSTRAINTS),
    )


_LOOK = """
import json, os, sys, sysconfig
here = os.path.dirname(sys.executable)
managed = os.path.exists(os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED"))
of_one_program = (
    os.path.isdir(os.path.join(sys.prefix, "conda-meta"))
    or any(name.endswith("._pth") for name in os.listdir(here))
    or "COLAB_RELEASE_TAG" in os.environ
)
answer = {
    "version": "%d.%d" % sys.version_info[:2], "prefix": sys.prefix,
    "is_systems": sys.prefix == sys.base_prefix and (managed or not of_one_program),
    "path": [path for path in sys.path if path.endswith("-packages")],
    "paths": {name: sysconfig.get_path(name) for name in ("purelib", "platlib", "scripts", "data")},
}
"""
_LOOK += f"print({MARK!r} + json.dumps(answer))"


class _Answer(Value):
    """The report of an interpreter."""

    version: str
    """Its Python, ``X.Y``."""
    is_systems: bool
    """Whether it is the system's Python."""
    prefix: Annotated[Path, Path]
    paths: Mapping[str, Annotated[Path, Path]]
    """Its folders, by their names in sysconfig."""
    path: tuple[Annotated[Path, Path], ...] = ()
    """The folders of its packages and of its base Python's."""


def inspect_unmanaged(python: Path) -> EnvironmentPaths:
    """Return the paths of an interpreter's environment, as it reports them.

    Raises:
        UsageError: It is no interpreter, the system's Python, or in a managed environment.
    """
    argv = (python, "-I", "-c", _LOOK)
    answer = answer_of(_Answer, argv)
    if read_marker(answer.prefix):
        raise UsageError(
            "ours",
            f"{answer.prefix} was made by gpuinstall, which replaces it completely",
            hint="Run it again without --into",
        )
    if answer.is_systems:
        raise UsageError(
            "system-python",
            f"{python} is the system's Python; gpuinstall does not change it",
            why="other programs depend on it, and the system's package manager manages it",
            hint="gpuinstall install   # makes an environment in .venv",
        )
    places = [answer.prefix, *answer.paths.values()]
    root = Path(os.path.commonpath(places))
    packages = answer.paths["purelib"]
    scripts = below(answer.paths["scripts"], root)
    site = below(packages, root)
    layout = Layout(
        root=root,
        python=python,
        version=answer.version,
        packages_folders=tuple(dict.fromkeys((packages, answer.paths["platlib"]))),
        search_path=answer.path,
        prefixes={
            f"lib/python{answer.version}/site-packages/": site,
            f"lib64/python{answer.version}/site-packages/": site,
            "Lib/site-packages/": site,
            "bin/": scripts,
            "Scripts/": scripts,
            "": below(answer.paths["data"], root),
        },
    )
    return EnvironmentPaths(answer.prefix, layout)
