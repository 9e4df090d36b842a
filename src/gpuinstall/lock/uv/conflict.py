"""uv's conflict: why no versions satisfy all requirements, in uv's own words.

uv derives a conflict from statements such as ``gradio>=6.31.0 depends on pillow<13.0``.
The statements about gpuinstall's virtual packages and uv's conclusions are omitted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cached_property

from packaging.version import Version

from gpuinstall.base.errors import GpuInstallError, InstallationError
from gpuinstall.base.text import shorten
from gpuinstall.base.values import Value
from gpuinstall.lock.uv.edges import OWN_PACKAGES

MOST_STATEMENTS = 3
"""Maximum number of statements in one sentence."""

MOST_CHARACTERS = 300
"""Maximum length of a conflict in a reason that ``install`` prints."""

_BECAUSE = re.compile(r"(?:And b|B)ecause ")
_CONCLUSION = re.compile(
    r",? ?we can conclude that .*|(?:\(\d+\), )?we know from \(\d+\) that .*"
)
_REQUIRED = "you require "
_ALL = "all versions of "
_ONLY_LISTED = "only the following versions"
_AND = re.compile(
    rf" and (?=only |all |any |there |{_REQUIRED}|\S+ (?:depend|has |have |was |were |is |cannot ))"
)
_LIST = re.compile(r", (?:and )?| and ")
_MARKER = re.compile(r"\{[^}]*\}")
_VERSION = re.compile(r"[=<>~!]=*(\d[\w.]*)")
_RANGE = re.compile(r"[=<>~!]\S*")
_HINT = re.compile(r"(?m)^ *hint: (.+)")
_OWN_INDEX = re.compile(r"file://\S*/family")
_NEWER_GLIBC = re.compile(
    r"matching platform tag \(e\.g\., `manylinux_\d+_\d+_(?P<arch>\w+)`[\s\S]*"
    r"Wheels are available for `([^`]+)` \(v(\S+)\) on [^\n]*?`manylinux_(\d+)_(\d+)_(?P=arch)`"
)
_OTHER_PYTHON = re.compile(
    r"only found wheels for `([^`]+)` \(v(\S+)\) with .*`cp(\d)(\d+)`"
)


class IncompatibleWheel(Value):
    """A release with wheels only for a newer glibc or another Python."""

    package: str
    version: str
    glibc: str = ""
    python: str = ""

    def __str__(self) -> str:
        return f"{self.package} {self.version}"


class Conflict(Value):
    """Requirements that conflict with each other or with the selected torch.

    The resolver raises ``error`` if no other build of torch is compatible.
    """

    error: GpuInstallError
    unlisted: str | None = None
    """The package that no source of PyTorch packages lists, if any."""

    message: str = ""
    """uv's message."""

    bounds: frozenset[str] = frozenset()
    """The lower bounds of the run, which the user did not request."""

    @property
    def why(self) -> str:
        """The conflicting requirements."""
        if isinstance(self.error, InstallationError):
            # Build output does not include the package name.
            return self.error.message
        return self.error.why or self.error.message

    @cached_property
    def hints(self) -> tuple[str, ...]:
        """uv's hints, except about gpuinstall's private index."""
        hints = _HINT.findall(self.message)
        return tuple(hint for hint in hints if not _OWN_INDEX.search(hint))

    @property
    def is_about_builds(self) -> bool:
        """Whether uv's message is about virtual packages of gpuinstall."""
        return OWN_PACKAGES in self.message

    @cached_property
    def incompatible(self) -> IncompatibleWheel | None:
        """The wheel in uv's hint, for a newer glibc or another Python."""
        if found := _NEWER_GLIBC.search(self.message):
            _, package, version, major, minor = found.groups()
            return IncompatibleWheel(package, version, glibc=f"{major}.{minor}")
        for hint in self.hints:
            if found := _OTHER_PYTHON.search(hint):
                package, version, major, minor = found.groups()
                return IncompatibleWheel(package, version, python=f"{major}.{minor}")
        return None

    def list_statements(self, asked: Collection[str] = ()) -> list[str]:
        """Return uv's statements about packages of the user.

        Of several statements about versions of the same packages, only the one about
        the latest version is returned.

        Args:
            asked: The packages for which a newer release was requested.
        """
        latest: dict[str, str] = {}
        required = dict[str, None]()
        for statement in _parse_statements(self.message):
            if statement.startswith(_REQUIRED):
                required |= dict.fromkeys(_list_required(statement, self.bounds))
                continue
            key = _RANGE.sub("", statement.removeprefix(_ALL)).replace(
                "depends", "depend"
            )
            latest[key] = max(latest.get(key, statement), statement, key=_find_version)

        def order(statement: str) -> tuple[bool, bool]:
            is_asked = _RANGE.sub("", statement).startswith((*asked,))
            return not is_asked, not _RANGE.search(statement.rsplit(maxsplit=1)[-1])

        # Statements about the requested packages are first.
        statements = [
            # uv sees only the builds that run.
            one.replace(f"{_ALL}torch ", "all builds of torch that run here ")
            for one in sorted(latest.values(), key=order)
        ]
        if required:
            statements.append(_REQUIRED + " and ".join(required))
        return statements

    def format(self, asked: Collection[str] = (), without: str = "") -> str:
        """Return at most three of uv's statements, or an empty string.

        For a newer release, an unlisted package is the reason.

        Args:
            asked: The packages for which a newer release was requested.
            without: The words of statements to omit.
        """
        if asked and self.unlisted:
            return self.error.message
        listed = self.list_statements(asked)
        statements = [one for one in listed if not without or without not in one]
        text = " and ".join(statements[:MOST_STATEMENTS])
        more = len(statements) - MOST_STATEMENTS
        if more > 0:
            text += f", and {more} more"
        return shorten(text, MOST_CHARACTERS)


def _parse_statements(message: str) -> Iterator[str]:
    text = " ".join(message.partition("hint:")[0].split())
    for derivation in _BECAUSE.split(text)[1:]:
        for part in _AND.split(_CONCLUSION.sub("", derivation)):
            statement = _MARKER.sub("", part).strip(" ,.")
            is_own = OWN_PACKAGES in statement or statement.startswith(_ONLY_LISTED)
            if statement.startswith(_REQUIRED) or (statement and not is_own):
                yield statement


def _list_required(statement: str, bounds: Collection[str]) -> Iterator[str]:
    """Yield the user's requirements, without lower bounds of a run."""
    for one in _LIST.split(statement.removeprefix(_REQUIRED)):
        is_limit = _RANGE.search(one) and not one.startswith(OWN_PACKAGES)
        if is_limit and one not in bounds:
            yield one


def _find_version(statement: str) -> Version:
    found = _VERSION.search(statement)
    try:
        return Version(found[1]) if found else Version("0")
    except ValueError:
        return Version("0")
