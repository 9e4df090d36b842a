"""Read requirements files and the files that they include.

Existing parsers of these files ignore source options, which gpuinstall must obey.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from itertools import chain
from pathlib import Path

from gpuinstall.base.advice import Advice, Hint
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import (
    check_count,
    check_outside,
    find_link_hints,
    find_link_outside,
    hide_linked_text,
    is_inside,
    read_document,
    real_path,
)
from gpuinstall.base.request import FOLDER_REQUEST, Request
from gpuinstall.base.requirement import (
    Constraint,
    Requirement,
    TextOrigin,
    find_path,
    is_git_url,
    is_http_url,
    normalize_name,
    parse_requirement,
    remove_duplicates,
)
from gpuinstall.base.text import join_names, redact, remove_logins, shorten
from gpuinstall.base.values import Value, astuple, replace
from gpuinstall.sources.provenance import (
    BY_ADDRESS,
    Effect,
    SourceSetting,
    create_setting,
)
from gpuinstall.sources.uv_settings import KeyList, UvSetting, find_list

PROJECT = "pyproject.toml"
_SHORT = {"-i": "--index-url", "-f": "--find-links", "-C": "--config-settings"}
ADDRESS_KEYS = {
    "index-url": Effect.INDEX,
    "extra-index-url": Effect.EXTRA_INDEX,
    "find-links": Effect.FIND_LINKS,
}
"""The settings of pip and uv with URLs and paths."""

PACKAGE_LISTS = {"only-binary": "no-build", "no-binary": "no-binary"}
"""The settings of pip with a list of packages, and uv's settings for them."""

_FLAGS = frozenset(
    {
        "--no-index",
        "--require-hashes",
        "--pre",
        "--prefer-binary",
        "--no-build-isolation",
    }
)
"""The pip options that have no value."""
_LINE = r"""(?s)\A((?:-e|--editable)[\s=]+(?:(["'])([^"']+)\2(?!\S))?)?(.*?)((?:(?<!\S)--?[A-Za-z].*)?)\Z"""
"""A requirement or a quoted folder, followed by pip's options."""
_INCLUSION = r"(?:-r|--requirement|(?P<limits>-c|--constraint))[\s=]*(?P<file>.+)"
FETCH = ContextVar[Callable[[str, Path], str] | None]("FETCH", default=None)
"""Returns the text of an included URL if its source is permitted."""
_NO_VARIABLES = "Write the value: variables are not expanded in this file"
_COMMENT = r"(?:^|\s)#.*"


class CondaRequest(Value):
    """Settings of a conda environment file, and packages without a wheel."""

    request: Request = FOLDER_REQUEST
    """The requested Python and backend."""

    without_wheel: tuple[tuple[str, str], ...] = ()
    """Conda packages whose names may belong to other projects on the index.

    Each item is a name and a specification in conda's syntax, without a channel.
    """

    def note(self, requested: Collection[str]) -> str:
        """Return a note about conda packages that are not installed.

        Args:
            requested: The names of packages that other files request.
        """
        missing = {
            name: package
            for name, package in self.without_wheel
            if normalize_name(name) not in requested
        }
        if not missing:
            return ""
        packages = missing.values()
        return (
            f"not installed, because the index may have different projects with these names: {join_names([*packages])}; "
            f"to install them from conda: {Advice('conda', ('install', *packages))}; "
            "packages of the index belong to the pip section"
        )


