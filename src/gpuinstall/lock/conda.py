"""What conda's packages in an ``environment.yml`` ask for, as far as wheels have it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.backend import known_backend
from gpuinstall.base.regex import regex
from gpuinstall.base.shell import joined
from gpuinstall.base.text import some
from gpuinstall.catalog import authored

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_PACKAGE = regex(r"(?:\S+::)?([\w.-]+)\s*(.*)")
_VERSION = regex(r"(==?)?\s*(\d[\w.]*?)(?:\.\*)?(?:(?:=|\s+)(\S+))?")


class CondaRequest(NamedTuple):
    """What the packages ask for."""

    requirements: tuple[str, ...] = ()
    """Those that have a wheel of their own, by its name."""
    python: str | None = None
    """An ``X.Y`` or a specifier."""
    backend: str | None = None
    """The tag of the backend that they name: a preference among builds."""
    without_wheel: tuple[str, ...] = ()
    """Those of which no wheel is known: the default index may have another project of that name."""

    @property
    def note(self) -> str:
        """What is not installed, and what it would take; empty if that is nothing."""
        if not self.without_wheel:
            return ""
        names = [text.rpartition("::")[2] for text in self.without_wheel]
        packages = [name.replace(" ", "") for name in names]
        command = joined(["conda", "install", *packages])
        return f"no wheel is known of {some(self.without_wheel)}; if needed: {command}"


def parse_conda(packages: Collection[str]) -> CondaRequest:
    """Read conda's packages as conda writes them: ``pytorch=2.1``, ``numpy 1.26.*``, ``conda-forge::ffmpeg >=6``."""
    request = CondaRequest()
    if not packages:
        return request
    names = authored.read_data("conda_names.toml")
    for text in packages:
        match = _PACKAGE.fullmatch(text)
        name = text
        version = ""
        if match:
            name, version = match.groups()
        bounds = _bounds(version)
        if name == "python":
            python = _python(bounds)
            request = request._replace(python=python or request.python)
        elif name in names["preferences"]:
            backend = _tag(names["preferences"][name], bounds)
            request = request._replace(backend=backend or request.backend)
        elif name in names["wheels"]:
            wheel = names["wheels"][name] or name
            backend = _tag_of_build(version, names["build-strings"])
            request = request._replace(
                requirements=(*request.requirements, f"{wheel}{bounds}"),
                backend=request.backend or backend,
            )
        elif name not in names["brought"]:
            without_wheel = (*request.without_wheel, text)
            request = request._replace(without_wheel=without_wheel)
    return request


def _bounds(written: str) -> str:
    """Write conda's constraint as a specifier; empty if it is none of those that wheels know."""
    version = _VERSION.fullmatch(written)
    if version:
        # One equals sign is a prefix; a build's string after it names one build, of exactly this version.
        is_exact = version[1] == "==" or version[3]
        prefix = "" if is_exact else ".*"
        return f"=={version[2]}{prefix}"
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        specifier = SpecifierSet(written.replace(" ", ""))
    except InvalidSpecifier:
        return ""
    return str(specifier)


def _python(bounds: str) -> str | None:
    exact = re.match(r"==(3\.\d+)", bounds)
    if exact:
        return exact[1]
    return bounds or None


def _tag(prefix: str, bounds: str) -> str | None:
    """Return the tag of a backend with the version that a package is pinned to, or of one that has none."""
    version = re.match(r"==(\d+)\.(\d)", bounds)
    if version:
        tag = f"{prefix}{version[1]}{version[2]}"
        if known_backend(tag):
            return tag
    return prefix if known_backend(prefix) else None


def _tag_of_build(written: str, patterns: Mapping[str, str]) -> str | None:
    for prefix, pattern in patterns.items():
        match = re.search(pattern, written)
        if match:
            return _tag(prefix, f"=={match[1]}")
    return None
