"""Parse requirements, constraints, and environment markers.

A bare name is parsed without importing ``packaging``.
"""

from __future__ import annotations

import re
import sys
from functools import cached_property, lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from gpuinstall.base.advice import make_command
from gpuinstall.base.errors import UsageError
from gpuinstall.base.machine import platform_processor
from gpuinstall.base.text import shorten, split_login
from gpuinstall.base.values import Value, astuple, replace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from packaging.markers import Marker
    from packaging.requirements import Requirement as StandardRequirement
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version
    from typing_extensions import Self

RequirementT = TypeVar("RequirementT", bound="Requirement")

_SYSTEMS = {
    "linux": {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
    "macos": {
        "sys_platform": "darwin",
        "platform_system": "Darwin",
        "os_name": "posix",
    },
    "windows": {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt"},
}

_PARSING = Lock()

_LONGEST = 10_000
"""The maximum number of characters in a requirement."""
_REPOSITORIES = {
    "pytorch/pytorch": "torch",
    "pytorch/vision": "torchvision",
    "pytorch/audio": "torchaudio",
}
"""Packages whose repository has a different name."""

_LINE_BREAK = r"[\x00-\x08\x0a-\x1f\x7f\x85\u2028\u2029]"
_EXTRA_COMPARISON = r'extra (==|!=) "([^"]*)"|"([^"]*)" (==|!=) extra\b'
_EDITABLE = r"(?:-e|--editable)(?:[\s=]+)(?P<rest>.+)"
_NAME = r"(?a:[A-Za-z0-9][\w.-]*\s*(?:\[[^\]]*\]\s*)?@\s*)"
_NAMED = rf"{_NAME}(?P<rest>\S.*)"
_BLANKS = r" +(?=[^\s;\[#])(?!--?[A-Za-z])"
"""Pattern for blanks in a path, before no marker, comment, or option."""
_REST = rf"(?:[^\s;\[]|{_BLANKS})*"
_FOLDER = rf"\w(?:[\w.-]|{_BLANKS})*(?:\[[^\]]*\])?"
_RELATIVE = rf"(?:[^\s;\[@<>=!~/\\]*|\w[\w.-]*(?: +\w[\w.-]*)+)[/\\]{_REST}"
_PATH = rf"\.{{1,2}}(?:[/\\]{_REST})?|[/~]{_REST}|[A-Za-z]:[\\/]{_REST}|{_RELATIVE}"
_PATH_WITH_BLANKS = rf"(?P<name>{_NAME})(?P<path>(?![a-z+]{{2,}}:)\S+(?:{_BLANKS}\S+)+)(?P<marker>\s+;.*)?"
_PLAIN_PATH = r"(?:[A-Za-z]:)?[\w./\\][\w./\\~+-]*(?: [\w./\\][\w./\\~+-]*)*"
"""Pattern for a path that has no special meaning in a requirement."""
_SEPARATOR = "/" if sys.platform == "win32" else "\\"
_REMOTE = r"(?:git\+[a-z]+|https?|file):[^\s;\[]+"
_MARKS = r"[\\\x00-\x1f\x7f]"
"""Characters that programs may interpret as a slash or ignore."""
_SCHEME = r"(?i)[a-z][a-z0-9+.-]+:"
_WHOLE_SCHEME = r"(?i)(file:|[a-z][a-z0-9+.-]*file://|[a-z][a-z0-9+.-]+://[^/])"
_FILE = r"[^\s;\[]+\.(?:whl|tar\.gz|zip)"
_OTHER_VCS = r"(?i)(svn|hg|bzr)\+|(git\+)?git:"
"""Pattern for a repository that uv does not support."""
_UNNAMED = rf"(?P<address>{_REMOTE}|{_PATH}|{_FILE})(?P<extras>\[[^\]]*\])?(?:\s*;\s*(?P<marker>.+))?"


class TextOrigin(Value):
    """Origin of a requirement, such as a file with a key or a line."""

    file: str = ""
    key: str = ""
    """The key in the file, such as ``[project] dependencies``."""

    line: int | None = None

    @property
    def is_in_file(self) -> bool:
        """Whether the origin is a file instead of the command line."""
        return bool(self.key or self.line)

    def __str__(self) -> str:
        if self.line:
            return f"{self.file}, line {self.line}"
        return f"{self.file}: {self.key}" if self.key else self.file


NO_ORIGIN = TextOrigin()
"""The origin of a requirement that gpuinstall created."""

COMMAND_LINE = TextOrigin("the command line")

FROM_METADATA = TextOrigin("METADATA")
"""The origin of a requirement that only a package has."""

INSTALLED = TextOrigin("installed")
"""The origin of a requirement that keeps an installed version."""


class Requirement(Value):
    """Parsed requirement. Requirements with the same text are equal."""

    name: str
    """The normalized name, which may be derived from the URL."""

    extras: tuple[str, ...] = ()
    """The normalized extras, in alphabetical order."""

    clauses: str = ""
    """The version specifier as text. Empty: any version."""

    url: str | None = None
    """The URL or path of the package."""

    marker: Marker | None = None
    editable: bool = False

    login: str = ""
    """The ``user:password@`` part, which the URL's text never contains."""

    origin: TextOrigin = NO_ORIGIN
    written: str = ""
    """The requirement as the user wrote it. Empty: the canonical spelling."""
    has_name: bool = True
    """Whether the requirement contains the name, not only a URL."""

    @classmethod
    def of(cls, name: str, specifier: str = "") -> Self:
        """Create a requirement from a package name and a specifier."""
        return cls(normalize_name(name), clauses=_canonicalize_specifier(specifier))

    @cached_property
    def text(self) -> str:
        """The spelling of packaging, with normalized name and extras."""
        text = f"{self.full_name}{self.clauses}"
        if self.url:
            extras = _format_extras(self.extras)
            named = f"{self.full_name} @ {self.url}"
            text = named if self.has_name else f"{self.url}{extras}"
        if self.marker:
            text += f"{' ' if self.url else ''}; {self.marker}"
        return f"-e {text}" if self.editable else text

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(self.text)

    @property
    def specifier(self) -> SpecifierSet | None:
        """The version specifier. None: any version."""
        return parse_specifier(self.clauses) if self.clauses else None

    @property
    def line(self) -> str:
        """The requirement as a line in a lock file."""
        return self.text

    @property
    def constraint(self) -> Constraint:
        """The constraint with the same versions or URL."""
        return Constraint(*astuple(self))

    @property
    def full_name(self) -> str:
        """The name with the extras, ``jax[cuda12]``."""
        return f"{self.name}{_format_extras(self.extras)}"

    @property
    def path(self) -> str | None:
        """The local path to which the requirement refers, or None."""
        # As in uv, a fragment is no part of a path.
        return find_path((self.url or "").partition("#")[0]) or None

    @property
    def pinned(self) -> str | None:
        """The pinned version, or None if the specifier allows several."""
        for clause in self.specifier or ():
            if clause.operator == "==" and not clause.version.endswith("*"):
                return clause.version
        return None

    @property
    def is_exact(self) -> bool:
        """Whether the requirement pins one version."""
        return self.pinned is not None

    def allows(self, version: Version | str) -> bool:
        """Return whether a version satisfies the requirement."""
        return self.specifier is None or self.specifier.contains(version)

    def applies_in(
        self, environment: Mapping[str, str], extras: Iterable[str] = ()
    ) -> bool:
        """Return whether the requirement's marker holds.

        Args:
            environment: The values of ``marker_environment``.
            extras: The requested extras of the requiring package.
        """
        return marker_holds(self.marker, environment, extras)

    def at(self, origin: TextOrigin) -> Self:
        """Return a copy of the requirement with another origin."""
        return replace(self, origin=origin)

    def with_specifier(self, specifier: str) -> Self:
        """Return a copy of the requirement with another specifier."""
        clauses = _canonicalize_specifier(specifier)
        return replace(self, clauses=clauses, url=None, written="")

    def with_url(self, url: str) -> Self:
        """Return a copy with another URL or path, and the same fragment."""
        _, sign, fragment = (self.url or "").partition("#")
        return replace(self, clauses="", url=f"{url}{sign}{fragment}")

    def combine_with(self, other: Requirement) -> Requirement:
        """Combine two requirements for the same package."""
        extras = tuple(sorted({*self.extras, *other.extras}))
        clauses = _canonicalize_specifier(
            ",".join(filter(None, (self.clauses, other.clauses)))
        )
        return Requirement(self.name, extras, clauses)


class Constraint(Requirement):
    """Limit on the versions of a package that is not requested."""

    @property
    def line(self) -> str:
        """The constraint as a line in a lock file."""
        return f"-c {self.text}"


def find_path(address: str) -> str | None:
    """Return the path of a path or ``file:`` URL, or None for another URL.

    As in uv, the path of ``file:x`` is absolute, and the one of ``file:./x`` relative.
    """
    if not is_file_url(address):
        return None if is_url(address) else address
    encoded = re.sub(r"(?s)[?#].*", "", address[len("file:") :])
    path = re.sub(r"(?:%[0-9a-fA-F]{2})+", _decode, encoded)
    if re.match(r"\.\.?(/|\Z)", path):
        return path
    path = re.sub(r"\A(//[^/]*)?/?", "/", path, count=1)
    is_drive = sys.platform == "win32" and re.match(r"/[A-Za-z]:", path)
    return path[1:] if is_drive else path


def _decode(match: re.Match[str]) -> str:
    encoded = bytes.fromhex(match[0].replace("%", ""))
    return encoded.decode(errors="surrogateescape")


def quote_path(path: str) -> str:
    """Return a path as it is written in a requirement.

    A path that could be read differently is written as a ``file:`` URL, whose path can
    be relative.

    Raises:
        UsageError: The path has a line break.
    """
    check_path(path)
    if re.fullmatch(_PLAIN_PATH, path):
        return path
    encoded = re.sub(r"[^A-Za-z0-9_./~-]", _encode, path.replace("\\", _SEPARATOR))
    if re.match(r"\.{0,2}/|\.{1,2}\Z", encoded):
        return normalize_file_url(f"file:{encoded}")
    is_drive = sys.platform == "win32" and re.match(r"[A-Za-z]%3A/", encoded)
    return f"file:///{path[0]}:{encoded[4:]}" if is_drive else f"file:./{encoded}"


def _encode(match: re.Match[str]) -> str:
    encoded = match[0].encode(errors="surrogateescape")
    return "".join(f"%{byte:02X}" for byte in encoded)


def check_path(path: str) -> None:
    """Raise UsageError if a path has a line break."""
    if re.search(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]", path):
        message = f"the path {shorten(path)!r} has a line break"
        raise UsageError("requirement-malformed", message, hint="Rename it")


def is_url(address: str) -> bool:
    """Return whether an argument is a whole URL, not a path or FILE:GROUP."""
    return re.match(_WHOLE_SCHEME, address) is not None


def is_http_url(address: str | None) -> bool:
    """Return whether an address is an HTTP or HTTPS URL."""
    return re.match(r"(?i)https?://", address or "") is not None


def is_file_url(address: str) -> bool:
    """Return whether an address is a ``file:`` URL."""
    return address[:5].lower() == "file:"


def is_git_url(address: str) -> bool:
    """Return whether an address is the URL of a Git repository."""
    return address.startswith("git+")


def normalize_file_url(address: str) -> str:
    """Return a ``file:`` URL without its host, as ``file:///path``."""
    return re.sub(r"(?i)^file:(//localhost)?/(?!/)", "file:///", address)


def find_url_fault(address: str) -> str:
    """Return why uv must not receive a URL or path, or an empty string."""
    if re.search(r"\$\{\w+\}", re.sub(r"(?<=://)[^/?#\s]*@", "", address)):
        return "uv would expand its variable (write the value, and put credentials into a netrc file)"
    return find_syntax_fault(address)


def find_syntax_fault(address: str) -> str:
    """Return why a URL is ambiguous for some programs, or ""."""
    plain = re.sub(_MARKS, "", address.strip())
    if not re.match(_SCHEME, plain):
        return ""
    if re.search(_MARKS, address):
        return "it contains a backslash or a control character"
    if not re.match(_WHOLE_SCHEME, plain):
        return "its scheme is not followed by :// and a host"
    return ""


def parse_standard_requirement(text: str) -> StandardRequirement:
    """Parse a requirement with packaging. Raise InvalidRequirement."""
    from packaging.requirements import Requirement as StandardRequirement

    # CPython 3.11.7 fails if two threads create the syntax trees that markers need.
    with _PARSING:
        requirement = StandardRequirement(text)
    check_marker(requirement.marker)
    return requirement


def remove_wildcards(text: str) -> str:
    """Correct invalid specifiers in old METADATA, such as ``>=3.6.*``."""
    return re.sub(r"([<>]=?|~=)\s*([\d.]+?)\.\*", r"\1\2", text)


def parse_lenient_requirement(text: str) -> str | None:
    """Parse a METADATA requirement, including old spellings that uv accepts.

    Returns:
        The canonical requirement, or None if it is malformed.
    """
    try:
        return str(parse_standard_requirement(remove_wildcards(text)))
    except ValueError:
        return None


def parse_standard_marker(text: str) -> Marker:
    """Parse a marker with packaging. Raise InvalidMarker."""
    from packaging.markers import Marker

    with _PARSING:
        marker = Marker(text)
    check_marker(marker)
    return marker


def check_marker(marker: Marker | None) -> None:
    """Raise InvalidMarker if a marker compares two texts."""
    from packaging.markers import InvalidMarker, UndefinedEnvironmentName

    try:
        _ = marker and marker.evaluate({"extra": ""}, context="lock_file")
    except UndefinedEnvironmentName as error:
        message = f"{marker} does not compare a variable: {error.args[0]}"
        raise InvalidMarker(message) from None


def marker_holds(
    marker: Marker | str | None,
    environment: Mapping[str, str],
    extras: Iterable[str] = (),
    groups: Iterable[str] = (),
) -> bool:
    """Return whether a marker is true for a target, its Python, and extras.

    Args:
        marker: The marker. In uv.lock, ``extra-5-paper-gpu`` is the extra gpu of the
            project paper. An empty marker is always true.
        environment: The values of ``marker_environment``.
        extras: The selected extras.
        groups: The selected dependency groups.
    """
    if not marker:
        return True
    if isinstance(marker, str):
        marker = parse_standard_marker(marker)
    text = str(marker)
    if "extra" in text:
        selected = {("extra", normalize_name(name)) for name in extras}
        selected |= {("group", normalize_name(name)) for name in groups}

        def evaluate(match: re.Match[str]) -> str:
            kind, name = "extra", match[2] or match[3] or ""
            of_uv = re.fullmatch(r"(extra|group)-(\d{1,4})-(.*)", name)
            if of_uv:
                kind, name = of_uv[1], of_uv[3][int(of_uv[2]) + 1 :]
            is_selected = (kind, normalize_name(name)) in selected
            is_equal = "==" in {match[1], match[4]}
            return f"python_version {'>=' if is_selected == is_equal else '<'} '3'"

        # packaging evaluates a marker for only one extra.
        marker = parse_standard_marker(re.sub(_EXTRA_COMPARISON, evaluate, text))
    return marker.evaluate(dict(environment))


_OPPOSITES = {
    "==": "!=",
    "<": ">=",
    ">": "<=",
    "in": "not in",
    "and": "or",
}
_OPPOSITES |= {value: key for key, value in _OPPOSITES.items()}


def negate_marker(text: str) -> str:
    """Return the negation of a marker.

    Raises:
        UsageError: The marker has an operator that cannot be negated, such as ``~=``.
    """
    marker = parse_standard_marker(text)

    def opposite(part: Any) -> str:
        if isinstance(part, list):
            return f"({' '.join(map(opposite, part))})"
        if isinstance(part, str):
            return _OPPOSITES[part]
        left, operator, right = part
        word = _OPPOSITES.get(operator.serialize())
        if word is None:
            raise UsageError(
                "source-setting",
                f"cannot negate the marker {text} for environments without this source",
                hint="Write it with <, <=, >, >=, ==, or !=",
            )
        return f"{left.serialize()} {word} {right.serialize()}"

    return opposite(marker._markers)  # noqa: SLF001  it has no public form


def parse_requirement(text: str, origin: TextOrigin = NO_ORIGIN) -> Requirement:
    """Parse a requirement.

    Args:
        text: The requirement.
        origin: The origin of the requirement.

    Raises:
        UsageError: The requirement is malformed, or uses "pytorch" as the name of torch.
    """
    if len(text) > _LONGEST:
        message = (
            f"a requirement has {len(text)} characters; at most {_LONGEST} are allowed"
        )
        raise UsageError("requirement-malformed", message)
    try:
        requirement = _parse(text)
    except UsageError as error:
        if origin.key:
            error.message = f"{origin.key}: {error.message}"
        raise
    return requirement.at(origin) if origin is not NO_ORIGIN else requirement


def parse_constraint(text: str, origin: TextOrigin = NO_ORIGIN) -> Constraint:
    """Parse a constraint; see ``parse_requirement``."""
    return parse_requirement(text, origin).constraint


def parse_line(line: str, origin: TextOrigin = NO_ORIGIN) -> Requirement:
    """Parse a requirement line of a lock file, or a ``-c`` constraint line."""
    if line.startswith("-c "):
        return parse_constraint(line.removeprefix("-c "), origin)
    return parse_requirement(line, origin)


# Files and locks contain the same requirements. A large program's lock has some hundred.
@lru_cache(maxsize=10_000)
def _parse(text: str) -> Requirement:
    stripped, login = split_login(text.strip())
    if login:
        return replace(_parse(stripped), login=login)
    is_file = stripped.endswith((".whl", ".tar.gz", ".zip"))
    # Most requirements are only a name, which needs no parser.
    is_name = re.fullmatch(r"(?a)[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?", stripped)
    if is_name and not is_file and stripped.lower() != "pytorch":
        return Requirement(normalize_name(stripped))
    # uv reads file:folder in a requirement as a relative path.
    stripped = re.sub(
        r"(?<![^\s@])file:(\./)?(?=[\w.~][^%\s]*(?:\s|\Z))", "./", stripped
    )
    stripped = re.sub(r"(?<![^\s@])file:(?=\w)", "file:./", stripped)
    # uv would read a line break as the start of a second line.
    if re.search(_LINE_BREAK, stripped):
        message = f"{shorten(stripped)!r} has a line break or a control character"
        raise UsageError("requirement-malformed", message)
    misnamed = re.match(r"pytorch(?![\w.-])", stripped, re.IGNORECASE)
    if misnamed:
        rest = re.sub(r"\s", "", stripped[misnamed.end() :])
        raise UsageError(
            "requirement-misnamed",
            "the package is called torch, not pytorch",
            hint=f"Write torch{rest} instead of {stripped}",
        )
    editable = re.fullmatch(_EDITABLE, stripped)
    if editable is None:
        return _parse_text(stripped)
    folder = editable["rest"].strip()
    if re.fullmatch(_FOLDER, folder):
        folder = f"./{folder}"
    requirement = _parse_text(folder)
    if not requirement.url:
        raise UsageError(
            "requirement-malformed",
            f"{stripped!r} is not a folder",
            hint=make_command("install", "-e", "./folder"),
        )
    if requirement.path is None:
        raise UsageError(
            "requirement-malformed",
            f"{stripped!r} is not a folder on this machine",
            hint=f"Write {folder} instead of {stripped}",
        )
    return replace(requirement, editable=True)


def requirement_names(requirements: Iterable[Requirement]) -> frozenset[str]:
    """Return the package names of requirements."""
    return frozenset(requirement.name for requirement in requirements)


def remove_duplicates(
    requirements: Iterable[RequirementT],
) -> tuple[RequirementT, ...]:
    """Remove duplicate requirements, and keep their order."""
    return tuple(dict.fromkeys(requirements))


def _canonicalize_specifier(specifier: str) -> str:
    """Sort the clauses of a specifier in canonical order."""
    # A single clause needs no parser, which is slow to import.
    return str(parse_specifier(specifier)) if "," in specifier else specifier


@lru_cache(maxsize=1_000)
def parse_specifier(text: str) -> SpecifierSet:
    """Parse a specifier. Raise ValueError if it is malformed."""
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(text)


def normalize_name(name: str) -> str:
    """Normalize the name of a package."""
    return re.sub(r"[-_.]+", "-", name).lower()


def marker_environment(
    os: str,
    arch: str,
    python: str,
) -> dict[str, str]:
    """Return the environment marker values for a system and Python.

    Args:
        os: The system of a Machine document, such as ``macos``.
        arch: The processor of a Machine document.
        python: The CPython version, ``X.Y`` or ``X.Y.Z``.
    """
    # X.Y means its latest patch release, as for the resolver.
    full = python if python.count(".") > 1 else f"{python}.99"
    processor = platform_processor(os, arch)
    if os == "windows":
        processor = processor.upper().replace("X86_64", "AMD64")
    return {
        **_SYSTEMS[os],
        "implementation_name": "cpython",
        "implementation_version": full,
        "platform_machine": processor,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_version": "",
        "python_full_version": full,
        "python_version": ".".join(full.split(".")[:2]),
    }


def _parse_text(text: str) -> Requirement:
    """Parse a standard requirement, or a URL without a name."""
    named = re.fullmatch(_NAMED, text)
    address = named["rest"] if named else text
    unnamed = re.fullmatch(_UNNAMED, text)
    fault = find_url_fault(address)
    if fault:
        kind = "URL" if named or is_url(text) or unnamed else "requirement"
        raise _malformed(address.rpartition("@")[2], kind, fault)
    if re.match(_OTHER_VCS, address):
        message = f"{shorten(address)} is not supported: uv reads only repositories of Git over https, ssh, and file"
        raise UsageError("requirement-malformed", message)
    if named or unnamed is None:
        return _parse_named(text)
    return _parse_address(unnamed)


def _parse_named(text: str) -> Requirement:
    """Parse a standard requirement, or a name and a path with blanks."""
    # As in uv, a semicolon after the name of a file or before a blank ends the URL.
    ends = r"(@\s*\S+?(?:\.(?:whl|zip|tar\.gz)(?=;)|(?=;\s)));"
    standard = re.sub(ends, r"\1 ;", text, count=1)
    located = re.fullmatch(_PATH_WITH_BLANKS, standard)
    if located:
        # packaging accepts no blanks in a URL.
        standard = located["name"].rpartition("@")[0] + (located["marker"] or "")
    requirement = _parse_standard(standard, text)
    return requirement.with_url(located["path"]) if located else requirement


def _parse_address(form: re.Match[str]) -> Requirement:
    """Parse a URL or path without a name."""
    address = form["address"]
    marker = f" ; {form['marker']}" if form["marker"] else ""
    parsed = _parse_standard(f"x{form['extras'] or ''}{marker}", form[0])
    name = normalize_name(_find_name_in_url(address)) or address
    return replace(parsed, name=name, url=address, has_name=False, written="")


def _parse_standard(standard: str, text: str) -> Requirement:
    """Parse a standard requirement that was written as a text."""
    try:
        parsed = parse_standard_requirement(standard)
    except (ValueError, RecursionError) as error:
        malformed = _malformed(text, "requirement", error)
        single = re.fullmatch(r"([\w.-]+(?:\[[\w,.-]*\])?)=([<>]?)([\w.+*!-]+)", text)
        if single:
            sign = f"{single[2] or '='}="
            fix = f"Write {single[1]}{sign}{single[3]} instead of {text}"
            malformed.fixes = (fix,)
        raise malformed from None
    return Requirement(
        normalize_name(parsed.name),
        extras=tuple(sorted(map(normalize_name, parsed.extras))),
        clauses=str(parsed.specifier),
        url=parsed.url,
        marker=parsed.marker,
        written=text,
    )


def _malformed(
    text: str,
    kind: str,
    reason: str | Exception,
) -> UsageError:
    # packaging adds lines that show the position.
    first, *_ = str(reason).splitlines()
    message = f"{shorten(text)!r} is not a {kind}: {first}"
    return UsageError("requirement-malformed", message)


def _find_name_in_url(address: str) -> str:
    """Return the package name in a URL: its ``#egg=``, file, or last part."""
    plain = re.sub(r"\?[^#]*", "", address) if is_url(address) else address
    location = re.sub(r"(@[^/\\]*)?[/\\]*(#.*)?\Z", "", plain)
    *_, owner, last = re.split(r"[/\\]", f"/{location}".removesuffix(".git"))
    egg = re.search(r"#.*?egg=([A-Za-z0-9][\w.-]*)", address)
    known = egg or re.fullmatch(r"(.+?)-\d.*\.(?:whl|tar\.gz|zip)", last)
    if known:
        return known[1]
    if not re.match(r"[A-Za-z0-9]", last):
        return ""
    package = _REPOSITORIES.get(f"{owner}/{last}".lower())
    return package or re.sub(r"\s+", "-", last)


def _format_extras(extras: Collection[str]) -> str:
    return f"[{','.join(sorted(extras))}]" if extras else ""
