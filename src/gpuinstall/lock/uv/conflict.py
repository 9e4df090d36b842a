"""uv's conflict: why no versions satisfy all requirements, in uv's own words.

uv derives a conflict from statements such as ``gradio>=6.31.0 depends on pillow<13.0``.
The statements about gpuinstall's virtual packages and uv's conclusions are omitted.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from itertools import chain

from gpuinstall.base.errors import GpuInstallError
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
_RANGE = re.compile(r"[=<>~!]\S*")
_HINT = re.compile(r"(?m)^ *hint: (.+)")
_OWN_INDEX = re.compile(r"file://\S*/family")
_NEWER_GLIBC = re.compile(
    r"matching platform tag \(e\.g\., `manylinux_\d+_\d+_(\w+)`[\s\S]*"
    r"Wheels are available for `([^`]+)` [^\n]*?`manylinux_(\d+_\d+)_\1`"
)


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

    @cached_property
    def hints(self) -> tuple[str, ...]:
        """uv's hints, except about gpuinstall's private index."""
        hints = _HINT.findall(self.message)
        return tuple(hint for hint in hints if not _OWN_INDEX.search(hint))

    @property
    def is_about_builds(self) -> bool:
        """Whether uv's message is about virtual packages of gpuinstall."""
        return OWN_PACKAGES in self.message

    @property
    def incompatible(self) -> tuple[str, str]:
        """The package and its newer glibc in uv's hint about wheels, or ""."""
        found = _NEWER_GLIBC.search(self.message)
        return (found[2], found[3].replace("_", ".")) if found else ("", "")

    @cached_property
    def limits(self) -> Mapping[str, str]:
        """The user's requirements in uv's message, with their packages."""
        texts = chain.from_iterable(
            _LIST.split(statement.removeprefix(_REQUIRED))
            for statement in _parse_statements(self.message)
            if statement.startswith(_REQUIRED)
        )
        return {
            one: _RANGE.sub("", one)
            for one in texts
            if _RANGE.search(one)
            and not one.startswith(OWN_PACKAGES)
            and one not in self.bounds
        }

    def list_statements(self, asked: Collection[str] = ()) -> list[str]:
        """Return uv's statements about packages of the user.

        Of several statements about versions of the same packages, the one about all
        versions or the last is returned.

        Args:
            asked: The packages for which a newer release was requested, listed first.
        """
        first = tuple(f"{one}{sign}" for one in asked for sign in "<=>! ")
        last: dict[str, str] = {}
        for statement in _parse_statements(self.message):
            if statement.startswith(_REQUIRED):
                continue
            packages = _RANGE.sub("", statement.removeprefix(_ALL))
            key = packages.replace("depends", "depend")
            if not last.get(key, "").startswith(_ALL):
                last[key] = statement

        def order(one: str) -> tuple[bool, bool]:
            is_limit = _RANGE.search(one.rsplit(maxsplit=1)[-1])
            return not one.startswith(first), not is_limit

        statements = [
            # uv sees only the builds that run.
            one.replace(f"{_ALL}torch ", "all builds of torch that run here ")
            for one in sorted(last.values(), key=order)
        ]
        if self.limits:
            statements.append(_REQUIRED + " and ".join(self.limits))
        return statements

    def format(self, asked: Collection[str] = ()) -> str:
        """Return at most three of uv's statements, or an empty string.

        For a newer release, an unlisted package is the reason.

        Args:
            asked: The packages for which a newer release was requested.
        """
        if asked and self.unlisted:
            return self.error.message
        statements = self.list_statements(asked)
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
            # A list of versions has no verb.
            if statement.startswith(_REQUIRED) or (" " in statement and not is_own):
                yield statement
