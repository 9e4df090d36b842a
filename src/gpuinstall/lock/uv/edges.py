"""Read the dependencies of packages from the verbose output of uv.

uv logs the dependencies of every release that it tries, for example ``Adding transitive
dependency for torch==2.14.0: sympy>=1.13.3``, and each one without a compatible version.
They need no download of METADATA.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress

from gpuinstall.base.errors import UsageError
from gpuinstall.base.requirement import Requirement, parse_requirement
from gpuinstall.base.values import Value


class UvLog(Value):
    """The dependencies that uv's log lists."""

    edges: dict[tuple[str, str], tuple[Requirement, ...]]
    """The dependencies of each release on the target, by name and version.

    Dependencies of requested extras are included.
    """

    unavailable: set[Requirement]
    """The dependencies of which uv found no compatible version."""

    of_cuda_extras: set[str]
    """The dependencies that only an extra for CUDA adds, at any depth."""

    def update(self, other: UvLog) -> None:
        """Add the dependencies of another run."""
        self.edges.update(other.edges)
        self.unavailable.update(other.unavailable)
        self.of_cuda_extras.update(other.of_cuda_extras)


OWN_PACKAGES = "gpuinstall-"
"""Prefix of packages that add requirements missing from METADATA."""

_LOGGED = re.compile(r"^(?:TRACE|DEBUG|INFO) .*\n?", re.MULTILINE)
_EDGE = re.compile(
    r"^DEBUG Adding transitive dependency for ([\w.-]+)==(\S+): "
    r"([\w.-]+)(\[[^]]*\])?(?:\{.*\})?(.*)$",
    re.MULTILINE,
)
_SEARCH = re.compile(
    r"^DEBUG (?:Searching for a compatible version of ([\w.-]+).*? \((.*)\)$"
    r"|No compatible version found for: ([\w.-]+))",
    re.MULTILINE,
)
_SEARCHED = "DEBUG Searching for a compatible version of "
_CUDA_EXTRA = re.compile(r"[\w.-]+\[[\w.-]*(cuda|cu1\d|gpu)")
_SPELLINGS = (
    (r">=(\S+), <\1\+", r"==\1"),
    (r"<(\S+) \| >=\1\+", r"!=\1"),
    (r"(<=|>)(\S+)\+", r"\1\2"),
    (r"(?<=\d)\.dev0\b", ""),
    (r"^\*$", ""),
)
"""Patterns of uv's version ranges, and the specifiers that they represent."""


def remove_log(message: str) -> str:
    """Return uv's message without the lines of its log."""
    return _LOGGED.sub("", message)


def parse_log(log: str) -> UvLog:
    """Return the dependencies that uv's log lists.

    A range without an equal specifier is omitted from its dependency.
    """
    edges = defaultdict[tuple[str, str], dict[str, Requirement]](dict)
    for found in dict.fromkeys(_EDGE.findall(log)):
        name, version, dependency, extras, specifier = found
        specifier = _spell_range(specifier)
        # A package is also a dependency of its own extras.
        if dependency != name and not dependency.startswith(OWN_PACKAGES):
            with suppress(UsageError):
                one = parse_requirement(f"{dependency}{extras}{specifier}")
                edges[name, version][one.text] = one
    dependencies = {release: (*texts.values(),) for release, texts in edges.items()}
    of_cuda = {
        dependency
        for search in filter(_CUDA_EXTRA.match, log.split(_SEARCHED))
        for _, _, dependency, _, _ in _EDGE.findall(search)
    }
    return UvLog(dependencies, {*_find_unavailable(log)}, of_cuda)


def _find_unavailable(log: str) -> Iterator[Requirement]:
    searched = dict[str, str]()
    for name, specifier, failed in _SEARCH.findall(log):
        searched[name] = specifier
        if failed in searched:
            with suppress(UsageError):
                yield parse_requirement(f"{failed}{_spell_range(searched[failed])}")


def _spell_range(specifier: str) -> str:
    """Return the specifier of uv's version range, "" if none is equal."""
    for pattern, spelling in _SPELLINGS:
        specifier = re.sub(pattern, spelling, specifier)
    return "" if "|" in specifier else specifier
