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
MAX_REQUIREMENTS = 10_000
"""The requirements of a file with all that it includes; airflow's constraints have 800 lines."""
MAX_FILES = 1_000
MAX_DEPTH = 100
MAX_LINE = 100_000
"""The characters of a line; one with 200 hashes has 17,000."""
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


def read_requirements(path: Path) -> RequirementsFile:
    """Read a requirements file: one requirement a line, comments, ``-e``, ``-r`` and ``-c`` of other files; no more.

    Raise UsageError for a file that cannot be read, includes itself, or is longer than anybody would write.
    """
    return _Reader(path).read(path)


def read_conda(path: Path) -> RequirementsFile:
    """Read an ``environment.yml`` as conda writes it: the pip part, and apart from it the packages of conda."""
    inside, pip, lines, conda = False, -1, list[str](), list[str]()
    for line in _lines(path):
        item = re.match(r"( *)- +(.+)", line.partition(" #")[0].rstrip())
        if item and inside:
            depth, entry = len(item[1]), item[2].strip("'\"")
            pip = depth if entry == "pip:" else pip if depth > pip else -1
            if entry != "pip:":
                (conda if pip < 0 else lines).append(entry)
        elif re.match(r"[\w-]+:", line):
            inside, pip = line.startswith("dependencies:"), -1
    return _Reader(path).parse(lines, path) | RequirementsFile(conda=tuple(conda))


def read_listed(path: Path, folder: Path | None = None) -> str:
    """Read a file that says what is wanted; raise UsageError where it cannot be, or a link leads out of ``folder``."""
    try:
        return read_document(path, folder)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise UsageError("requirements-unreadable", f"{path} cannot be read: {reason}") from None


def _lines(path: Path) -> list[str]:
    """Return the lines of a file, those that end in a backslash joined with the next."""
    lines = read_listed(path).replace("\\\n", " ").splitlines()
    if any(len(line) > MAX_LINE for line in lines):
        raise _too_much(f"{path} has a line of more than {MAX_LINE:,} characters")
    return lines


class _Reader:
    """Reads one file with all that it includes, each once: included again, a file requires nothing new."""

    def __init__(self, first: Path) -> None:
        self.first = first
        self.seen: set[tuple[Path, bool]] = set()
        self.requirements = 0

    def read(self, path: Path, chain: tuple[Path, ...] = (), *, constrains: bool = False) -> RequirementsFile:
        """Read a file.

        Args:
            path: The file.
            chain: The files through which it is included, the first one first.
            constrains: Whether it is included by ``-c``.
        """
        if "\0" in str(path):
            raise UsageError("requirements-unreadable", "the name of a requirements file is not valid")
        place = path.resolve()
        if place in chain:
            raise UsageError("requirements-circular", f"{path} includes itself")
        if (place, constrains) in self.seen:
            return RequirementsFile()
        self.seen.add((place, constrains))
        if len(chain) >= MAX_DEPTH:
            raise _too_much(f"{path} is included through more than {MAX_DEPTH} files")
        if len(self.seen) > MAX_FILES:
            raise _too_much(f"{self.first} includes more than {MAX_FILES:,} files")
        return self.parse(_lines(path), path, (*chain, place), constrains=constrains)

    def parse(
        self,
        lines: Iterable[str],
        path: Path,
        chain: tuple[Path, ...] = (),
        *,
        constrains: bool = False,
    ) -> RequirementsFile:
        """Parse the lines of the file at ``path``; ``chain`` ends with itself."""
        requirements, constraints, options = list[str](), list[str](), list[str]()
        for line in (line.partition(" #")[0].strip() for line in lines):
            if further := re.fullmatch(r"(?:-r|--requirement)[\s=]*(.+)", line):
                included = self.read(path.parent / further[1], chain, constrains=constrains)
                requirements += included.requirements
                constraints += included.constraints
                options += included.options
            elif further := re.fullmatch(r"(?:-c|--constraint)[\s=]*(.+)", line):
                included = self.read(path.parent / further[1], chain, constrains=True)
                constraints += (*included.requirements, *included.constraints)
                options += included.options
            elif line and not line.startswith("#"):
                place = re.sub(r"^(?:-e|--editable)[\s=]+", "", line)
                # One blank before an option: to skip all of them would be tried anew at each of 90,000.
                plain, *found = re.split(r"(?:^|\s)(--?[a-z][\w-]*)", place)
                plain = plain.rstrip()
                options += found[::2]
                if plain:
                    requirements.append(plain if place == line else f"-e {plain}")
                    self.requirements += 1
            if self.requirements > MAX_REQUIREMENTS:
                raise _too_much(f"{self.first} lists more than {MAX_REQUIREMENTS:,} requirements")
        return RequirementsFile(tuple(requirements), tuple(constraints), tuple(options))


def _too_much(message: str) -> UsageError:
    return UsageError("requirements-too-long", message)
