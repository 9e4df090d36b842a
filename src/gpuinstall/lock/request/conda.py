"""Conda packages of an ``environment.yml`` as requirements of wheels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from gpuinstall.base.alternatives import join_alternatives
from gpuinstall.base.request import FOLDERS_OWN, Request
from gpuinstall.base.requirement import (
    Requirement,
    TextOrigin,
    normalized,
    parse_requirement,
)
from gpuinstall.base.shell import joined
from gpuinstall.base.text import some
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import CPU, known_backend
from gpuinstall.catalog import authored

if TYPE_CHECKING:
    from collections.abc import Collection

_FILE = TextOrigin("environment.yml", "dependencies")
_PACKAGE = r"(?:[^\s\[]+::)?([\w.-]+)\s*([^\[]*)(?:\[(.*)\])?"
_BRACKETS = r"""\s*(\w+)\s*=\s*(?:'([^']*)'|"([^"]*)"|([^,'"\s]+))\s*(?:,|$)"""
_BUILD = r"(.*[^=<>!~|,])=([^=<>!~|,]+)"
_ELEMENT = r"(===|[=!~<>]=|[<>=])?(\d[\w.!+]*?)(\.?\*)?"
_BACKEND_OF_BUILD = r"(?a)(?:^|[*_])(cpu)|cuda_?(\d{2})\.?(\d)"
"""The backend in a build string, first or after the Python."""


class CondaRequest(Value):
    """Requirements of conda packages."""

    requirements: tuple[Requirement, ...] = ()
    """Packages that the default index has under a known name."""
    python: str | None = None
    """``X.Y`` or a specifier."""
    backend: str | None = None
    """``cpu`` if the packages select the build without CUDA."""
    preferred_backend: str | None = None
    """The tag of a CUDA that the packages select, such as ``cu118``."""
    without_wheel: tuple[str, ...] = ()
    """Packages that may be other projects on the index."""
    keys: Mapping[str, str] = {}
    """The keys in brackets that no reader has, each with its package."""

    @property
    def request(self) -> Request:
        """The Python and the backend of a request."""
        backends = (self.backend, self.preferred_backend)
        places = filter(None, (self.python, *backends))
        return replace(
            FOLDERS_OWN,
            python=self.python,
            backend=self.backend,
            preferred_backend=self.preferred_backend,
            places=dict.fromkeys(places, TextOrigin(_FILE.file)),
        )

    def note(self, requested: Collection[str] = ()) -> str:
        """Return the packages that are not installed, with two commands.

        Args:
            requested: Names that are requested elsewhere.
        """
        missing: dict[str, str] = {}
        for text in self.without_wheel:
            package = text.rpartition("::")[2]
            name = re.split(r"[^\w.-]", package)[0]
            if normalized(name) not in requested:
                missing[name] = package
        if not missing:
            return ""
        packages = missing.values()
        return (
            f"not installed, because the index may have other projects with these names: {some([*packages])}; "
            f"if they are the same: {joined(['gpuinstall', 'install', *missing])}; "
            f"if only conda has them: {joined(['conda', 'install', *packages])}"
        )


class UnknownSpec(ValueError):  # noqa: N818
    """A conda package with a version that no specifier can express."""


class _Spec(Value):
    """One conda package specification (conda's MatchSpec)."""

    text: str
    name: str
    version: str = ""
    """As written, without spaces."""
    build: str = ""
    """A pattern of the build string, such as ``*cuda*``."""
    keys: tuple[str, ...] = ()
    """Those in brackets."""
    is_exact: bool = False
    """Whether ``=`` selects one version, because a build string follows."""

    @classmethod
    def parse(cls, text: str) -> _Spec:
        """Parse ``name=1.2=build``, ``name >=1.2 build``, or ``name[…]``."""
        match = re.fullmatch(_PACKAGE, text.strip())
        if match is None:
            return cls(text, text)
        name, constraint, brackets = match.groups()
        compact = re.sub(r"([<>=!~,|])\s+|\s+(?=[,|])", r"\1", constraint.strip())
        version, _, build = compact.partition(" ")
        behind = re.fullmatch(_BUILD, version)
        if behind:
            version, build = behind.groups()
        found = re.findall(_BRACKETS, brackets or "")
        for key, *values in found:
            value = "".join(values).replace(" ", "")
            if key == "version":
                version = value
            elif key == "build":
                build = value
        build = build.strip()
        return cls(
            text,
            name,
            version=version,
            build=build,
            keys=tuple(key for key, *_ in found),
            is_exact=bool(build and behind),
        )

    @property
    def bounds(self) -> str:
        """The versions as a standard specifier; empty for any version.

        Raises:
            UnknownSpec: The version cannot be parsed, or no specifier allows the
                same versions.
        """
        if self.version in {"", "*", "=*", "==*"}:
            return ""
        alternatives = self.version.split("|")
        from packaging.specifiers import InvalidSpecifier

        try:
            specifiers = [
                ",".join(_bound(one, is_exact=self.is_exact) for one in text.split(","))
                for text in alternatives
            ]
            whole = join_alternatives(specifiers)
        except (InvalidSpecifier, ValueError):
            whole = None
        if whole is None:
            raise UnknownSpec(self.text)
        return whole


