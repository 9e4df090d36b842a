"""The contents of a folder, and the settings of a run."""

from __future__ import annotations

import os
import re
from functools import cached_property
from typing import TYPE_CHECKING

from gpuinstall.base.config import read_config
from gpuinstall.base.errors import UsageError
from gpuinstall.base.request import FOLDERS_OWN, Request
from gpuinstall.base.requirement import marker_environment
from gpuinstall.base.values import Value, replace
from gpuinstall.lock.request.declaration import (
    Declaration,
    is_settings,
    read_again,
    read_declaration,
    read_inputs,
)
from gpuinstall.lock.request.history import (
    read_own_lock,
    recorded_request,
    without_files,
)
from gpuinstall.plan.python import RUNNING_PYTHON
from gpuinstall.sources.configuration import project_limits
from gpuinstall.sources.requirements_file import (
    RequirementsFile,
    extra_path,
    joined_files,
    split_part,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gpuinstall.base.environment_paths import EnvironmentPaths
    from gpuinstall.base.machine import Machine
    from gpuinstall.base.reporter import Reporter
    from gpuinstall.lock.file.lock import Lock


SINGLE_VERSION = re.compile(r"3\.\d+")
"""A version of Python instead of a specifier."""


class Settings(Value):
    """The options of a command, or the arguments of a call."""

    request: Request = FOLDERS_OWN
    """The request to add to the folder's."""

    files: Mapping[str, RequirementsFile] = {}
    """Requirements files to add, by their names."""

    only: bool = False
    """Whether ``request`` and ``files`` replace the request of the folder."""

    anew: bool = False
    """Whether to ignore the backend of the environment, too."""

    without: tuple[str, ...] = ()
    """Packages to remove."""

    machine: Machine | None = None
    """The machine to plan for; None: this one."""

    names_gpus: bool = False
    """Whether ``--gpu`` describes that machine."""

    venv: Path | None = None
    """The environment; None: ``.venv`` in the folder."""

    base_python: Path | None = None
    """The base interpreter of the environment; None: any of its version."""

    only_looks: bool = False
    """Whether the run neither changes nor starts an environment."""

    typed_in: Path | None = None
    """The folder of the command line; None: the working folder."""


class Contents(Value):
    """The contents of a folder. A file is read when it is first needed.

    A malformed file raises UsageError.
    """

    folder: Path
    paths: EnvironmentPaths
    """The paths of the environment and the locks."""

    requested: frozenset[str] = frozenset()
    """The files, extras, and groups that the caller requests."""

    @cached_property
    def config(self) -> Request:
        """The settings of the project."""
        return read_config(self.folder)

    @cached_property
    def declaration(self) -> Declaration:
        """The request of the folder's settings, project, or other file."""
        return read_declaration(self.folder, self.config.requirements)

    @cached_property
    def limits(self) -> dict[str, RequirementsFile]:
        """The constraints in uv's settings, by the path of the file."""
        return project_limits(os.environ, self.folder)

    def read_own_lock(self) -> Lock | None:
        """Return the lock in the environment, except during a change of it."""
        return None if self.paths.is_unfinished else read_own_lock(self.paths.venv)

    def read_recorded(self) -> Request:
        """Return the request that the locks record."""
        recorded = recorded_request(self.paths.folder, self.read_own_lock())
        return without_files(recorded, self._replaced())

    def _replaced(self) -> set[str]:
        """Return the extras and groups that a requested one excludes."""
        if not any(split_part(name)[1] for name in self.requested):
            return set()
        replaced = set[str]()
        for members in self.declaration.alternatives:
            names = {member.part.path for member in members}
            if not names.isdisjoint(self.requested):
                replaced |= names - self.requested
        return replaced


def markers_on(machine: Machine, request: Request) -> Mapping[str, str]:
    """Return the values of markers on a machine, with the requested Python."""
    # A specifier selects no single version.
    is_version = SINGLE_VERSION.fullmatch(request.python or "")
    python = is_version[0] if is_version else RUNNING_PYTHON
    return marker_environment(machine.os, machine.arch, python)


def read_extras(folder: Path, request: Request) -> dict[str, RequirementsFile]:
    """Return the requirements of the extras in a request, by their names."""
    names = [str(folder / extra_path(extra)) for extra in request.extras]
    return {name: read_inputs(name) for name in names}


def with_extras(request: Request, folder: Path) -> Request:
    """Return a request with the requirements of its extras."""
    extras = joined_files(read_extras(folder, request).values())
    return replace(
        request,
        requirements=(*request.requirements, *extras.requirements),
        constraints=(*request.constraints, *extras.constraints),
    )


def read_files(
    contents: Contents, reporter: Reporter, *, only: bool
) -> dict[str, RequirementsFile]:
    """Return the current requests of files, by path from the folder.

    They are the folder's own files, uv's settings, and files of earlier commands. A
    missing file has its recorded lines: an image can have the lock without it.

    Args:
        contents: The folder.
        reporter: Receives warnings about missing files.
        only: Whether only the request of this command counts.

    Raises:
        UsageError: A missing file had sources. Without them, its packages would
            come from the default index.
    """
    recorded = contents.read_recorded()
    files = contents.declaration.files | contents.limits
    gone = []
    for name, lines in recorded.files.items():
        # An export is no request.
        known = {*files, *contents.declaration.unread}
        if name in known or is_settings(name, lines):
            continue
        try:
            files[name] = read_again(name, lines, contents.paths.folder)
        except UsageError as error:
            # The group was removed from its file, as a line can be.
            if error.code in {"group-unknown", "extra-unknown"}:
                files[name] = RequirementsFile()
                reporter.warn(f"{error.message}: its requirements are removed")
                continue
            # Its text can be another user's, and is not repeated.
            files[name] = RequirementsFile.of(lines)
            gone.append(name)
    if not gone or only:
        return files
    names = f"{', '.join(gone)} cannot be read"
    if recorded.sources:
        raise UsageError(
            "inputs-gone",
            f"{names}, and the lock was made with {', '.join(recorded.sources)}",
            why="without these settings, packages could come from other sources",
            hint="gpuinstall install --only torch   # or put the file back",
        )
    reporter.warn(
        f"{names}; its recorded requirements still apply (gpuinstall lock --only REQ... drops them)"
    )
    return files
