"""Open a project, with its settings, machine, and HTTP session."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from itertools import chain
from os.path import exists, isdir, isfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.base.advice import make_change
from gpuinstall.base.config import read_config
from gpuinstall.base.environment_paths import EnvironmentPaths, default_environment
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import check_output, expand_home, is_inside, real_path
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.request import Request, Sourcing, split_torch_index
from gpuinstall.base.requirement import (
    TextOrigin,
    normalize_name,
    requirement_names,
)
from gpuinstall.base.text import has_login
from gpuinstall.base.values import Value, replace
from gpuinstall.base.version import RUNNING_PYTHON
from gpuinstall.environments.environment import is_vacant, read_marker
from gpuinstall.environments.records import find_recorded_project, was_created_here
from gpuinstall.lock.request.declaration import (
    find_parts,
    has_lock_or_request,
)
from gpuinstall.lock.request.history import find_unfiled_requirements
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.machine.host import read_assumed_glibc
from gpuinstall.project.folder import Contents, Settings, read_contents
from gpuinstall.sources import Sources, read_sources
from gpuinstall.sources.addresses import Addresses
from gpuinstall.sources.configuration import read_policy
from gpuinstall.sources.provenance import (
    BY_ADDRESS,
    TORCH_SOURCE,
    Effect,
    SourceSetting,
    create_setting,
)
from gpuinstall.sources.requirements_file import (
    FETCH,
    PROJECT,
    RequirementsFile,
    join_files,
    split_part,
)
from gpuinstall.sources.sources import apply_no_index, report_folder_sources
from gpuinstall.sources.uv_settings import ONLY_BINARY, UvSetting

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from gpuinstall.base.machine import Machine
    from gpuinstall.base.requirement import Requirement
    from gpuinstall.catalog import Catalog
    from gpuinstall.lock.file.entries import LockGate
    from gpuinstall.lock.file.lock import Lock
    from gpuinstall.sources.session import Session

_GIVEN = "Sourcing(only_binary=True)"
"""The place of the setting, for API callers."""


class Project(Value):
    """The files, sources, and machine of one command, read once."""

    folder: Path
    settings: Settings
    reporter: Reporter
    resources: ExitStack
    """Closes the HTTP connections and files at the end of the command."""

    paths: EnvironmentPaths
    contents: Contents
    requested_folders: frozenset[Path]
    """The local folders that the user requests without ``--editable``."""

    sources: Sources
    sourcing: Sourcing
    """The options for package sources, such as ``--offline``."""

    catalog: Catalog
    """The catalog of torch builds, including builds on the torch index."""

    machine: Machine
    """The machine to plan for, which is this machine by default."""

    preferred_pythons: tuple[str, ...]
    """The Python versions to try before the machine's own."""

    markers: Mapping[str, str]
    """The marker values of the machine and its preferred Python."""

    open_session: Callable[[], Session]
    """Opens the HTTP clients and caches, once."""

    @property
    def lock_gate(self) -> LockGate:
        """The checker for package sources in existing lock files."""
        from gpuinstall.lock.file.entries import LockGate

        required = self.contents.required | self.settings.requested
        return LockGate(
            self.sources,
            self.paths.folder,
            required.requirements,
            wheels=self.sourcing.wheels,
        )

    def silence(self) -> Project:
        """Return the project with a reporter that ignores reports."""
        return replace(self, reporter=Reporter())

    def wants(self, request: Request) -> LockRequest:
        """Return the request for the machine of the project."""
        return LockRequest(self.machine, request, self.catalog)


@contextmanager
def open_project(
    folder: Path,
    settings: Settings | None = None,
    reporter: Reporter | None = None,
    *,
    here: Machine | None = None,
) -> Iterator[Project]:
    """Read a project, and close its HTTP connections and files on exit.

    Args:
        folder: The folder of the project.
        settings: The command-line options or API arguments.
        reporter: Reports progress.
        here: This machine, if it is already known.

    Yields:
        The project.
    """
    with ExitStack() as resources:
        yield read_project(
            settings or Settings(),
            folder,
            reporter or Reporter(),
            resources=resources,
            here=here,
        )


