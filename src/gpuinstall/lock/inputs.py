"""What a lock is made from: requirements, the files that they were read from, or a project's own dependencies."""

from __future__ import annotations

import hashlib
import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.errors import ExceptionGroup
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from gpuinstall.errors import UsageError
from gpuinstall.files import parse_toml, read_document
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.plan.values import Reason
from gpuinstall.requirements_file import read_requirements

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from gpuinstall.plan.requirement import Asked


def plain(requirements: Iterable[str]) -> tuple[str, ...]:
    """Requirements in one spelling and order; raise UsageError for a malformed one."""
    return tuple(sorted({_spelled(parse_requirement(text)) for text in requirements}))


def is_requirement(text: object) -> bool:
    """Say whether something is a requirement."""
    with suppress(UsageError):
        return isinstance(text, str) and bool(parse_requirement(text))
    return False


def digest(inputs: Iterable[str]) -> str:
    """The digest of requirements, in any order."""
    return hashlib.sha256(json.dumps(sorted(inputs)).encode()).hexdigest()


def digest_files(names: Iterable[str], folder: Path) -> dict[str, str]:
    """The digest of what each requirements file asks for, by its path from ``folder``.

    What has no such path (a pipe, a file on another drive) is passed over; raise UsageError for a malformed file.
    """
    kept = (path for path in map(Path, sorted(names)) if path.is_file() and path.absolute().drive == folder.drive)
    return {Path(os.path.relpath(path, folder)).as_posix(): _digest(path) for path in kept}


def changed_inputs(files: Mapping[str, str], folder: Path) -> Iterator[Reason]:
    """Say which of the requirements files that were recorded are gone, or ask for something else today."""
    for name, before in files.items():
        if not (folder / name).is_file():
            yield Reason("inputs-gone", f"it was made from {name}, which is not there")
        elif _digest_today(folder / name) != before:
            yield Reason("inputs-changed", f"{name} has changed since it was made")


def read_dependencies(folder: Path, family: Collection[str]) -> tuple[str, ...]:
    """Read those of the project in ``folder``, none where there is no project; raise UsageError for malformed ones."""
    path = folder / "pyproject.toml"
    return parse_dependencies(parse_toml(read_document(path, folder)), family) if path.is_file() else ()


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


def _spelled(requirement: Asked) -> str:
    return re.sub(r"^[\w.-]+", requirement.name, requirement.text)


def _digest(path: Path) -> str:
    return digest(plain(read_requirements(path)))


def _digest_today(path: Path) -> str | None:
    try:
        return _digest(path)
    except UsageError:
        return None


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
