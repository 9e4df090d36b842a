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

from gpuinstall.errors import UsageError
from gpuinstall.files import check_outside, read_document
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.provenance import SourceSetting, is_known, source_setting

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
_PIP_PART = re.compile(r"(['\"]?)pip\1\s*:")
_COMMENT = re.compile(r"(?:^|\s)#.*")


class Inclusion(NamedTuple):
    """A file outside the folder that another one includes."""

    file: Path
    included_by: Path


class RequirementsFile(NamedTuple):
    """What a file asks for, and what it allows of what turns up; paths in it start from the working folder.

    ``settings`` say where packages may come from and which files they are; ``conda`` is what conda brings, as conda
    writes it; ``included`` are the files outside the folder that were read with it.
    """

    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    settings: tuple[SourceSetting, ...] = ()
    conda: tuple[str, ...] = ()
    included: tuple[Inclusion, ...] = ()

    def __or__(self, other: RequirementsFile) -> RequirementsFile:
        """Both together."""
        return joined_files((self, other))


def joined_files(files: Iterable[RequirementsFile]) -> RequirementsFile:
    """Return what several files ask for together."""
    each = tuple(files)
    return RequirementsFile(
        requirements=tuple(chain.from_iterable(file.requirements for file in each)),
        constraints=tuple(chain.from_iterable(file.constraints for file in each)),
        settings=tuple(chain.from_iterable(file.settings for file in each)),
        conda=tuple(chain.from_iterable(file.conda for file in each)),
        included=tuple(chain.from_iterable(file.included for file in each)),
    )


def group_path(group: str) -> str:
    """Write ``dev`` and ``folder/pyproject.toml:dev``, as pip and uv take a group, with its file."""
    return group if ":" in group else f"{PROJECT}:{group}"


def split_group(name: str) -> tuple[str, str]:
    """The file and the group of ``folder/pyproject.toml:dev``; the group is empty for any other file."""
    match = re.fullmatch(rf"((?:.*[/\\\\])?{re.escape(PROJECT)}):(.+)", name)
    return (match[1], match[2]) if match else (name, "")


def read_requirements(path: Path) -> RequirementsFile:
    """Read a requirements file: requirements, comments, pip's options, ``-r`` and ``-c`` of other files.

    Raise UsageError for a file that cannot be read, includes itself, or is longer than anybody would write.
    """
    return _Reader(path).read(path)


def read_conda(path: Path) -> RequirementsFile:
    """Read an ``environment.yml`` as conda writes it: the pip part, and apart from it the packages of conda.

    Raise UsageError for dependencies in another form of YAML, which would be passed over.
    """
    inside, pip, lines, conda = False, -1, list[tuple[int, str]](), list[str]()
    for number, line in _lines(path):
        item = re.match(r"( *)- +(.+)", line.rstrip())
        if item and inside:
            depth, entry = len(item[1]), item[2].strip("'\"")
            is_pip = _PIP_PART.fullmatch(item[2]) is not None
            pip = depth if is_pip else pip if depth > pip else -1
            if not is_pip and (entry[0] in "{[&*" or re.match(r"[\w-]+['\"]?\s*:(\s|$)", entry)):
                raise _not_on_lines(path, number)
            if not is_pip and pip < 0:
                conda.append(entry)
            elif not is_pip:
                lines.append((number, entry))
        elif key := re.match(r"['\"]?([\w-]+)['\"]?\s*:", line):
            inside, pip = key[1] == "dependencies", -1
            if inside and line[key.end() :].strip() not in {"", "[]"}:
                raise _not_on_lines(path, number)
    return _Reader(path).parse(lines, path, (path.resolve(),)) | RequirementsFile(
        conda=tuple(conda)
    )


def _not_on_lines(path: Path, number: int) -> UsageError:
    message = f"{path}, line {number}: dependencies are read only as a list with a line for each"
    return UsageError(
        "requirements-malformed", message, hint="conda env export   # writes them like that"
    )


def check_count(requirements: int, source: Path | str) -> None:
    """Raise UsageError if ``source`` has more requirements than anybody would write."""
    if requirements > MAX_REQUIREMENTS:
        raise _too_much(f"{source} has more than {MAX_REQUIREMENTS:,} requirements")