def reread_project(project: Project, **changes: Any) -> Project:
    """Read a project again, because its files may have changed.

    Args:
        project: The project.
        changes: Changed fields of its settings.
    """
    return read_project(
        replace(project.settings, **changes),
        project.folder,
        project.reporter,
        resources=project.resources,
        here=None if project.settings.machine else project.machine,
    )


def read_paths(
    venv: Path | None, folder: Path, *, is_read_only: bool = False
) -> EnvironmentPaths:
    """Return the paths of a project's environment and lock files.

    Args:
        venv: The environment, relative to the folder; None: the default.
        folder: The folder of the command.
        is_read_only: Whether the environment is only read.

    Raises:
        UsageError: The path is unsuitable, or leads to an environment of another project.
    """
    folder = folder.absolute()
    venv = folder / (venv or default_environment())
    project = venv.parent if folder == venv else folder
    if not has_lock_or_request(folder):
        recorded = find_recorded_project(venv)
        if recorded or has_lock_or_request(venv.parent):
            project = recorded or venv.parent
    # Read-only commands also work in a folder where an environment cannot be created.
    if is_read_only:
        return EnvironmentPaths.find(venv, project)
    check_output(venv.parent, folder)
    paths = EnvironmentPaths.at(venv, project)
    _check_target(venv, paths)
    return paths


def _check_target(venv: Path, paths: EnvironmentPaths) -> None:
    """Check that a project's link or redirect file may be followed.

    Raises:
        UsageError: It leads to a folder outside the repository that another project uses, or the user does not trust the project.
    """
    folder, target = paths.folder, paths.venv
    is_own_link = is_inside(venv.parent, folder) and not is_inside(target, folder)
    if target == venv or not is_own_link:
        return
    why = "your trust-folder setting refuses such links"
    if read_policy(folder).runs(folder):
        why = "that folder is neither empty nor the environment of this project"
        marker = read_marker(target)
        project = marker and marker.find_project(target)
        # The project of an environment that this user created may have been moved.
        is_moved = project and not exists(project) and was_created_here(target)
        if project == real_path(folder) or is_moved or is_vacant(target):
            return
    raise UsageError(
        "link-elsewhere",
        f"{venv} leads to {target}",
        why=why,
        hint=make_change("--venv", str(target), note="uses that environment"),
    )


def read_project(
    settings: Settings,
    folder: Path,
    reporter: Reporter,
    *,
    resources: ExitStack,
    here: Machine | None = None,
) -> Project:
    """Read the files, sources, and machine of a project.

    Args:
        settings: The command-line options or API arguments.
        folder: The folder of the project.
        reporter: Reports progress and the sources that the folder selects.
        resources: Closes the HTTP connections and files.
        here: This machine, if it is already known.

    Raises:
        UsageError: A file is malformed, or the user does not trust the folder.
    """
    from gpuinstall.wheels.learned.store import load_extended_catalog  # slow to import

    paths = read_paths(settings.venv, folder, is_read_only=settings.is_read_only)
    sources, contents = _read_folder(settings, folder, paths, reporter)
    _report_logins(settings, reporter)
    report_folder_sources(sources, reporter)
    index = sources.addresses.torch_index
    catalog = replace(load_extended_catalog(index), torch_index=index)
    sources = replace(sources, uv=replace(sources.uv, family=catalog.family))
    request = settings.request
    is_offline = sources.credentials.variables.get("UV_OFFLINE") == "true"
    offline = request.sourcing.offline or is_offline
    machine = _select_machine(settings, here, contents, reporter)
    pythons = request.preferred_pythons
    if not settings.machine:
        pythons = (*_find_active_python(request, paths), *pythons, RUNNING_PYTHON)
    python = request.python or contents.config.python
    preferred = replace(request, python=python, preferred_pythons=pythons)
    local = [one.path for one in request.requirements if one.path and not one.editable]
    places = [real_path(folder / expand_home(path)) for path in local]

    @cache
    def open_once() -> Session:
        return _open_session(project)

    project = Project(
        folder=folder,
        settings=settings,
        reporter=reporter,
        resources=resources,
        paths=paths,
        contents=contents,
        requested_folders=frozenset(filter(isdir, places)),
        sources=sources,
        sourcing=replace(request.sourcing, offline=offline),
        catalog=catalog,
        machine=machine,
        preferred_pythons=pythons,
        markers=LockRequest(machine, preferred, catalog).markers,
        open_session=open_once,
    )
    return project


