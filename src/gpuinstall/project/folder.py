"""What a folder says, by its files and its locks, and what the caller of a run says."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING

from gpuinstall.base.config import read_config
from gpuinstall.base.errors import UsageError
from gpuinstall.base.request import FOLDERS_OWN, Request
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


class Settings(Value):
    """What the caller of a run says, by the options of a command or the arguments of a call."""

    request: Request = FOLDERS_OWN
    """What is added to what the folder asks for."""

    files: Mapping[str, RequirementsFile] = {}
    """Requirements files by their names, which are added too."""

    only: bool = False
    """Whether ``request`` and ``files`` are the whole request: what the folder's files and locks ask for does not count."""

    anew: bool = False
    """Whether the backend that the environment was made for does not count either."""

    without: tuple[str, ...] = ()
    """Packages to take out."""

    machine: Machine | None = None
    """Another one than this."""

    names_gpus: bool = False
    """Whether the caller names the GPUs of that machine."""

    venv: Path | None = None
    """The environment; None: ``.venv`` in the folder."""

    base_python: Path | None = None
    """The base interpreter of the environment; None: any of its version."""

    only_looks: bool = False
    """Whether no environment is changed or started."""

    typed_in: Path | None = None
    """The folder in which the command was typed; None: the working folder."""


class Contents(Value):
    """What a folder says; each file is read when it is first needed.

    Raise UsageError, when a part is read, for what is malformed in it.
    """

    folder: Path
    paths: EnvironmentPaths
    """Where the environment lies, and in its folder the locks."""

    requested: frozenset[str] = frozenset()
    """The files, extras, and groups that the caller requests."""

    @cached_property
    def config(self) -> Request:
        """What the project in the folder is configured for."""
        return read_config(self.folder)

    @cached_property
    def declaration(self) -> Declaration:
        """What a file of the folder asks for: its settings, its project, a list of requirements; or nothing."""
        return read_declaration(self.folder, self.config.requirements)

    @cached_property
    def limits(self) -> dict[str, RequirementsFile]:
        """The constraints in uv's settings of the folder and of its workspace, by the path of the file from there."""
        return project_limits(os.environ, self.folder)

    def read_own_lock(self) -> Lock | None:
        """Return the copy of its lock that the environment holds now."""
        return read_own_lock(self.paths.venv)

    def read_recorded(self) -> Request:
        """Return what the locks of the folder, or of its environment, were made for, as they are now."""
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
    """Return what files request today, by their paths from the folder: its own, uv's settings, files of earlier commands.

    One that cannot be read asks for what it did when the lock was made: an image may hold the lock without it.

    Args:
        contents: The folder.
        reporter: Is told of files that are gone.
        only: Whether nothing but the request of this command counts, so that what they asked for is not missed.

    Raises:
        UsageError: Sources were named in one that is gone: its packages would come from the default index.
    """
    # A file of the folder counts as it is today, whatever the lock says of it.
    recorded = contents.read_recorded()
    files = contents.declaration.files | contents.limits
    gone = []
    for name, lines in recorded.files.items():
        # An export in the place of a file says nothing of what that asked for.
        known = {*files, *contents.declaration.unread}
        if name in known or is_settings(name, lines):
            continue
        try:
            files[name] = read_again(name, lines, contents.paths.folder)
        except UsageError as error:
            # The file is there, and does not have the group: what it asked for goes, as lines do that are deleted.
            if error.code in {"group-unknown", "extra-unknown"}:
                files[name] = RequirementsFile()
                reporter.warn(f"{error.message}: what it asked for goes")
                continue
            # Its text may be a stranger's choice, and is not repeated.
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
        f"{names}: what was requested there stays (gpuinstall lock --only REQ... drops it)"
    )
    return files
