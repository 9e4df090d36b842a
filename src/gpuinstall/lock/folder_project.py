"""A project in a folder whose requirements can be read without building it."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from packaging.utils import canonicalize_name

from gpuinstall.base.requirement import parse_requirement
from gpuinstall.lock.build_files import static_project

if TYPE_CHECKING:
    from gpuinstall.base.requirement import ParsedRequirement


class FolderProject(NamedTuple):
    """What a project's pyproject.toml says of it."""

    name: str
    version: str
    requirements: tuple[str, ...]
    """With those of the extras that are requested of it."""

    @property
    def metadata_without_requirements(self) -> dict[str, Any]:
        """The row of uv's ``dependency-metadata`` with which it requires nothing."""
        return {"name": self.name, "version": self.version, "requires-dist": []}


def read_folder_project(requirement: ParsedRequirement, folder: Path) -> FolderProject | None:
    """Return the project that a requirement names by its folder.

    Args:
        requirement: Such as ``-e ./paper[train]``.
        folder: Where relative paths begin.

    Returns:
        None if it is no folder, or only its build backend knows its version or what it requires.
    """
    if requirement.url is None or requirement.is_remote:
        return None
    table = static_project(folder / Path(requirement.url).expanduser())
    if table is None:
        return None
    try:
        lists = [table.get("dependencies", [])]
        extras = table.get("optional-dependencies", {})
        lists.extend(extras[extra] for extra in requirement.extra_names)
        name = canonicalize_name(table["name"])
        version = str(table["version"])
        requirements = list(map(parse_requirement, chain.from_iterable(lists)))
    except (KeyError, TypeError, AttributeError):
        return None
    # An extra of all extras names the project itself.
    if any(requirement.name == name for requirement in requirements):
        return None
    return FolderProject(name, version, tuple(one.text for one in requirements))