def _open_session(project: Project) -> Session:
    """Open the HTTP clients and caches until the end of the command."""
    from gpuinstall.sources.session import open_session

    sources = project.sources
    # Only a direct reference can be in a repository.
    is_direct = any(lock.addresses for lock in project.contents.locks.valid)
    opened = open_session(
        sources,
        project.reporter,
        project.folder,
        sourcing=project.sourcing,
        uses_git=is_direct or bool(sources.addresses.locations),
    )
    return project.resources.enter_context(opened)


def _read_folder(
    settings: Settings, folder: Path, paths: EnvironmentPaths, reporter: Reporter
) -> tuple[Sources, Contents]:
    """Read the configuration, and a project's files with their sources."""
    request = settings.request
    groups = [one.name for one in find_parts(settings.files) if one.kind == "group"]
    config = read_config(folder, groups)
    variable = os.environ.get("GPUINSTALL_TORCH_INDEX", "")
    sources = read_sources(
        request.sourcing.torch_index or split_torch_index(variable)[0],
        folder,
        configured=config.sourcing.torch_index,
        sourcing=request.sourcing,
    )
    typed = frozenset(requirement_names(request.requirements))
    sources = replace(sources, policy=replace(sources.policy, requested=typed))
    no_sources = sources.uv.no_sources
    with fetch_included_files(reporter, offline=request.sourcing.offline):
        contents = read_contents(
            folder, paths, settings, reporter, config=config, no_sources=no_sources
        )
        listed = _list_recorded(contents, paths.folder)
        required = settings.requested
        if not settings.only:
            required |= listed
        further = (
            *_collect_settings(settings, folder, contents),
            *_collect_recorded_settings(settings, paths.folder, contents, listed),
            *_collect_nested_settings(required.lines, folder, no_sources),
        )
        return apply_no_index(sources.add_settings(further, folder)), contents


def _select_machine(
    settings: Settings, here: Machine | None, contents: Contents, reporter: Reporter
) -> Machine:
    """Return the machine to plan for, with the glibc that its locks assume."""
    if settings.machine is None:
        from gpuinstall.machine.probe import read_machine  # slow to import

        return here or read_machine(reporter)
    machine = settings.machine
    if machine.os == "linux" and not machine.glibc:
        machine = replace(machine, glibc=contents.glibc or read_assumed_glibc())
    return machine


def _find_active_python(request: Request, paths: EnvironmentPaths) -> tuple[str, ...]:
    """Return the version of the user's Python for a new environment."""
    if request.python or isfile(paths.venv / "pyvenv.cfg"):
        return ()
    from gpuinstall.machine.pythons import read_active_python  # slow to import

    return tuple(filter(None, [read_active_python()]))


@contextmanager
def fetch_included_files(reporter: Reporter, *, offline: bool) -> Iterator[None]:
    """Read the URLs that requirements files include in a block.

    Args:
        reporter: Reports each URL before its request.
        offline: Whether to use only the cache.
    """

    @cache
    def fetch(url: str, file: Path) -> str:
        from gpuinstall.sources.session import read_remote_text  # slow to import

        setting = create_setting(Effect.FILE, "-r or -c", url, file)
        folder = file.absolute().parent
        addresses = Addresses(settings=(setting,))
        selected = Sources(addresses, policy=read_policy(folder))
        report_folder_sources(selected, reporter)
        return read_remote_text(url, offline=offline)

    token = FETCH.set(fetch)
    try:
        yield
    finally:
        FETCH.reset(token)


def _report_logins(settings: Settings, reporter: Reporter) -> None:
    """Report the logins that the user types, which no file records."""
    sourcing = settings.request.sourcing
    sources = settings.typed_requirements.sources
    typed = {name: " ".join(words) for name, words in sourcing.addresses.items()}
    typed["--torch-index"] = sourcing.torch_index or ""
    names = [one.package for one in sources if one.login]
    for name in (*names, *(name for name in typed if has_login(typed[name]))):
        reporter.notice(
            "Login",
            f"lock files do not contain the login of {name}; "
            "later commands read it from a netrc file or a keyring",
        )


