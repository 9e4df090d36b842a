"""Files as far as they say what is wanted: requirements, constraints, further files; conda's pip part.

Libraries that read such files pass over the options that say where packages come from, which have to be obeyed.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import deque
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import check_outside, read_document
from gpuinstall.base.regex import regex
from gpuinstall.base.requirement import parse_requirement
from gpuinstall.sources.provenance import SourceSetting, is_known, source_setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

PROJECT = "pyproject.toml"
MAX_REQUIREMENTS = 10_000
"""The requirements of a file with all that it includes; airflow's constraints have 800 lines."""
MAX_FILES = 1_000
MAX_DEPTH = 100
MAX_LINE = 100_000
"""The characters of a line; one with 200 hashes has 17,000."""
_SHORT = {"-i": "--index-url", "-f": "--find-links", "-C": "--config-settings"}
_FLAGS = frozenset(
    {"--no-index", "--require-hashes", "--pre", "--prefer-binary", "--no-build-isolation"}
)
"""The options that take no value."""
_PIP_PART = regex(r"(['\"]?)pip\1\s*:")
_OTHER_YAML = regex(r"[{\[&*]|[\w-]+['\"]?\s*:(\s|$)")
_QUOTED = regex(r"""(?P<mark>["'])(?P<path>[^"']+)(?P=mark)(?=\s|$)""")
_COMMENT = regex(r"(?:^|\s)#.*")


class Inclusion(NamedTuple):
    """A file outside the folder that another one includes."""

    file: Path
    included_by: Path


class RequirementsFile(NamedTuple):
    """What a file asks for, and what it allows of what turns up; paths in it start from the working folder."""

    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    settings: tuple[SourceSetting, ...] = ()
    """Where packages may come from and which files they are."""

    conda: tuple[str, ...] = ()
    """What conda brings, as conda writes it."""

    included: tuple[Inclusion, ...] = ()
    """The files outside the folder that were read with it."""

    def __or__(self, other: RequirementsFile) -> RequirementsFile:
        """Return both together."""
        return joined_files((self, other))


def joined_files(files: Iterable[RequirementsFile]) -> RequirementsFile:
    """Return what several files ask for together."""
    fields = zip(*files, strict=True)
    return RequirementsFile(*(tuple(chain.from_iterable(field)) for field in fields))


def group_path(group: str) -> str:
    """Return ``dev`` or ``folder/pyproject.toml:dev``, as pip and uv take a group, with its file."""
    return group if ":" in group else f"{PROJECT}:{group}"


def split_group(name: str) -> tuple[str, str]:
    """Return the file and the group of ``folder/pyproject.toml:dev``; the group is empty for any other file."""
    match = re.fullmatch(r"((?:.*[/\\])?pyproject\.toml):(.+)", name)
    if match is None:
        return name, ""
    return match[1], match[2]


def read_requirements(path: Path) -> RequirementsFile:
    """Read a requirements file: requirements, comments, pip's options, ``-r`` and ``-c`` of other files.

    Raises:
        UsageError: It cannot be read, includes itself, or is longer than anybody would write.
    """
    return _Reader(path).read(path)


def read_conda(path: Path) -> RequirementsFile:
    """Read an ``environment.yml`` as conda writes it: the pip part, and apart from it the packages of conda.

    Raises:
        UsageError: Dependencies are in another form of YAML, and would be passed over.
    """
    conda = []
    lines = []
    inside = False
    # How far the pip part is indented; None outside of it.
    pip_depth: int | None = None
    for number, line in _lines(path):
        item = re.match(r"( *)- +(.+)", line.rstrip())
        key = re.match(r"['\"]?([\w-]+)['\"]?\s*:", line)
        if item and inside:
            depth = len(item[1])
            entry = item[2].strip("'\"")
            if _PIP_PART.fullmatch(item[2]):
                pip_depth = depth
                continue
            if pip_depth is not None and depth <= pip_depth:
                pip_depth = None
            if _OTHER_YAML.match(entry):
                raise _not_on_lines(path, number)
            if not entry:
                continue
            if pip_depth is None:
                conda.append(entry)
            else:
                lines.append((number, entry))
        elif key:
            inside = key[1] == "dependencies"
            pip_depth = None
            if inside and line[key.end() :].strip() not in {"", "[]"}:
                raise _not_on_lines(path, number)
    pip = _Reader(path).parse(lines, path, (path.resolve(),))
    return pip | RequirementsFile(conda=tuple(conda))


