"""What a project itself depends on, for a lock of which the requirements are not named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tomli
from packaging.errors import ExceptionGroup
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from gpuinstall.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path


def read_dependencies(folder: Path, family: Collection[str]) -> tuple[str, ...]:
    """Read those of the project in ``folder``, none where there is no project; raise UsageError for malformed ones."""
    path = folder / "pyproject.toml"
    return parse_dependencies(tomli.loads(path.read_text("utf-8-sig")), family) if path.is_file() else ()


def parse_dependencies(pyproject: Mapping[str, Any], family: Collection[str]) -> tuple[str, ...]:
    """The dependencies of ``[project]`` and of the groups that uv installs unasked (``default-groups``, or dev).

    Raise UsageError where they are malformed, or one that is not of the ``family`` has a source of its own.
    """
    project, own = pyproject.get("project", {}), pyproject.get("tool", {}).get("uv", {})
    try:
        listed = [*project.get("dependencies", ()), *_grouped(pyproject.get("dependency-groups", {}), own)]
        found = tuple(dict.fromkeys(map(str, _expanded(map(Requirement, listed), project))))
    except (ExceptionGroup, InvalidRequirement, LookupError, TypeError, AttributeError) as error:
        message = "pyproject.toml: the project's dependencies or groups are malformed"
        raise UsageError("config-malformed", message, why=str(error)) from None
    _check_sources(found, own.get("sources", {}), family)
    return found


def _grouped(groups: Mapping[str, Any], uv: Mapping[str, Any]) -> tuple[str, ...]:
    from packaging.dependency_groups import resolve_dependency_groups

    wanted = uv.get("default-groups", [name for name in groups if canonicalize_name(name) == "dev"])
    return resolve_dependency_groups(groups, *(groups if wanted == "all" else wanted))


def _expanded(requirements: Iterable[Requirement], project: Mapping[str, Any]) -> Iterator[Requirement]:
    """Put the project's own extras in the place of the project (``thing[test]``)."""
    for requirement in requirements:
        if canonicalize_name(requirement.name) != canonicalize_name(project.get("name", "")):
            yield requirement
            continue
        for extra in sorted(requirement.extras):
            yield from _expanded(map(Requirement, project["optional-dependencies"][extra]), project)


def _check_sources(requirements: Iterable[str], sources: Iterable[str], family: Collection[str]) -> None:
    elsewhere = {canonicalize_name(name) for name in sources} - set(family)
    for text in requirements:
        if canonicalize_name(Requirement(text).name) in elsewhere:
            raise UsageError(
                "own-source",
                f"{text} has a source of its own in [tool.uv.sources], and a lock takes it from the default index",
                hint="name what to lock without it: [tool.gpuinstall] requirements = […]",
            )