def _collect_settings(
    settings: Settings, folder: Path, contents: Contents
) -> Iterator[SourceSetting | UvSetting]:
    """Yield the settings of the command, and of ``[tool.gpuinstall]``."""
    pages = partial(create_setting, Effect.EXTENSIONS, "extension-sources")
    given = settings.request.sourcing
    for address in given.extension_sources:
        yield replace(pages(address, Path()), is_own=True)
    yield from settings.typed_requirements.settings
    configured = contents.config.sourcing
    for address in configured.extension_sources:
        yield pages(address, folder / PROJECT)
    for sourcing, file in ((given, Path(_GIVEN)), (configured, Path(PROJECT))):
        if sourcing.only_binary:
            yield UvSetting(ONLY_BINARY, True, file)
    for _, listed in sorted(settings.files.items()):
        yield from listed.settings


def _list_recorded(contents: Contents, folder: Path) -> RequirementsFile:
    """Return the requirements in the project's files and in its locks."""
    locks = TextOrigin(str(folder / "pylock.*.toml"))
    unfiled = (one.at(locks) for one in find_unfiled_requirements(contents.recorded))
    return join_files((*contents.files.values(), RequirementsFile.from_lines(unfiled)))


def _collect_recorded_settings(
    settings: Settings, folder: Path, contents: Contents, listed: RequirementsFile
) -> Iterator[SourceSetting | UvSetting]:
    """Yield the settings in the project's files and lock files.

    The indexes in lock files may otherwise be set only in their author's configuration.

    Args:
        settings: The settings of the command.
        folder: The folder of the lock files.
        contents: The files.
        listed: The requirements in the files and locks, with their settings.
    """
    removed = set(map(normalize_name, settings.without))
    written = [*listed.settings]
    if not settings.only:
        # ``select_extras`` later selects one extra or group of each set.
        alternatives = chain.from_iterable(contents.declaration.alternatives)
        written += [
            setting
            for one in alternatives
            for setting in one.listed.settings
            if setting.key != TORCH_SOURCE
        ]
    for setting in written:
        is_gone = settings.only or setting.package in removed
        if not (is_gone and setting.key == BY_ADDRESS):
            yield setting
    if settings.only:
        return
    for lock in contents.locks.valid:
        indexes = lock.indexes if lock.is_from_gpuinstall else {}
        for name in [one for one in indexes if one not in removed]:
            yield create_setting(
                Effect.KNOWN_INDEX,
                "locked package index",
                indexes[name],
                folder / lock.name,
                package=name,
            )
        yield from _keep_commits(lock, folder)
    if contents.project_lock:
        names = map(split_part, (*contents.files, *settings.files))
        parts = {part for _, part in names if part}
        for package, _ in contents.project_lock.select_packages(parts):
            yield from package.settings


def _keep_commits(lock: Lock, folder: Path) -> Iterator[SourceSetting]:
    """Yield the commits in a lock, which the next lock keeps, as in uv."""
    for package in lock.pylock.packages:
        vcs: Any = package.vcs
        if not vcs:
            continue
        address = vcs.url or (folder / vcs.path).as_uri()
        row = {"type": vcs.type, "url": address, "commit-id": vcs.commit_id}
        if vcs.requested_revision:
            row["requested-revision"] = vcs.requested_revision
        setting = create_setting(
            Effect.COMMIT,
            "locked commit",
            vcs.commit_id,
            folder / lock.name,
            package=f"{package.name}=={package.version}",
        )
        # A lock does not record its own commits as a setting.
        yield replace(setting, options=row, is_own=True)


def _collect_nested_settings(
    requirements: Iterable[Requirement], folder: Path, no_sources: Collection[str]
) -> Iterator[SourceSetting]:
    """Yield the sources in requested projects."""
    projects = [one for one in requirements if one.url]
    if projects:
        from gpuinstall.lock.request.project import read_nested_settings

        yield from read_nested_settings(projects, folder, no_sources)
