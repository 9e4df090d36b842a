"""Read the files in a project folder, and define the settings of a command."""

from __future__ import annotations

import os
import re
from functools import cached_property
from typing import TYPE_CHECKING

from gpuinstall.base.config import read_config
from gpuinstall.base.errors import UsageError
from gpuinstall.base.request import FOLDER_REQUEST, Request
from gpuinstall.base.values import Value, replace
from gpuinstall.lock.request.declaration import (
    Declaration,
    is_settings_file,
    read_declaration,
    read_inputs,
    reread_file,
)
from gpuinstall.lock.request.history import (
    read_environment_lock,
    read_recorded_request,
    remove_files,
)
from gpuinstall.sources.configuration import read_project_constraints
from gpuinstall.sources.requirements_file import (
    RequirementsFile,
    extra_path,
    join_files,
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
"""Pattern for a Python version such as ``3.12``."""


class Settings(Value):
    """Settings from command-line options or API arguments."""

    request: Request = FOLDER_REQUEST
    """The user's request, which is added to the project's request."""

    files: Mapping[str, RequirementsFile] = {}
    """The requirements files to add to the project's request, by file name."""

    only: bool = False
    """Whether ``request`` and ``files`` replace the project's request."""

    ignores_existing_backend: bool = False
    """Whether to ignore the backend that the existing environment uses."""

    without: tuple[str, ...] = ()
    """The names of packages to remove from the request."""

    machine: Machine | None = None
    """The machine to plan for, or None for the local machine."""

    is_gpu_given: bool = False
    """Whether ``machine`` is from the ``--gpu`` option."""

    venv: Path | None = None
    """The environment's path, or None for ``.venv`` in the project folder."""

    base_python: Path | None = None
    """The base Python interpreter for the environment, or None for any."""

    is_read_only: bool = False
    """Whether the command is read-only and does not run the environment."""

    command_folder: Path | None = None
    """The folder in which the command runs; None: the working directory."""


class Contents(Value):
    """The configuration and lock files in a project folder, read on first use.

    Accessing a property raises UsageError if its file is malformed.
    """

    folder: Path
    paths: EnvironmentPaths
    """The paths of the project's environment and lock files."""

    requested: frozenset[str] = frozenset()
    """The paths of requested requirements files, extras, and groups."""

    @cached_property
    def config(self) -> Request:
        """The project's settings, such as ``[tool.gpuinstall]``."""
        return read_config(self.folder)

    @cached_property
    def declaration(self) -> Declaration:
        """The requirements that the project's files declare."""
        return read_declaration(self.folder, self.config.requirements)

    @cached_property
    def limits(self) -> dict[str, RequirementsFile]:
        """The constraints in uv's settings, by path of the settings file."""
        return read_project_constraints(os.environ, self.folder)

    def read_own_lock(self) -> Lock | None:
        """Return the environment's lock file unless a change is unfinished."""
        return (
            None
            if self.paths.has_unfinished_change()
            else read_environment_lock(self.paths.venv)
        )

    def read_locked_request(self) -> Request:
        """Return the request that is recorded in the project's lock files."""
        recorded = read_recorded_request(self.paths.folder, self.read_own_lock())
        return remove_files(recorded, self._find_replaced_parts())

    def _find_replaced_parts(self) -> set[str]:
        """Return the extras and groups that conflict with requested ones."""
        if not any(split_part(name)[1] for name in self.requested):
            return set()
        replaced = set[str]()
        for members in self.declaration.alternatives:
            names = {member.part.path for member in members}
            if not names.isdisjoint(self.requested):
                replaced |= names - self.requested
        return replaced


def read_extras(folder: Path, request: Request) -> dict[str, RequirementsFile]:
    """Return the requirements in requested extras, by path of the extra."""
    names = [str(folder / extra_path(extra)) for extra in request.extras]
    return {name: read_inputs(name, folder) for name in names}


def add_extras(request: Request, folder: Path) -> Request:
    """Add the requirements of the requested extras to a request."""
    extras = join_files(read_extras(folder, request).values())
    return replace(
        request,
        requirements=(*request.requirements, *extras.requirements),
        constraints=(*request.constraints, *extras.constraints),
    )


def read_files(
    contents: Contents, reporter: Reporter, *, only: bool
) -> dict[str, RequirementsFile]:
    """Return the current requirements in a project's files, by relative path.

    Requirements are read from the project's files, uv's settings, and files that earlier
    commands used. If a file is missing, the lines that a lock file recorded are used,
    because a container image may contain only the lock file.

    Args:
        contents: The files of the project folder.
        reporter: Reports missing files.
        only: Whether to use only the request of this command.

    Raises:
        UsageError: A missing file specified package indexes. Without them, its
            packages would be installed from the default index.
    """
    recorded = contents.read_locked_request()
    files = contents.declaration.files | contents.limits
    gone = []
    for name, lines in recorded.files.items():
        # Ignore exported files, because they do not contain a request.
        known = {*files, *contents.declaration.unread}
        if name in known or is_settings_file(name, lines):
            continue
        try:
            files[name] = reread_file(name, lines, contents.paths.folder)
        except UsageError as error:
            # Ignore a dependency group that was removed from its file.
            if error.code in {"group-unknown", "extra-unknown"}:
                files[name] = RequirementsFile()
                reporter.warn(
                    f"{error.message}; its requirements were removed from the request"
                )
                continue
            # Do not print this error: it may quote another user's file.
            files[name] = RequirementsFile.from_lines(lines)
            gone.append(name)
    if not gone or only:
        return files
    names = f"{', '.join(gone)} cannot be read"
    if recorded.sources:
        raise UsageError(
            "inputs-gone",
            f"{names}, and the lock file was resolved with {', '.join(recorded.sources)}",
            why="without these settings, packages could come from other sources",
            hint="gpuinstall install --only torch   # or restore the file",
        )
    reporter.warn(
        f"{names}; its recorded requirements still apply (gpuinstall lock --only REQ... drops them)"
    )
    return files
