"""Files as far as they say what is wanted: requirements, constraints, further files; conda's pip part."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.errors import UsageError
from gpuinstall.files import read_document

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

PROJECT = "pyproject.toml"
_ELSEWHERE = "Package sources are set by --torch-index and by pip's and uv's configuration"


class RequirementsFile(NamedTuple):
    """What a file asks for, and what it allows of what turns up; paths in it start from the working folder.

    ``options`` are pip's in it, which are not read; ``conda`` is what conda brings, as conda writes it.
    """

    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    conda: tuple[str, ...] = ()

    def __or__(self, other: RequirementsFile) -> RequirementsFile:
        """Both together."""
        return RequirementsFile(*(one + another for one, another in zip(self, other, strict=True)))

    @property
    def unread(self) -> str:
        """What is not read of it, for people."""
        return f"{', '.join(dict.fromkeys(self.options))} is not read here: {_ELSEWHERE}"


def group_path(group: str) -> str:
    """Write ``dev`` and ``folder/pyproject.toml:dev``, as pip and uv take a group, with its file."""
    return group if ":" in group else f"{PROJECT}:{group}"


def split_group(name: str) -> tuple[str, str]:
    """The file and the group of ``folder/pyproject.toml:dev``; the group is empty for any other file."""
    match = re.fullmatch(rf"((?:.*[/\\\\])?{re.escape(PROJECT)}):(.+)", name)
    return (match[1], match[2]) if match else (name, "")


def read_requirements(path: Path, inside: tuple[Path, ...] = ()) -> RequirementsFile:
    """Read a requirements file: one requirement a line, comments, ``-e``, ``-r`` and ``-c`` of other files; no more."""
    if "\0" in str(path):
        raise UsageError("requirements-unreadable", "the name of a requirements file is not valid")
    if path.resolve() in inside:
        raise UsageError("requirements-circular", f"{path} includes itself")
    return _parse_lines(read_listed(path).replace("\\\n", " ").splitlines(), path, (*inside, path.resolve()))


def read_conda(path: Path) -> RequirementsFile:
    """Read an ``environment.yml`` as conda writes it: the pip part, and apart from it the packages of conda."""
    inside, pip, lines, conda = False, -1, list[str](), list[str]()
    for line in read_listed(path).splitlines():
        item = re.match(r"( *)- +(.+?)\s*(?: #.*)?$", line)
        if item and inside:
            depth, entry = len(item[1]), item[2].strip("'\"")
            pip = depth if entry == "pip:" else pip if depth > pip else -1
            if entry != "pip:":
                (conda if pip < 0 else lines).append(entry)
        elif re.match(r"[\w-]+:", line):
            inside, pip = line.startswith("dependencies:"), -1
    return _parse_lines(lines, path, ()) | RequirementsFile(conda=tuple(conda))


def read_listed(path: Path, folder: Path | None = None) -> str:
    """Read a file that says what is wanted; raise UsageError where it cannot be, or a link leads out of ``folder``."""
    try:
        return read_document(path, folder)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise UsageError("requirements-unreadable", f"{path} cannot be read: {reason}") from None


def _parse_lines(lines: Iterable[str], path: Path, files: tuple[Path, ...]) -> RequirementsFile:
    """Read the lines of the file at ``path``; ``files`` are those that led to it, itself among them."""
    contents = RequirementsFile()
    for line in (line.partition(" #")[0].strip() for line in lines):
        if further := re.fullmatch(r"(?:-r|--requirement)[\s=]*(.+)", line):
            contents |= read_requirements(path.parent / further[1], files)
        elif further := re.fullmatch(r"(?:-c|--constraint)[\s=]*(.+)", line):
            constraining = read_requirements(path.parent / further[1], files)
            contents |= constraining._replace(
                requirements=(), constraints=constraining.requirements + constraining.constraints
            )
        elif line and not line.startswith("#"):
            place = re.sub(r"^(?:-e|--editable)[\s=]+", "", line)
            plain, *options = re.split(r"(?:^|\s+)(--?[a-z][\w-]*)", place)
            wanted = (plain if place == line else f"-e {plain}",) if plain else ()
            contents |= RequirementsFile(wanted, (), tuple(options[::2]))
    return contents
