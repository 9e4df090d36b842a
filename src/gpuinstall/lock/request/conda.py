"""What conda's packages in an ``environment.yml`` ask for, as far as wheels have it."""

from __future__ import annotations

import re
from collections.abc import Collection

from gpuinstall.base.requirement import normalised
from gpuinstall.base.shell import joined
from gpuinstall.base.text import some
from gpuinstall.base.values import Value
from gpuinstall.base.versions import CPU, known_backend
from gpuinstall.catalog import authored

_PACKAGE = r"(?:\S+::)?([\w.-]+)\s*([^\[]*)"
_VERSION = r"(==?)?(\d\w*(?:\.\w+)*?)(\.?\*)?"
_BUILD_BEHIND = r"(.*[^=<>!~])=([^=<>!~]+)"
_BACKEND_OF_BUILD = r"(?a)(?:^|[*_])(cpu)|cuda_?(\d{2})\.?(\d)"
"""conda-forge begins the string of a build with it, the pytorch channel has it behind the Python."""


class CondaRequest(Value):
    """What the packages ask for."""

    requirements: tuple[str, ...] = ()
    """Those that have a wheel of their own, by its name."""
    python: str | None = None
    """An ``X.Y`` or a specifier."""
    backend: str | None = None
    """``cpu``, if they ask for the build without CUDA, which is another request and no preference."""
    preferred_backend: str | None = None
    """The tag of another backend that they name: a preference among builds."""
    without_wheel: tuple[str, ...] = ()
    """Those of which it is not known whether the default index has the same, or another project of that name."""

    def note(self, requested: Collection[str] = ()) -> str:
        """Return what is not installed, and what it would take; empty if that is nothing.

        Args:
            requested: The names of what is requested in words too.
        """
        missing: dict[str, str] = {}
        for text in self.without_wheel:
            package = text.rpartition("::")[2]
            name = re.split(r"[^\w.-]", package)[0]
            if normalised(name) not in requested:
                missing[name] = package
        if not missing:
            return ""
        packages = missing.values()
        return (
            f"not installed, as the index may have other projects by these names: {some([*packages])}; "
            f"if they are the same: {joined(['gpuinstall', 'install', *missing])}; "
            f"if only conda has them: {joined(['conda', 'install', *packages])}"
        )


class _Spec(Value):
    """One line, as conda's MatchSpec reads it."""

    text: str
    name: str
    version: str = ""
    """As written, without blanks."""
    build: str = ""
    """A pattern for the build's string: ``*cuda*``, ``py3.10_cuda12.1_cudnn8.9.2_0``."""

    @classmethod
    def parse(cls, text: str) -> _Spec:
        """Read ``name``, ``name=1.2=build`` or ``name >=1.2 build``; another form is of no known package."""
        match = re.fullmatch(_PACKAGE, text)
        if match is None:
            return cls(text, text)
        name, constraint = match.groups()
        joined_up = re.sub(r"([<>=!~,|])\s+", r"\1", constraint.strip())
        version, _, build = joined_up.partition(" ")
        behind = re.fullmatch(_BUILD_BEHIND, version)
        if behind:
            version, build = behind.groups()
        return cls(text, name, version=version, build=build.strip())

    @property
    def bounds(self) -> str:
        """Its versions as a specifier; empty if they are none of those that wheels know."""
        version = re.fullmatch(_VERSION, self.version)
        if version:
            operator, number, wildcard = version.groups()
            # One equals sign is a prefix; with a build's string, or none at all, it is exactly this version.
            is_exact = operator == "==" or self.build
            prefix = "" if is_exact and not wildcard else ".*"
            return f"=={number}{prefix}"
        from packaging.specifiers import InvalidSpecifier, SpecifierSet

        try:
            return str(SpecifierSet(self.version))
        except InvalidSpecifier:
            return ""


def parse_conda(packages: Collection[str]) -> CondaRequest:
    """Return what conda's packages ask for, as far as wheels have it.

    Args:
        packages: As conda writes them: ``pytorch=2.1``, ``numpy 1.26.*``, ``conda-forge::ffmpeg >=6``.
    """
    table = authored.read_data("conda_names.toml")
    specs = [_Spec.parse(text) for text in packages]
    backends = _backends(specs, table["preferences"], table["wheels"])
    requirements: dict[str, None] = {}
    without_wheel = []
    python = None
    for spec in specs:
        wheel = table["wheels"].get(spec.name)
        if spec.name == "python":
            exact = re.match(r"==(3\.\d+)", spec.bounds)
            python = (exact[1] if exact else spec.bounds) or python
        elif wheel is not None:
            requirements[f"{wheel or spec.name}{spec.bounds}"] = None
        elif spec.name in table["tools"] or not (
            spec.name in table["brought"] or spec.name in table["preferences"]
        ):
            without_wheel.append(spec.text)
    is_for_cpu = CPU.tag in backends
    return CondaRequest(
        requirements=tuple(requirements),
        python=python,
        backend=CPU.tag if is_for_cpu else None,
        preferred_backend=None if is_for_cpu else next(iter(backends), None),
        without_wheel=tuple(without_wheel),
    )


def _backends(
    specs: Collection[_Spec],
    preferences: dict[str, str],
    wheels: dict[str, str],
) -> list[str]:
    """Return the tags of the backends that packages name: the last by its version first, then those of torch's builds.

    Args:
        specs: The packages.
        preferences: What a package says of the backend by its version: ``cpu``, or how a tag begins (``cu``).
        wheels: The names that packages of conda have as wheels.
    """
    by_version = []
    by_build = []
    for spec in specs:
        prefix = preferences.get(spec.name)
        cuda = re.match(r"==(\d+)\.(\d+)", spec.bounds)
        if prefix == CPU.tag:
            by_version.append(prefix)
        elif prefix and cuda:
            by_version.append(f"{prefix}{cuda[1]}{cuda[2]}")
        backend = re.search(_BACKEND_OF_BUILD, spec.build)
        if backend and wheels.get(spec.name) == "torch":
            by_build.append(backend[1] or f"cu{backend[2]}{backend[3]}")
    return list(filter(known_backend, (*reversed(by_version), *by_build)))
