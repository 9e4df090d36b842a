"""Members of uv's workspaces."""

from __future__ import annotations

import os
from collections.abc import Mapping
from glob import has_magic
from itertools import chain, takewhile
from os.path import exists, isdir, isfile
from pathlib import Path
from typing import Any

from gpuinstall.base.files import (
    check_outside,
    expand_home,
    find_repository,
    leads_outside,
    real_path,
)
from gpuinstall.sources.requirements_file import PROJECT

_MAX_PATHS = 100_000
"""Maximum number of paths that a part of a pattern matches."""


def find_workspace_members(workspace: Mapping[str, Any], root: Path) -> list[str]:
    """Return the paths of the members of a workspace from its root.

    Args:
        workspace: uv's workspace table.
        root: The folder of the file with the table.

    Raises:
        UsageError: A member outside the root belongs to another user.
        ValueError: A pattern leads outside the repository, or lists too many files.
    """

    def find_paths(key: str) -> set[str]:
        found = (expand_pattern(one, root) for one in workspace.get(key, ()))
        return {os.path.relpath(path, root) for path in chain.from_iterable(found)}

    paths = sorted(find_paths("members") - find_paths("exclude"))
    members = [path for path in paths if isfile(root / path / PROJECT)]
    for path in filter(leads_outside, members):
        check_outside(root / path, root / PROJECT, f"{root / PROJECT}: members")
    return members


def expand_pattern(pattern: str, root: Path) -> list[Path]:
    """Return the paths that match a pattern in uv's table of a project.

    Links can form a cycle, and uv would follow it without end. If the root is in no
    repository, the pattern may begin with ``..``, but must not list the home folder.

    Raises:
        ValueError: The pattern leads outside the repository, or lists too many files.
    """
    parts = Path(pattern).parts
    repository = find_repository(root)
    places = [root]
    if parts[:1] == ("..",) and not exists(repository / ".git"):
        fixed = [*takewhile(lambda part: not has_magic(part), parts)]
        outside = real_path(root.joinpath(*fixed))
        if not real_path(expand_home("~")).is_relative_to(outside):
            repository = outside
            places = [outside]
            parts = parts[len(fixed) :]
    for part in parts:
        found = list[Path]()
        for folder in filter(isdir, places):
            if not real_path(folder).is_relative_to(repository):
                raise ValueError(f"{pattern} leads outside {repository}")
            found += folder.glob(part) if has_magic(part) else [folder / part]
            if len(found) > _MAX_PATHS:
                raise ValueError(f"{pattern} matches more than {_MAX_PATHS} paths")
        places = found
    return places
