"""Read the dependencies of packages from the verbose output of uv.

uv logs the dependencies of every release that it tries, for example ``Adding transitive
dependency for torch==2.14.0: sympy>=1.13.3``. They need no download of METADATA.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from gpuinstall.base.errors import UsageError
from gpuinstall.base.requirement import Requirement, parse_requirement
from gpuinstall.base.values import Value, field


class UvLog(Value):
    """The dependencies that uv's log lists; ``|`` returns the union."""

    edges: Mapping[tuple[str, str], tuple[Requirement, ...]] = field(
        default_factory=dict
    )
    """The dependencies of each release on the target, by name and version.

    Dependencies of requested extras are included.
    """

    of_cuda_extras: frozenset[str] = frozenset()
    """The dependencies that only an extra for CUDA adds, at any depth."""

    def __or__(self, other: UvLog) -> UvLog:
        return UvLog(
            {**self.edges, **other.edges}, self.of_cuda_extras | other.of_cuda_extras
        )

    def find_dependencies(self, package: str, version: str) -> Sequence[Requirement]:
        """Return the dependencies of a release with any label, if uv tried it.

        A local project has no version in uv's lock.
        """
        if (package, version) in self.edges:
            return self.edges[package, version]
        public = version.partition("+")[0]
        found = [
            dependencies
            for (name, tried), dependencies in self.edges.items()
            if name == package and public in {"", tried.partition("+")[0]}
        ]
        return next(iter(found), ())

    def find_demands(
        self, package: str, versions: Mapping[str, str] | None = None
    ) -> list[Requirement]:
        """Return the requirements of releases for a package.

        Args:
            package: The package.
            versions: The resolved versions; None: all versions that uv tried.
        """
        return [
            one
            for name, version in (self.edges if versions is None else versions.items())
            for one in self.find_dependencies(name, version)
            if one.name == package
        ]

    def find_requirers(
        self,
        package: str,
        requested: Collection[str],
        versions: Mapping[str, str] | None = None,
    ) -> tuple[str, ...]:
        """Return the packages from a requested one to a direct requirer.

        Args:
            package: The package.
            requested: The requested packages.
            versions: The resolved versions; None: all versions that uv tried.
        """
        parents = defaultdict[str, list[str]](list)
        for (name, version), dependencies in self.edges.items():
            # A requested local project has no version in uv's lock.
            own = version if name in requested or versions is None else ""
            if (versions or {}).get(name, own) == version:
                for one in dependencies:
                    parents[one.name].append(name)
        paths: dict[str, tuple[str, ...]] = {package: ()}
        # The list grows while it is read.
        pending = [package]
        for name in pending:
            if name in requested or not parents[name]:
                return paths[name]
            new = [one for one in parents[name] if one not in paths]
            paths |= {one: (one, *paths[name]) for one in new}
            pending += dict.fromkeys(new)
        return ()


OWN_PACKAGES = "gpuinstall-"
"""Prefix of packages that add requirements missing from METADATA."""

_LOGGED = re.compile(r"^(?:TRACE|DEBUG|INFO|WARN) .*\n?", re.MULTILINE)
_EDGE = re.compile(
    r"^DEBUG Adding transitive dependency for ([\w.-]+)==(\S+): "
    r"([\w.-]+)(\[[^]]*\])?(?:\{.*\})?(.*)$",
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
        is_own = OWN_PACKAGES in {name[:11], dependency[:11]}
        if dependency != name and not is_own:
            with suppress(UsageError):
                one = parse_requirement(f"{dependency}{extras}{specifier}")
                edges[name, version][one.text] = one
    dependencies = {release: (*texts.values(),) for release, texts in edges.items()}
    of_cuda = {
        dependency
        for search in filter(_CUDA_EXTRA.match, log.split(_SEARCHED))
        for _, _, dependency, _, _ in _EDGE.findall(search)
    }
    return UvLog(dependencies, frozenset(of_cuda))


def _spell_range(specifier: str) -> str:
    """Return the specifier of uv's version range, "" if none is equal."""
    for pattern, spelling in _SPELLINGS:
        specifier = re.sub(pattern, spelling, specifier)
    return "" if "|" in specifier else specifier
