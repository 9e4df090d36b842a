"""What conda's packages in an ``environment.yml`` ask for, as far as wheels have it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.shell import joined
from gpuinstall.base.text import some
from gpuinstall.base.versions import known_backend
from gpuinstall.catalog import authored

if TYPE_CHECKING:
    from collections.abc import Collection

_PACKAGE = re.compile(r"(?:\S+::)?([\w.-]+)\s*(.*)")
_VERSION = re.compile(r"(==?)?\s*(\d[\w.]*?)(?:\.\*)?(?:(?:=|\s+)(\S+))?")


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
    if not packages:
        return CondaRequest()
    names = authored.read_data("conda_names.toml")
    requirements = []
    without_wheel = []
    pythons = []
    preferred = []
    for text in packages:
        match = _PACKAGE.fullmatch(text)
        name, version = match.groups() if match else (text, "")
        bounds = _bounds(version)
        if name == "python":
            exact = re.match(r"==(3\.\d+)", bounds)
            pythons.append(exact[1] if exact else bounds)
        elif name in names["preferences"]:
            preferred.append(_tag(names["preferences"][name], bounds))
        elif name in names["wheels"]:
            requirements.append(f"{names['wheels'][name] or name}{bounds}")
        elif name not in names["brought"]:
            without_wheel.append(text)
    return CondaRequest(
        requirements=tuple(requirements),
        python=next(filter(None, reversed(pythons)), None),
        backend=next(filter(None, reversed(preferred)), None),
        without_wheel=tuple(without_wheel),
    )


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


def _tag(prefix: str, bounds: str) -> str | None:
    """Return the tag of a backend with the version that a package is pinned to, or of one that has none."""
    version = re.match(r"==(\d+)\.(\d)", bounds)
    if version:
        tag = f"{prefix}{version[1]}{version[2]}"
        if known_backend(tag):
            return tag
    return prefix if known_backend(prefix) else None