def read_listed(path: Path, folder: Path | None = None) -> str:
    """Read a file that says what is wanted; raise UsageError where it cannot be, or a link leads out of ``folder``."""
    try:
        return read_document(path, folder)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a text file"
        raise UsageError("requirements-unreadable", f"{path} cannot be read: {reason}") from None


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file with their numbers, those that end in a backslash joined with the next."""
    first, parts, length = 1, list[str](), 0
    for number, line in enumerate(read_listed(path).splitlines(), 1):
        first = first if parts else number
        # A comment ends with its line, also if that ends in a backslash: the next one counts.
        text = _COMMENT.sub("", line, count=1)
        parts.append(text.removesuffix("\\"))
        length += len(line)
        if length > MAX_LINE:
            raise _too_much(f"{path} has a line of more than {MAX_LINE:,} characters")
        if not text.endswith("\\"):
            yield first, " ".join(parts)
            parts, length = [], 0
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
            raise UsageError(
                "requirements-unreadable", "the name of a requirements file is not valid"
            )
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
        parts = list[RequirementsFile]()
        for number, written in lines:
            line = written.strip()
            if further := re.fullmatch(r"(?:-r|--requirement)[\s=]*(.+)", line):
                parts.append(self._include(further[1], path, including, constrains=constrains))
            elif further := re.fullmatch(r"(?:-c|--constraint)[\s=]*(.+)", line):
                limits = self._include(further[1], path, including, constrains=True)
                constraints = limits.requirements + limits.constraints
                parts.append(limits._replace(requirements=(), constraints=constraints))
            elif line:
                parts.append(self._parse_line(line, number, path, including))
            check_count(self.requirements, self.first)
        return joined_files(parts)

    def _parse_line(
        self, line: str, number: int, path: Path, including: tuple[Path, ...]
    ) -> RequirementsFile:
        """Parse a line of a requirement, of options, or both."""
        is_shown = not _is_outside(path, including)
        place = re.sub(r"^(?:-e|--editable)[\s=]+", "", line)
        quoted = (
            re.match(r"""(?P<mark>["'])(?P<path>[^"']+)(?P=mark)(?=\s|$)""", place)
            if place != line
            else None
        )
        # One blank before an option: to skip all of them would be tried anew at each of 90,000.
        option = re.compile(r"(?:^|\s)--?[A-Za-z]").search(place, quoted.end() if quoted else 0)
        plain = place[: option.start()].rstrip() if option else place
        options = place[option.start() :] if option else ""
        if quoted:
            plain = quoted["path"] + plain[quoted.end() :]
        requirements, package = tuple[str, ...](), ""
        if plain:
            text = plain if place == line else f"-e {plain}"
            package = _check_requirement(text, f"{path}, line {number}", is_shown=is_shown)
            requirements = (text,)
            self.requirements += 1
        return RequirementsFile(
            requirements, settings=tuple(_read_options(options, path, number, package, is_shown))
        )

    def _include(
        self, name: str, path: Path, including: tuple[Path, ...], *, constrains: bool
    ) -> RequirementsFile:
        """Read a file that ``path`` includes; one outside the folder has to belong to the same user.

        A stranger's file could otherwise have the secrets of this user read, and shown in an error.
        """
        included = path.parent / name
        if "\0" in name or not _is_outside(included, including):
            return self.read(included, including, constrains=constrains)
        check_outside(included, path)
        inclusion = Inclusion(included.resolve(), path)
        return RequirementsFile(included=(inclusion,)) | self.read(
            included, including, constrains=constrains
        )


def _is_outside(path: Path, including: tuple[Path, ...]) -> bool:
    """Whether a file lies outside the folder of the first one; a link lies where it leads."""
    return not path.resolve().is_relative_to(including[0].parent)


def _read_options(
    text: str, path: Path, number: int, package: str, is_shown: bool
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
        if word[:2] in _SHORT and word[2:]:
            option, equals, value = word[:2], "=", word[2:].removeprefix("=")
        option = _SHORT.get(option, option)
        if not (option.startswith("-") and (is_shown or is_known("pip", option))):
            raise UsageError(
                "requirements-malformed",
                f"{path}, line {number} is neither a requirement nor an option",
            )
        if not equals and option not in _FLAGS and words:
            value = words.popleft()
        if option == "--find-links" and "://" not in value:
            value = os.path.normpath(path.absolute().parent / value)
        if option == "--hash" and not package:
            message = f"{path}, line {number}: --hash belongs to no requirement"
            raise UsageError("requirements-malformed", message)
        yield source_setting("pip", option, value, path, line=number, package=package)


def _check_requirement(text: str, place: str, *, is_shown: bool) -> str:
    """Return the name in a requirement; raise UsageError if it is none, and repeat it only if it ``is_shown``."""
    try:
        return parse_requirement(text).name
    except UsageError as error:
        if is_shown:
            raise UsageError(error.code, f"{place}: {error.message}", hint=error.hint) from None
        raise UsageError("requirement-malformed", f"{place} is not a requirement") from None


def _too_much(message: str) -> UsageError:
    return UsageError("requirements-too-long", message)
