"""Open a project, with its settings, machine, and HTTP session."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from itertools import chain
from os.path import isdir, isfile
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.base.environment_paths import EnvironmentPaths, follow_redirect
from gpuinstall.base.files import expand_home, real_path
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.request import Request, Sourcing, split_torch_index
from gpuinstall.base.requirement import (
    TextOrigin,
    normalize_name,
    requirement_names,
)
from gpuinstall.base.text import remove_logins
from gpuinstall.base.values import Value, replace
from gpuinstall.lock.file.target import find_locks
from gpuinstall.lock.request.declaration import group_files_by_path
from gpuinstall.lock.request.history import find_unfiled_requirements
from gpuinstall.lock.request.tools import (
    find_project_lock,
    read_project_lock_settings,
    refuse_family_builds,
)
from gpuinstall.plan.demand import create_marker_values
from gpuinstall.plan.python import RUNNING_PYTHON
from gpuinstall.project.folder import Contents, Settings, read_files
from gpuinstall.sources import Sources, read_sources
from gpuinstall.sources.provenance import (
    BY_ADDRESS,
    TORCH_SOURCE,
    SourceSetting,
    create_setting,
)
from gpuinstall.sources.requirements_file import (
    PROJECT,
    RequirementsFile,
    join_files,
    split_part,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpuinstall.base.machine import Machine
    from gpuinstall.catalog import Catalog
    from gpuinstall.lock.file.entries import LockGate
    from gpuinstall.sources.session import Session


@contextmanager
def open_project(
    folder: Path,
    settings: Settings | None = None,
    reporter: Reporter | None = None,
) -> Iterator[Project]:
    """Open a project, and close its HTTP connections and files on exit.

    Args:
        folder: The folder of the project.
        settings: The command-line options or API arguments.
        reporter: Reports progress.

    Yields:
        The open project.
    """
    with ExitStack() as resources:
        yield Project(
            folder,
            settings or Settings(),
            reporter or Reporter(),
            resources,
        )


class Project(Value):
    """A project folder with its settings, machine, and HTTP session."""

    folder: Path
    settings: Settings
    reporter: Reporter
    resources: ExitStack

    @cached_property
    def paths(self) -> EnvironmentPaths:
        """The paths of the project's environment and lock files."""
        venv = self.settings.venv or self.folder / ".venv"
        # Read-only commands also work in a folder where an environment cannot be created.
        if self.settings.is_read_only:
            return EnvironmentPaths(
                follow_redirect(venv).absolute(), project=venv.absolute().parent
            )
        return EnvironmentPaths.at(venv)

    @cached_property
    def contents(self) -> Contents:
        """The configuration and lock files in the project folder."""
        requested = group_files_by_path(self.settings.files, self.paths.folder)
        return Contents(self.folder, self.paths, frozenset(requested))

    @cached_property
    def files(self) -> dict[str, RequirementsFile]:
        """The requirements in the project's files, by relative path."""
        return read_files(self.contents, self.reporter, only=self.settings.only)

    def discard_contents(self) -> None:
        """Discard cached file contents when project files may have changed."""
        # Clear the cache in place, because the caller of open_project keeps this object.
        for name in vars(self).keys() - {"_this_machine"}:
            del vars(self)[name]

    @property
    def typed_requirements(self) -> RequirementsFile:
        """The requirements that the user typed on the command line."""
        request = self.settings.request
        words = RequirementsFile.from_lines(
            (*request.requirements, *request.constraints)
        )
        own = [replace(setting, is_own=True) for setting in words.settings]
        return replace(words, settings=tuple(own))

    @cached_property
    def requested_folders(self) -> set[Path]:
        """The local folders that the user requests without ``--editable``."""
        requirements = self.settings.request.requirements
        paths = [one.path for one in requirements if one.path and not one.editable]
        places = [real_path(self.folder / expand_home(path)) for path in paths]
        return {place for place in places if isdir(place)}

    @cached_property
    def sources(self) -> Sources:
        """The package indexes, which are reported on first access."""
        torch_index = self.settings.request.sourcing.torch_index
        variable = os.environ.get("GPUINSTALL_TORCH_INDEX", "")
        sources = read_sources(
            torch_index or split_torch_index(variable)[0],
            os.environ,
            self.folder,
            configured=self.contents.config.sourcing.torch_index,
        ).add_settings(_collect_source_settings(self), self.folder)
        sources = refuse_family_builds(sources)
        typed = requirement_names(self.settings.request.requirements)
        policy = replace(sources.policy, requested=frozenset(typed))
        sources = replace(sources, policy=policy)
        for setting in self.typed_requirements.settings:
            if setting.is_own and remove_logins(setting.value) != setting.value:
                self.reporter.notice(
                    "Login",
                    f"lock files do not contain the login of {setting.package}; "
                    "later commands read it from a netrc file or a keyring",
                )
        sources.report_folder_sources(sources.folder_sources, self.reporter)
        return sources

    @property
    def sourcing(self) -> Sourcing:
        """The options for package sources, such as ``--only-binary``."""
        chosen = self.settings.request.sourcing
        only_binary = (
            chosen.only_binary
            or os.environ.get("GPUINSTALL_ONLY_BINARY", "0") not in {"", "0"}
            or self.contents.config.sourcing.only_binary
            or ":all:" in self.sources.only_binary
        )
        return replace(chosen, only_binary=only_binary)

    @property
    def lock_gate(self) -> LockGate:
        """The checker for package sources in existing lock files."""
        return self._make_gate(self.settings.files.values(), (self.typed_requirements,))

    @property
    def later_gate(self) -> LockGate:
        """The lock file checker for commands without typed requirements."""
        return self._make_gate()

    def _make_gate(self, *typed: Iterable[RequirementsFile]) -> LockGate:
        from gpuinstall.lock.file.entries import LockGate

        folder = self.paths.folder
        # Skip missing files, because their requirements exist only in a lock file.
        files = [
            file
            for name, file in self.files.items()
            if isfile(folder / split_part(name)[0])
        ]
        declared = chain.from_iterable(self.contents.declaration.alternatives)
        alternatives = [member.listed for member in declared]
        required = join_files((*files, *alternatives, *chain(*typed)))
        return LockGate(self.sources, folder, required.requirements)

    @cached_property
    def session(self) -> Session:
        """The HTTP clients and caches, which are opened on first use."""
        from gpuinstall.sources.session import open_session

        opened = open_session(
            self.sources,
            self.reporter,
            self.folder,
            sourcing=self.sourcing,
        )
        return self.resources.enter_context(opened)

    @cached_property
    def catalog(self) -> Catalog:
        """The catalog of torch builds, including builds on the torch index."""
        from gpuinstall.wheels.learned.store import load_extended_catalog

        base = self.sources.torch_index
        return replace(load_extended_catalog(base), torch_index=base)

    @property
    def machine(self) -> Machine:
        """The machine to plan for, which is this machine by default."""
        return self.settings.machine or self._this_machine

    @cached_property
    def markers(self) -> Mapping[str, str]:
        """The marker values of the machine and its preferred Python."""
        request = self.settings.request
        request = replace(
            request,
            python=request.python or self.contents.config.python,
            preferred_pythons=self.preferred_pythons,
        )
        return create_marker_values(request, self.machine, self.catalog)

    @property
    def preferred_pythons(self) -> tuple[str, ...]:
        """The Python versions to try before the machine's own."""
        running = () if self.settings.machine else (RUNNING_PYTHON,)
        return self.settings.request.preferred_pythons + running

    def find_request_machine(self, request: Request) -> Machine | None:
        """Return the machine to plan for; None if it lacks required GPUs."""
        if request.is_for_gpus and not self.machine.gpus:
            return None
        return self.machine

    @cached_property
    def _this_machine(self) -> Machine:
        from gpuinstall.machine.probe import read_machine

        return read_machine(self.reporter)


