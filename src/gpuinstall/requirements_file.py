"""Requirements files as far as they say what is wanted: requirements, constraints, comments, and further files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from gpuinstall.errors import UsageError
from gpuinstall.files import read_document

PROJECT = "pyproject.toml"
_ELSEWHERE = "where packages come from is said by --torch-index and by pip's and uv's own configuration"


class RequirementsFile(NamedTuple):
    """What a file asks for, and what it allows of what turns up; paths in it start from the working folder."""

    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()

    def __or__(self, other: RequirementsFile) -> RequirementsFile:
        """Both together."""
        return RequirementsFile(self.requirements + other.requirements, self.constraints + other.constraints)


def group_path(group: str) -> str:
    """Write ``dev`` and ``folder/pyproject.toml:dev``, as pip and uv take a group, with its file."""
    return group if ":" in group else f"{PROJECT}:{group}"


def split_group(name: str) -> tuple[str, str]:
    """The file and the group of ``folder/pyproject.toml:dev``; the group is empty for any other file."""
    match = re.fullmatch(rf"((?:.*[/\\\\])?{re.escape(PROJECT)}):(.+)", name)
    return (match[1], match[2]) if match else (name, "")


def read_inputs(name: str) -> RequirementsFile:
    """Read a requirements file, or a dependency group of a project; raise UsageError where it is malformed."""
    file, group = split_group(name)
    return RequirementsFile(_read_group(Path(file), group)) if group else read_requirements(Path(file))


def read_requirements(path: Path, inside: tuple[Path, ...] = ()) -> RequirementsFile:
    """Read a requirements file: one requirement a line, comments, ``-e``, ``-r`` and ``-c`` of other files; no more."""
    if "\0" in str(path):
        raise UsageError("requirements-unreadable", "a requirements file is named that no system can have")
    if path.resolve() in inside:
        raise UsageError("requirements-circular", f"{path} includes itself")
    try:
        lines = read_document(path).replace("\\\n", " ").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError("requirements-unreadable", f"{path} cannot be read: {reason}") from None
    contents, files = RequirementsFile(), (*inside, path.resolve())
    for line in (line.partition(" #")[0].strip() for line in lines):
        if further := re.fullmatch(r"(?:-r|--requirement)[\s=]*(.+)", line):
            contents |= read_requirements(path.parent / further[1], files)
        elif further := re.fullmatch(r"(?:-c|--constraint)[\s=]*(.+)", line):
            constraining = read_requirements(path.parent / further[1], files)
            contents |= RequirementsFile((), constraining.requirements + constraining.constraints)
        elif line and not line.startswith("#"):
            if option := re.search(r"(?:^|\s)(--?[a-z][\w-]*)", re.sub(r"^(-e|--editable)[\s=]", "", line)):
                message = f"{path}: the option {option[1]} is not read here"
                raise UsageError("requirements-option", message, hint=_ELSEWHERE)
            contents |= RequirementsFile((line,))
    return contents


def _read_group(path: Path, group: str) -> tuple[str, ...]:
    import tomli
    from packaging.dependency_groups import resolve_dependency_groups
    from packaging.errors import ExceptionGroup

    try:
        groups = tomli.loads(path.read_text("utf-8-sig")).get("dependency-groups", {})
        return tuple(map(str, resolve_dependency_groups(groups, group)))
    except OSError as error:
        raise UsageError("requirements-unreadable", f"{path} cannot be read: {error.strerror}") from None
    except ExceptionGroup as error:
        reason = "; ".join(str(reason) for reason in error.exceptions)
        raise UsageError("group-unknown", f"{path} has no usable dependency group {group!r}: {reason}") from None
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise UsageError("group-unknown", f"{path} has no usable dependency group {group!r}: {error}") from None