def _bound(element: str, *, is_exact: bool) -> str:
    """Return one element of a conda version as a standard specifier.

    Args:
        element: ``>=1.2``, ``=1.2``, ``1.2.*``, ``1.2`` or ``==1.2``.
        is_exact: Whether ``=1.2`` excludes 1.2.5. Without an operator, 1.2 always does.

    Raises:
        ValueError: It has another form.
    """
    match = re.fullmatch(_ELEMENT, element)
    if match is None:
        raise ValueError(element)
    operator, number, wildcard = match.groups()
    match operator:
        case None | "==" | "!=":
            return f"{operator or '=='}{number}{'.*' if wildcard else ''}"
        case "=":
            return f"=={number}{'' if is_exact and not wildcard else '.*'}"
        case _:
            # Conda, too, ignores the wildcard of "<1.24.*".
            return f"{operator}{number}"


@cache
def _names() -> Mapping[str, str]:
    """Return the names of wheels by the names of conda packages."""
    mapping = {}
    for line in authored.read_lines("conda_mapping.txt"):
        conda, _, wheel = line.partition(" ")
        mapping[conda] = wheel or conda
    return mapping


def _wheel_of(spec: _Spec, table: Mapping[str, Mapping[str, str]]) -> str | None:
    """Return the wheel's name of a conda package, or None if it is unknown."""
    written: str | None = table["wheels"].get(spec.name)
    if written is not None:
        return written or spec.name
    is_tool = any(
        spec.name in table[key] for key in ("tools", "brought", "preferences")
    )
    return None if is_tool else _names().get(spec.name)


def parse_conda(packages: Collection[str]) -> CondaRequest:
    """Return the requirements of conda packages.

    Args:
        packages: Such as ``pytorch=2.1``, ``numpy 1.26.*``, ``conda-forge::ffmpeg >=6``.

    Raises:
        UnknownSpec: The version of a package with a wheel cannot be expressed.
    """
    table = authored.read_data("conda_names.toml")
    specs = [_Spec.parse(text) for text in packages]
    requirements: dict[Requirement, None] = {}
    without_wheel = []
    python = None
    for spec in specs:
        wheel = _wheel_of(spec, table)
        if spec.name == "python":
            exact = re.match(r"==(3\.\d+)", spec.bounds)
            python = (exact[1] if exact else spec.bounds) or python
        elif wheel is not None:
            text = f"{wheel}{spec.bounds}"
            requirements[parse_requirement(text, _FILE)] = None
        elif spec.name in table["tools"] or not (
            spec.name in table["brought"] or spec.name in table["preferences"]
        ):
            without_wheel.append(spec.text)
    backends = _backends(specs, table["preferences"], table["wheels"])
    is_for_cpu = CPU.tag in backends
    return CondaRequest(
        requirements=tuple(requirements),
        python=python,
        backend=CPU.tag if is_for_cpu else None,
        preferred_backend=None if is_for_cpu else next(iter(backends), None),
        without_wheel=tuple(without_wheel),
        keys={
            f"[{key}]": spec.text
            for spec in specs
            for key in spec.keys
            if key not in {"name", "version", "build"}
        },
    )


def _backends(
    specs: Collection[_Spec],
    preferences: dict[str, str],
    wheels: dict[str, str],
) -> list[str]:
    """Return the tags of backends, first from versions, then from builds.

    Args:
        specs: The packages.
        preferences: The start of the tag that a package's version completes: ``cu``, or ``cpu``.
        wheels: The names of wheels by the names of conda packages.
    """
    by_version = []
    by_build = []
    for spec in specs:
        prefix = preferences.get(spec.name)
        cuda = re.match(r"(?:={0,2}|~=)(\d+)\.(\d+)", spec.version)
        if prefix == CPU.tag:
            by_version.append(prefix)
        elif prefix and cuda:
            by_version.append(f"{prefix}{cuda[1]}{cuda[2]}")
        backend = re.search(_BACKEND_OF_BUILD, spec.build)
        if backend and wheels.get(spec.name) == "torch":
            by_build.append(backend[1] or f"cu{backend[2]}{backend[3]}")
    return list(filter(known_backend, (*reversed(by_version), *by_build)))