def _collect_source_settings(project: Project) -> Iterator[SourceSetting]:
    """Yield the index settings of the user and the project."""
    settings = project.settings
    contents = project.contents
    folder = project.folder
    pages = partial(create_setting, "gpuinstall", "extension-sources")
    for address in settings.request.sourcing.extension_sources:
        yield replace(pages(address, Path()), is_own=True)
    yield from project.typed_requirements.settings
    for address in contents.config.sourcing.extension_sources:
        yield pages(address, folder / PROJECT)
    for listed in group_files_by_path(settings.files, project.paths.folder).values():
        yield from listed.settings
    removed = set(map(normalize_name, settings.without))
    locks = TextOrigin(str(project.paths.folder / "pylock.*.toml"))
    recorded = find_unfiled_requirements(contents.read_locked_request())
    by_locks = RequirementsFile.from_lines(one.at(locks) for one in recorded)
    files = *project.files.values(), by_locks
    # ``select_extras`` later selects one extra or group of each set.
    alternatives = [
        one.listed for one in chain.from_iterable(contents.declaration.alternatives)
    ]
    further = [
        setting
        for setting in chain.from_iterable(one.settings for one in alternatives)
        if setting.row.key != TORCH_SOURCE and not settings.only
    ]
    for setting in chain(*(one.settings for one in files), further):
        is_gone = settings.only or setting.package in removed
        if not (is_gone and setting.row.key == BY_ADDRESS):
            yield setting
    counting = join_files((*settings.files.values(), project.typed_requirements))
    if not settings.only:
        yield from _read_locked_indexes(project.paths.folder, removed)
        team_lock = find_project_lock(folder)
        if team_lock:
            names = map(split_part, (*project.files, *settings.files))
            parts = {part for _, part in names if part}
            yield from read_project_lock_settings(team_lock, parts)
        counting = join_files((counting, *files))
    texts = *counting.requirements, *counting.constraints
    projects = [one for one in texts if one.url]
    if projects:
        from gpuinstall.lock.request.project import read_nested_settings

        yield from read_nested_settings(projects, folder)


def _read_locked_indexes(folder: Path, removed: set[str]) -> Iterator[SourceSetting]:
    """Yield the package indexes that are recorded in a folder's lock files.

    These indexes may otherwise be set only in the lock file author's configuration.

    Args:
        folder: The folder with the lock files.
        removed: The names of removed packages, whose indexes are ignored.
    """
    for path in find_locks(folder):
        from gpuinstall.lock.file.fit import try_read_lock  # slow to import

        lock = try_read_lock(path)
        if lock is None or not lock.is_from_gpuinstall:
            continue
        for name, index in lock.indexes.items():
            if name not in removed:
                key = "locked package index"
                yield create_setting("gpuinstall", key, index, path, package=name)