def _not_on_lines(path: Path, number: int) -> UsageError:
    return UsageError(
        "requirements-malformed",
        f"{path}, line {number}: dependencies are read only as a list with a line for each",
        hint="conda env export   # writes them like that",
    )


def check_count(requirements: int, source: Path | str) -> None:
    """Raise UsageError if ``source`` has more requirements than anybody would write."""
    if requirements > MAX_REQUIREMENTS:
        raise _too_much(f"{source} has more than {MAX_REQUIREMENTS:,} requirements")


def read_listed(path: Path, folder: Path | None = None) -> str:
    """Read a file of requirements.

    Raises:
        UsageError: It cannot be read, or a link leads out of ``folder``.
    """
    try:
        return read_document(path, folder)
    except OSError as error:
        reason = error.strerror
    except UnicodeDecodeError:
        reason = "it is not a text file"
    raise UsageError("requirements-unreadable", f"{path} cannot be read: {reason}")


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers, those that end in a backslash joined with the next."""
    first = 1
    parts: list[str] = []
    length = 0
    for number, line in enumerate(read_listed(path).splitlines(), 1):
        if not parts:
            first = number
        # A comment ends with its line, also if that ends in a backslash: the next one counts.
        text = _COMMENT.sub("", line, count=1)
        parts.append(text.removesuffix("\\"))
        length += len(line)
        if length > MAX_LINE:
            raise _too_much(f"{path} has a line of more than {MAX_LINE:,} characters")
        if not text.endswith("\\"):
            yield first, " ".join(parts)
            parts = []
            length = 0
    if parts:
        yield first, " ".join(parts)


class _Reader:
    """Reads one file with all that it includes, each once: included again, a file requires nothing new."""

    def __init__(self, first: Path) -> None:
        self.first = first
        self.seen: set[tuple[Path, bool]] = set()
        self.requirements = 0

    def read(
        self, path: Path, including: tuple[Path, ...] = (), *, constrains: bool = False
    ) -> RequirementsFile:
        """Read a file.

        Args:
            path: The file.
            including: The files through which it is included, the first one first.
            constrains: Whether it is included by ``-c``.
        """
        if "\0" in str(path):
            message = "the name of a requirements file is not valid"
            raise UsageError("requirements-unreadable", message)
        place = path.resolve()
        if place in including:
            raise UsageError("requirements-circular", f"{path} includes itself")
        if (place, constrains) in self.seen:
            return RequirementsFile()
        self.seen.add((place, constrains))
        if len(including) >= MAX_DEPTH:
            raise _too_much(f"{path} is included through more than {MAX_DEPTH} files")
        if len(self.seen) > MAX_FILES:
            raise _too_much(f"{self.first} includes more than {MAX_FILES:,} files")
        return self.parse(_lines(path), path, (*including, place), constrains=constrains)

    def parse(
        self,
        lines: Iterable[tuple[int, str]],
        path: Path,
        including: tuple[Path, ...],
        *,
        constrains: bool = False,
    ) -> RequirementsFile:
        """Parse the numbered lines of the file at ``path``; ``including`` ends with itself."""
        parts = []
        for number, written in lines:
            line = written.strip()
            requirements = re.fullmatch(r"(?:-r|--requirement)[\s=]*(.+)", line)
            limits = re.fullmatch(r"(?:-c|--constraint)[\s=]*(.+)", line)
            if requirements:
                name = requirements[1]
                parts.append(self._include(name, path, including, constrains=constrains))
            elif limits:
                file = self._include(limits[1], path, including, constrains=True)
                constraints = file.requirements + file.constraints
                parts.append(file._replace(requirements=(), constraints=constraints))
            elif line:
                parts.append(self._parse_line(line, number, path, including))
            check_count(self.requirements, self.first)
        return joined_files(parts)

    def _parse_line(
        self,
        line: str,
        number: int,
        path: Path,
        including: tuple[Path, ...],
    ) -> RequirementsFile:
        """Parse a line of a requirement, of options, or both."""
        is_shown = not _is_outside(path, including)
        editable = re.match(r"(?:-e|--editable)[\s=]+", line)
        place = line[editable.end() :] if editable else line
        quoted = _QUOTED.match(place) if editable else None
        start = quoted.end() if quoted else 0
        # One blank before an option: to skip all of them would be tried anew at each of 90,000.
        option = re.compile(r"(?:^|\s)--?[A-Za-z]").search(place, start)
        end = option.start() if option else len(place)
        text = place[start:end]
        if option:
            text = text.rstrip()
        if quoted:
            text = quoted["path"] + text
        requirements: tuple[str, ...] = ()
        package = ""
        if text:
            # uv has no editable package from Git: it is installed as one that is not.
            if editable and not text.startswith("git+"):
                text = f"-e {text}"
            package = _check_requirement(text, f"{path}, line {number}", is_shown=is_shown)
            requirements = (text,)
            self.requirements += 1
        settings = _read_options(
            place[end:],
            path,
            number=number,
            package=package,
            is_shown=is_shown,
        )
        return RequirementsFile(requirements, settings=tuple(settings))

    def _include(
        self,
        name: str,
        path: Path,
        including: tuple[Path, ...],
        *,
        constrains: bool,
    ) -> RequirementsFile:
        """Read a file that ``path`` includes; one outside the folder has to belong to the same user.

        A stranger's file could otherwise have the secrets of this user read, and shown in an error.
        """
        included = path.parent / name
        if "\0" in name or not _is_outside(included, including):
            return self.read(included, including, constrains=constrains)
        check_outside(included, path)
        inclusion = Inclusion(included.resolve(), path)
        file = self.read(included, including, constrains=constrains)
        return RequirementsFile(included=(inclusion,)) | file


def _is_outside(path: Path, including: tuple[Path, ...]) -> bool:
    """Whether a file lies outside the folder of the first one; a link lies where it leads."""
    return not path.resolve().is_relative_to(including[0].parent)


def _read_options(
    text: str,
    path: Path,
    *,
    number: int,
    package: str,
    is_shown: bool,
) -> Iterator[SourceSetting]:
    """Yield pip's options of a line, those of a requirement with its package."""
    try:
        words = deque(shlex.split(text))
    except ValueError:
        message = f"{path}, line {number}: a quotation mark is not closed"
        raise UsageError("requirements-malformed", message) from None
    while words:
        word = words.popleft()
        option, equals, value = word.partition("=")
        if word[:2] in _SHORT:
            option = _SHORT[word[:2]]
            equals = word[2:]
            value = equals.removeprefix("=")
        if not option.startswith("-") or not (is_shown or is_known("pip", option)):
            message = f"{path}, line {number} is neither a requirement nor an option"
            raise UsageError("requirements-malformed", message)
        if words and not equals and option not in _FLAGS:
            value = words.popleft()
        if option == "--find-links" and "://" not in value:
            value = os.path.normpath(path.absolute().parent / value)
        if option == "--hash" and not package:
            message = f"{path}, line {number}: --hash belongs to no requirement"
            raise UsageError("requirements-malformed", message)
        yield source_setting("pip", option, value, path, line=number, package=package)


def _check_requirement(text: str, place: str, *, is_shown: bool) -> str:
    """Return the name in a requirement.

    Raises:
        UsageError: It is none; its text is repeated only if it ``is_shown``.
    """
    try:
        return parse_requirement(text).name
    except UsageError as error:
        if is_shown:
            message = f"{place}: {error.message}"
            raise UsageError(error.code, message, hint=error.hint) from None
        message = f"{place} is not a requirement"
        raise UsageError("requirement-malformed", message) from None


def _too_much(message: str) -> UsageError:
    return UsageError("requirements-too-long", message)
