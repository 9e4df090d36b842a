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
from gpuinstall.requirements_file import PROJECT, read_inputs, split_group
from gpuinstall.shell import joined

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from gpuinstall.requirements_file import RequirementsFile


_MADE_AGAIN = frozenset({"inputs-changed", "other-request", "versions-differ"})
"""The reasons for which a plain ``lock`` makes a lock again, within the versions that it holds."""


def plain(requirements: Iterable[str]) -> tuple[str, ...]:
    """Requirements in one spelling and order; raise UsageError for a malformed one."""
    return tuple(sorted(spelled(requirements)))


def spelled(requirements: Iterable[str]) -> tuple[str, ...]:
    """Requirements in one spelling, each once, in the order of naming; raise UsageError for a malformed one."""
    parsed = map(parse_requirement, requirements)
    return tuple(dict.fromkeys(one.text if one.url else re.sub(r"^[\w.-]+", one.name, one.text) for one in parsed))


def is_requirement(text: object) -> bool:
    """Say whether something is a requirement."""
    with suppress(UsageError):
        return isinstance(text, str) and bool(parse_requirement(text))
    return False


def digest(inputs: Iterable[str]) -> str:
    """The digest of requirements, in any order."""
    return hashlib.sha256(json.dumps(sorted(inputs)).encode()).hexdigest()


def has_place(name: str, folder: Path) -> bool:
    """Say whether a requirements file can be found again from ``folder``: a pipe, or one on another drive, cannot."""
    path = Path(split_group(name)[0])
    return path.is_file() and path.absolute().drive == folder.drive


def lines_of(files: Mapping[str, RequirementsFile], folder: Path) -> dict[str, tuple[str, ...]]:
    """What requirements files and groups ask for, by their paths from ``folder``; ``-c`` stands before constraints."""
    return {Path(os.path.relpath(name, folder)).as_posix(): _lines(files[name]) for name in sorted(files)}


def changed_inputs(files: Mapping[str, tuple[str, ...]], folder: Path) -> Iterator[Reason]:
    """Say which of the requirements files that were recorded are gone, or ask for something else today."""
    for name, before in files.items():
        if name == PROJECT:
            continue  # it is read at every run
        if not (folder / split_group(name)[0]).is_file():
            yield Reason("inputs-gone", f"it was made from {name}, which is not there")
        elif _lines_today(str(folder / name)) != {line.removeprefix("-c ") for line in before}:
            yield Reason("inputs-changed", f"{name} has changed since it was made")


def command_again(codes: Collection[str], files: Iterable[str], requirements: Iterable[str]) -> str:
    """The command after which the locks of a folder are fresh, by the codes of the reasons why one is not.

    ``files`` and ``requirements`` are what they were made from.
    """
    if "inputs-gone" in codes:
        return f"gpuinstall lock --only {joined(requirements)}   # or put the file back"
    upgrade = [] if _MADE_AGAIN.issuperset(codes) else ["--upgrade"]
    read = [word for name in files if name != PROJECT for word in ("-r", name)]
    return joined(["gpuinstall", "lock", *upgrade, *read])


def read_dependencies(folder: Path, family: Collection[str]) -> tuple[str, ...]:
    """Read those of the project in ``folder``, none where there is no project; raise UsageError for malformed ones."""
    path = folder / "pyproject.toml"
    return parse_dependencies(parse_toml(read_document(path, folder)), family) if path.is_file() else ()


def parse_dependencies(pyproject: Mapping[str, Any], family: Collection[str]) -> tuple[str, ...]:
    """The dependencies of ``[project]`` and of the groups that uv installs unasked (``default-groups``, or dev).

    Those that uv takes from an address are asked for by that address. Raise UsageError where they are malformed, or one
    that is not of the ``family`` has another source of its own.
    """
    project, own = pyproject.get("project", {}), pyproject.get("tool", {}).get("uv", {})
    try:
        listed = [*project.get("dependencies", ()), *_grouped(pyproject.get("dependency-groups", {}), own)]
        dependencies = tuple(dict.fromkeys(_expanded(map(Requirement, listed), project)))
    except (ExceptionGroup, InvalidRequirement, LookupError, TypeError, AttributeError) as error:
        message = "pyproject.toml: the project's dependencies or groups are malformed"
        raise UsageError("config-malformed", message, why=str(error)) from None
    sources = {canonicalize_name(name): source for name, source in own.get("sources", {}).items()}
    return tuple(_from_source(one, sources.get(canonicalize_name(one.name)), family) for one in dependencies)


def _lines(file: RequirementsFile) -> tuple[str, ...]:
    return (*spelled(file.requirements), *(f"-c {text}" for text in spelled(file.constraints)))


def _lines_today(name: str) -> set[str] | None:
    try:
        file = read_inputs(name)
        return {*spelled(file.requirements), *spelled(file.constraints)}
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


def _from_source(requirement: Requirement, source: object, family: Collection[str]) -> str:
    """Write a requirement with the address that ``[tool.uv.sources]`` gives it; the family has sources of its own."""
    if source is None or canonicalize_name(requirement.name) in family:
        return str(requirement)
    address = _address(source) if isinstance(source, dict) else None
    if address is None:
        raise UsageError(
            "own-source",
            f"{requirement} has a source in [tool.uv.sources] that is no address, and a lock takes it from the default "
            "index",
            hint="name what to lock without it: [tool.gpuinstall] requirements = […]",
        )
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    marker = f" ; {requirement.marker}" if requirement.marker else ""
    editable = "-e " if isinstance(source, dict) and source.get("editable") else ""
    return f"{editable}{requirement.name}{extras} @ {address}{marker}"


def _address(source: Mapping[str, Any]) -> str | None:
    """The address of a source: a repository with its reference, a file, a folder; None for an index or a workspace."""
    inside = f"#subdirectory={source['subdirectory']}" if "subdirectory" in source else ""
    if "git" in source:
        reference = next((f"@{source[key]}" for key in ("rev", "tag", "branch") if key in source), "")
        return f"git+{source['git'].removeprefix('git+')}{reference}{inside}"
    if "url" in source:
        return f"{source['url']}{inside}"
    return str(source["path"]) if "path" in source else None