class RequirementsFile(Value):
    """Contents of a requirements file.

    Paths are relative to the working folder.

    ``from_lines`` adds each direct reference to the settings.
    """

    requirements: tuple[Requirement, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    settings: tuple[SourceSetting | UvSetting, ...] = ()
    """The settings that select package sources or files."""

    conda: tuple[CondaRequest, ...] = ()
    """The Python, backend, and other packages in each conda file."""

    @classmethod
    def from_lines(
        cls,
        lines: Iterable[Requirement],
        settings: Iterable[SourceSetting | UvSetting] = (),
    ) -> RequirementsFile:
        """Create the contents from requirements and settings.

        Args:
            lines: The requirements and constraints.
            settings: The settings, except direct references.
        """
        lines = tuple(lines)
        return cls(
            tuple(one for one in lines if not isinstance(one, Constraint)),
            tuple(one for one in lines if isinstance(one, Constraint)),
            (*create_reference_settings(lines), *settings),
        )

    @property
    def sources(self) -> Iterator[SourceSetting]:
        """The settings that select sources."""
        return (one for one in self.settings if isinstance(one, SourceSetting))

    @property
    def lines(self) -> tuple[Requirement, ...]:
        """All requirements, then all constraints, without duplicates."""
        return remove_duplicates((*self.requirements, *self.constraints))

    def as_constraints(self) -> RequirementsFile:
        """Return all requirements of the file as constraints."""
        limits = [one.constraint for one in self.requirements]
        return replace(self, requirements=(), constraints=(*limits, *self.constraints))

    def __or__(self, other: RequirementsFile) -> RequirementsFile:
        """Return the combined contents of two files."""
        return join_files((self, other))


def create_reference_settings(lines: Iterable[Requirement]) -> Iterator[SourceSetting]:
    """Convert direct references to settings, with their logins."""
    for requirement in lines:
        if requirement.url:
            setting = create_setting(
                Effect.LOCATED,
                BY_ADDRESS,
                requirement.url,
                Path(requirement.origin.file),
                line=requirement.origin.line,
                package=requirement.name,
            )
            yield replace(setting, login=requirement.login)


def join_files(files: Iterable[RequirementsFile]) -> RequirementsFile:
    """Return the combined contents of several requirements files."""
    fields = zip(*map(astuple, files), strict=True)
    return RequirementsFile(*(tuple(chain.from_iterable(field)) for field in fields))


class Part(Value):
    """An extra or a dependency group of a project."""

    kind: str
    """``extra`` or ``group``."""

    name: str
    """The normalized name of the extra or group."""

    @property
    def path(self) -> str:
        """The name that a lock records, such as ``pyproject.toml[gpu]``."""
        if self.kind == "extra":
            return f"{PROJECT}[{self.name}]"
        return f"{PROJECT}:{self.name}"

    def __str__(self) -> str:
        return f"--{self.kind} {self.name}"


def group_path(group: str) -> str:
    """Return the file and name of a dependency group."""
    return group if ":" in group else f"{PROJECT}:{group}"


def extra_path(extra: str) -> str:
    """Return the file and name of an extra of ``pyproject.toml``."""
    return f"{PROJECT}[{normalize_name(extra)}]"


def split_part(name: str) -> tuple[str, Part | None]:
    """Split an argument into a file and its extra or group.

    Args:
        name: ``pyproject.toml:dev``, ``pyproject.toml[gpu]``, or any other file.
    """
    form = r"((?:.*[/\\])?pyproject\.toml)(?::(.+)|\[(.+)\])"
    match = re.fullmatch(form, name)
    if match is None:
        return name, None
    file, group, extra = match.groups()
    kind = "extra" if extra else "group"
    return file, Part(kind, normalize_name(extra or group))


def requirements_path(name: str) -> Path:
    """Convert the argument of ``-r`` or ``-c`` to a path.

    Raises:
        UsageError: The name is another URL than a ``file:`` URL.
    """
    path = find_path(name)
    if path is not None:
        return Path(path)
    message = f"{redact(name)} is neither a path nor an HTTP URL"
    raise UsageError("requirements-unreadable", message)


def parse_requirements(text: str, path: Path) -> RequirementsFile:
    """Parse the text of a requirements file at ``path``.

    Raises:
        UsageError: The text is malformed.
    """
    return parse_lines(_number_lines(text), path)


def parse_lines(lines: Iterable[tuple[int, str]], path: Path) -> RequirementsFile:
    """Parse numbered lines of a requirements file at ``path``.

    Raises:
        UsageError: A line is malformed.
    """
    return _Reader(path).parse(lines, path)


def read_requirements(path: Path, folder: Path | None) -> RequirementsFile:
    """Read a requirements file with the files that it includes.

    Args:
        path: The file.
        folder: The folder that selects the file; see ``read_document``.

    Raises:
        UsageError: A file cannot be read or is malformed.
    """
    try:
        return _Reader(path).read(path, folder)
    except RecursionError:
        message = f"{path} has hundreds of nested includes"
        raise UsageError("requirements-malformed", message) from None


@contextmanager
def convert_content_errors(
    subject: Path | str,
    code: str = "requirements-malformed",
    hint: Hint | None = None,
) -> Iterator[None]:
    """Convert errors about a file's content in a block to UsageError.

    Args:
        subject: The file, or the start of the message.
        code: The code of the error.
        hint: The hint of the error.
    """
    try:
        with hide_linked_text(subject) if isinstance(subject, Path) else nullcontext():
            yield
    except (OSError, ValueError, RecursionError, UsageError) as error:
        hints: tuple[Hint, ...] = (hint,) if hint else ()
        text = str(getattr(error, "strerror", None) or error)
        if isinstance(error, UsageError):
            # Only errors about a requirement lack the file and line.
            if not error.code.startswith("requirement-"):
                raise
            text = error.message
            hints = hints or error.fixes
        reason = " ".join(text.split())
        message = f"{subject} is malformed" if isinstance(subject, Path) else subject
        raise UsageError(code, f"{message}: {reason}", hint=hints) from None


def read_requirements_text(path: Path, folder: Path | None) -> str:
    """Read the text of a requirements file; see ``read_document``.

    Raises:
        UsageError: The file cannot be read.
    """
    try:
        return read_document(path, folder)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", "it is not a text file")
        hint: tuple[Hint, ...] = find_link_hints(error)
        if "${" in str(path):
            hint = (_NO_VARIABLES,)
        elif not hint and isinstance(error, FileNotFoundError):
            hint = ("Check the path",)
        message = f"{path} cannot be read: {reason}"
        raise UsageError("requirements-unreadable", message, hint=hint) from None


def _number_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield numbered lines. A backslash joins a line with the next line."""
    # A backslash in a comment does not join lines.
    text = "\n".join(map(strip_comment, text.splitlines()))
    number = 1
    for lines in re.split(r"(?<!\\)\n", text):
        yield number, re.sub(r"\\(\n|\Z)", " ", lines)
        number += lines.count("\n") + 1


def strip_comment(line: str) -> str:
    """Return a line of a requirements file without its comment."""
    return re.sub(_COMMENT, "", line, count=1)


class _Reader:
    """Reader of a requirements file and its includes, each read once."""

    def __init__(self, first: Path) -> None:
        self.folder = real_path(first).parent
        self.seen: set[tuple[Path, bool]] = set()
        self.count = 0
        """The number of lines in all files."""

    def read(
        self,
        path: Path,
        folder: Path | None,
        line: str = "",
        *,
        constrains: bool = False,
    ) -> RequirementsFile:
        """Read a requirements file and the files that it includes.

        Args:
            path: The path.
            folder: The folder that selects the file; see ``read_document``.
            line: The file and line that includes it, for messages.
            constrains: Whether the file is included with ``-c``.
        """
        place = real_path(path)
        if (place, constrains) in self.seen:
            return RequirementsFile()
        self.seen.add((place, constrains))
        try:
            text = read_requirements_text(path, folder)
        except UsageError as error:
            error.message = f"{line}: {error.message}" if line else error.message
            raise
        with hide_linked_text(path):
            return self.parse(_number_lines(text), path, constrains=constrains)

    def parse(
        self,
        lines: Iterable[tuple[int, str]],
        path: Path,
        *,
        constrains: bool = False,
    ) -> RequirementsFile:
        """Parse the lines of a file, and read the files that it includes.

        Args:
            lines: The numbered lines, without comments.
            path: The file.
            constrains: Whether the file is included with ``-c``, which also applies to
                the files that it includes.
        """
        parts = []
        stripped = [(number, line.strip()) for number, line in lines]
        written = [(number, line) for number, line in stripped if line]
        self.count += len(written)
        with convert_content_errors(path):
            check_count(self.count, "lines", "it")
        for number, line in written:
            inclusion = re.fullmatch(_INCLUSION, line)
            if inclusion:
                limits = constrains or inclusion["limits"] is not None
                place = f"{path}, line {number}"
                parts.append(
                    self._include(inclusion["file"], path, place, constrains=limits)
                )
            else:
                parts.append(_parse_line(line, number, path))
        file = join_files(parts)
        return file.as_constraints() if constrains else file

    def _include(
        self,
        name: str,
        path: Path,
        line: str,
        *,
        constrains: bool,
    ) -> RequirementsFile:
        """Read a file that another requirements file includes.

        A file outside the folder must have the same owner. Otherwise, a requirements file
        of another user could make an error message print the user's secrets.

        Args:
            name: The name in the line.
            path: The file with the line.
            line: The file and line, for messages.
            constrains: Whether the included requirements are constraints.
        """
        if re.search(r"['\"]|\\ ", name):
            import shlex

            with convert_content_errors(f"{line}: -r {name}"):
                name = " ".join(shlex.split(name))
        if "\0" in name:
            message = f"{line}: the name of a requirements file is not valid"
            raise UsageError("requirements-unreadable", message)
        fetch = FETCH.get()
        if is_http_url(name) and fetch:
            numbered = _number_lines(fetch(name, path))
            remote = Path(remove_logins(name))
            return self.parse(numbered, remote, constrains=constrains)
        try:
            included = path.parent / requirements_path(name)
        except UsageError as error:
            error.message = f"{line}: {error.message}"
            raise
        if is_inside(included, self.folder) or find_link_outside(included, self.folder):
            return self.read(included, self.folder, line, constrains=constrains)
        check_outside(included, path, line)
        malformed = f"{line} includes {included}, which is not a requirements file"
        try:
            file = self.read(included, None, line, constrains=constrains)
        except UsageError as error:
            raise UsageError(error.code, malformed) from None
        if is_inside(included, Path.cwd()):
            return file
        inclusion = create_setting(Effect.FILE, "-r", str(real_path(included)), path)
        return RequirementsFile(settings=(inclusion,)) | file


def _parse_line(
    line: str,
    number: int,
    path: Path,
) -> RequirementsFile:
    """Parse a line of a requirements file: a requirement, options, or both.

    Args:
        line: The line, without a comment.
        number: The line number.
        path: The file.
    """
    [(editable, _, quoted, rest, options)] = re.findall(_LINE, line)
    text = quoted + rest.rstrip()
    requirements: tuple[Requirement, ...] = ()
    package = ""
    if text:
        # uv does not support an editable git repository, so install a regular package.
        if editable and not is_git_url(text):
            text = f"-e {text}"
        try:
            requirement = parse_requirement(text, TextOrigin(str(path), line=number))
        except UsageError as error:
            message = f"{path}, line {number}: {error.message}"
            hint = (_NO_VARIABLES,) if "${" in text else error.fixes
            raise UsageError(error.code, message, hint=hint) from None
        package = requirement.name
        requirements = (requirement,)
    with convert_content_errors(f"{path}, line {number}"):
        settings = _read_options(options, path, number=number, package=package)
        return RequirementsFile.from_lines(requirements, settings)


def _read_options(
    text: str,
    path: Path,
    *,
    number: int,
    package: str,
) -> Iterator[SourceSetting | UvSetting]:
    """Yield the pip options in a line of a requirements file.

    Args:
        text: The options.
        path: The file.
        number: The line number.
        package: The package before the options. Empty: a line of options.

    Raises:
        ValueError: The options are malformed.
    """
    import shlex

    try:
        words = deque(shlex.split(text))
    except ValueError as error:
        raise ValueError(f"{error}: {shorten(text)}") from None
    while words:
        word = words.popleft()
        # pip's parser accepts "--hash=…", "--hash …", "-i…", and "-i …".
        option, equals, value = word.partition("=")
        if word[:2] in _SHORT:
            option = _SHORT[word[:2]]
            equals = word[2:]
            value = equals.removeprefix("=")
        if not re.match(r"--?\w", option):
            raise ValueError(f"{shorten(word)} is neither a requirement nor an option")
        if words and not equals and option not in _FLAGS:
            value = words.popleft()
        if option == "--find-links" and "${" in value:
            raise ValueError(f"{option}: variables are not expanded in this file")
        if option == "--hash" and not package:
            raise ValueError("--hash must follow a requirement")
        settings = [
            *convert_pip_option(option, value, path, line=number, package=package)
        ]
        silent = {"--only-binary", "--no-binary"}
        if not settings and option not in silent:
            raise ValueError(f"{option} is not an option of a requirements file")
        yield from settings


def convert_pip_option(
    option: str,
    value: str,
    file: Path,
    folder: Path | None = None,
    *,
    line: int | None = None,
    package: str = "",
) -> Iterator[SourceSetting | UvSetting]:
    """Convert an option of pip to a source or to a setting of uv.

    Args:
        option: The option. Nothing is yielded for an option that is not read.
        value: The value.
        file: The file, or the name of a variable.
        folder: The folder to which a path is relative. None: the folder of the file.
        line: The line number, if known.
        package: The package to which the option applies. Empty: all packages.
    """
    name = option.removeprefix("--")
    effect = Effect.HASH if option == "--hash" else ADDRESS_KEYS.get(name)
    if effect:
        yield create_setting(
            effect, option, value, file, folder, line=line, package=package
        )
    elif name in PACKAGE_LISTS:
        yield from create_list_settings(PACKAGE_LISTS[name], value, file, line=line)
    elif option == "--pre":
        yield UvSetting("prerelease", "allow", file, line)
    elif option == "--uploaded-prior-to":
        yield UvSetting("exclude-newer", value, file, line)
    elif option in {"--no-index", "--require-hashes"}:
        yield UvSetting(name, True, file, line)
    elif find_list(option) is KeyList.NEVER_PASSED:
        yield UvSetting(option, value, file, line)


def create_list_settings(
    key: str, names: str | Collection[str], file: Path, *, line: int | None = None
) -> Iterator[UvSetting]:
    """Yield uv's settings for the names of packages, ``:all:``, or ``:none:``.

    Args:
        key: ``no-build`` or ``no-binary``.
        names: The packages.
        file: The file, or the name of a variable.
        line: The line number, if known.
    """
    listed = re.split(r"[\s,]+", names) if isinstance(names, str) else names
    packages = [name for name in listed if name and not name.startswith(":")]
    if ":all:" in listed:
        yield UvSetting(key, True, file, line)
    elif packages:
        yield UvSetting(f"{key}-package", packages, file, line)
