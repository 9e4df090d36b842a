"""Convert conda packages in an ``environment.yml`` to requirements."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.base.alternatives import join_alternatives
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import check_count
from gpuinstall.base.request import FOLDER_REQUEST
from gpuinstall.base.requirement import (
    Requirement,
    TextOrigin,
    parse_requirement,
    requirement_names,
)
from gpuinstall.base.shapes import check_shape
from gpuinstall.base.text import shorten
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import CPU, known_backend
from gpuinstall.catalog import data_files
from gpuinstall.sources.requirements_file import (
    CondaRequest,
    RequirementsFile,
    convert_content_errors,
    parse_lines,
    read_requirements_text,
    strip_comment,
)
from gpuinstall.sources.uv_settings import UvSetting

if TYPE_CHECKING:
    from typing_extensions import Self

_PACKAGE = r"(?:[^\s\[]+::)?([\w.-]+)\s*([^\[]*)"
_BUILD = r"(.*[^=<>!~|,])=([^=<>!~|,]+)"
_ELEMENT = r"(===|[=!~<>]=|[<>=])?(\d[\w.!+]*?)(\.?\*)?"
_DEPENDENCIES = ([(str, {"pip!": ([str], type(None))})], type(None))
"""The shape of the dependencies, which can be empty."""
_BACKEND_OF_BUILD = r"(?a)(?:^|[*_])(cpu)|cuda_?(\d{2})\.?(\d)"
"""The backend in a build string, at the start or after the Python version."""


def read_conda(path: Path, folder: Path | None) -> RequirementsFile:
    """Read the conda packages and the pip section of an ``environment.yml``.

    Args:
        path: The file.
        folder: The folder that selects the file; see ``read_document``.

    Raises:
        UsageError: The file is malformed, or no specifier can express the versions of a
            package.
    """
    with convert_content_errors(path):
        text = read_requirements_text(path, folder)
        document = _parse_yaml(text)
        entries = document.get("dependencies") or []
        packages = [entry for entry in entries if isinstance(entry, str)]
        sections = [entry["pip"] for entry in entries if isinstance(entry, dict)]
        pip = [*chain.from_iterable(filter(None, sections))]
        check_count(len(packages) + len(pip), "entries", "dependencies")
    # conda itself writes the pip section into a requirements file.
    lines = [
        (_find_line(line, text), strip_comment(line))
        for entry in pip
        for line in entry.splitlines()
    ]
    listed = parse_lines(lines, path)
    requirements, conda = convert_conda_specs(
        [
            _CondaSpec.parse(one, TextOrigin(str(path), line=_find_line(one, text)))
            for one in packages
        ]
    )
    names = requirement_names(listed.requirements)
    others = [one for one in requirements if one.name not in names]
    unknown = tuple(
        UvSetting(key, "", path, _find_line(key, text))
        for key in map(str, document)
        if key not in _KEYS
    )
    return replace(
        listed,
        requirements=(*others, *listed.requirements),
        settings=(*listed.settings, *unknown),
        conda=(conda,),
    )


def _parse_yaml(text: str) -> dict[Any, Any]:
    """Parse an ``environment.yml``, and check the shape of its dependencies.

    Raises:
        ValueError: The document is malformed. The message includes the line or key.
    """
    import yaml

    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        lines = text.splitlines() or [""]
        # The mark can be behind the last line.
        number = min(mark.line if mark else 0, len(lines) - 1)
        problem = getattr(error, "problem", None) or error
        line = shorten(lines[number].strip())
        raise ValueError(f"line {number + 1}: {problem}: {line}") from None
    table = {"environment": document or {}}
    check_shape(table, {"environment": {"dependencies": _DEPENDENCIES}})
    return table["environment"]


def _find_line(entry: str, text: str) -> int:
    """Return the number of the first line that contains an entry."""
    lines = enumerate(text.splitlines(), 1)
    return next((number for number, line in lines if entry in line), 1)


_KEYS = {"dependencies", "name", "channels", "prefix", "variables", "platforms"}
"""The keys of an ``environment.yml``."""


class _CondaSpec(Value):
    """One conda package specification (conda's MatchSpec)."""

    text: str
    name: str
    origin: TextOrigin
    version: str = ""
    """The version of a conda package as written, without spaces."""
    build: str = ""
    """A pattern of the build string, such as ``*cuda*``."""

    @classmethod
    def parse(cls, text: str, origin: TextOrigin) -> Self:
        """Parse ``name=1.2=build`` or ``name >=1.2 build``.

        Raises:
            UsageError: The text has another form.
        """
        match = re.fullmatch(_PACKAGE, text.strip())
        # YAML joins a package with the next line if that is indented further.
        if match is None or " - " in text:
            message = f"{origin}: {shorten(text)!r} is not a valid conda package specification"
            raise UsageError("requirements-malformed", message)
        name, constraint = match.groups()
        compact = re.sub(r"([<>=!~,|])\s+|\s+(?=[,|])", r"\1", constraint.strip())
        version, _, build = compact.partition(" ")
        behind = re.fullmatch(_BUILD, version)
        if behind:
            version, build = behind.groups()
            # Before a build string, "=" selects one version.
            version = re.sub(r"(^|[,|])=(?!=)", r"\1==", version)
        return cls(text, name, origin, version=version, build=build.strip())

    def specifier(self) -> str:
        """Return the versions as a standard specifier; empty for any version.

        Raises:
            UsageError: The version cannot be parsed, or no specifier allows exactly
                the same versions.
        """
        if self.version in {"", "*", "=*", "==*"}:
            return ""
        from packaging.specifiers import InvalidSpecifier

        try:
            specifiers = [
                ",".join(map(_convert_element, text.split(",")))
                for text in self.version.split("|")
            ]
            whole = join_alternatives(specifiers)
        except (InvalidSpecifier, ValueError):
            whole = None
        if whole is None:
            raise UsageError(
                "requirements-malformed",
                f"{self.origin}: cannot convert {self.text} to a version specifier",
                hint="Use a single range, such as numpy>=1.24,<2",
            )
        return whole


def _convert_element(element: str) -> str:
    """Return one element of a conda version as a standard specifier.

    Args:
        element: ``>=1.2``, ``=1.2``, ``1.2.*``, ``1.2`` or ``==1.2``.

    Raises:
        ValueError: The element has another form.
    """
    match = re.fullmatch(_ELEMENT, element)
    if match is None:
        raise ValueError(element)
    operator, number, wildcard = match.groups()
    match operator:
        case None | "==" | "!=":
            return f"{operator or '=='}{number}{'.*' if wildcard else ''}"
        case "=":
            return f"=={number}.*"
        case _:
            # Like conda, ignore the wildcard in "<1.24.*".
            return f"{operator}{number}"


def _load_wheel_names(table: Mapping[str, Any]) -> dict[str, str | None]:
    """Return wheel names by conda package name.

    A name is empty if no wheel is needed, and None if no wheel has the package's files.

    Args:
        table: The names that precede the generated ones.
    """
    text = (data_files.TABLES / "conda_mapping.txt").read_text("utf-8")
    rows = re.findall(r"(?m)^([^#\s]\S*) ?(.*)", text)
    return {
        **{conda: wheel or conda for conda, wheel in rows},
        **dict.fromkeys((*table["brought"], *table["preferences"]), ""),
        **dict.fromkeys(table["tools"]),
        **{conda: wheel or conda for conda, wheel in table["wheels"].items()},
    }


def convert_conda_specs(
    specs: Sequence[_CondaSpec],
) -> tuple[Collection[Requirement], CondaRequest]:
    """Return the requirements and the settings of conda packages.

    Raises:
        UsageError: The version of a package with a wheel cannot be expressed.
    """
    table = data_files.read_data("conda_names.toml")
    names = _load_wheel_names(table)
    requirements: dict[Requirement, None] = {}
    without_wheel = []
    python = None
    places: dict[str, TextOrigin] = {}
    for spec in specs:
        wheel = names.get(spec.name)
        if spec.name == "python":
            bounds = re.sub(r"^==(3\.\d+).*", r"\1", spec.specifier())
            if bounds:
                python = bounds
                places[python] = spec.origin
        elif wheel:
            text = f"{wheel}{spec.specifier()}"
            requirements[parse_requirement(text, spec.origin)] = None
        elif wheel is None:
            without_wheel.append((spec.name, spec.text.rpartition("::")[2]))
    backends = _find_backends(specs, table["preferences"], names)
    places |= backends
    is_for_cpu = CPU.tag in backends
    request = replace(
        FOLDER_REQUEST,
        python=python,
        backend=CPU.tag if is_for_cpu else None,
        preferred_backend=None if is_for_cpu else next(iter(backends), None),
        places=places,
    )
    return requirements, CondaRequest(request, tuple(without_wheel))


def _find_backends(
    specs: Collection[_CondaSpec],
    preferences: dict[str, str],
    wheels: Mapping[str, str | None],
) -> dict[str, TextOrigin]:
    """Return backend tags, first from versions, then from build strings.

    Args:
        specs: The packages.
        preferences: The tag ``cpu`` or the prefix ``cu`` of a tag, by package.
        wheels: Wheel names by conda package name.
    """
    found: list[tuple[str, TextOrigin]] = []
    for spec in specs:
        prefix = preferences.get(spec.name)
        cuda = re.match(r"(?:={0,2}|~=)(\d+)\.(\d+)", spec.version)
        if prefix == CPU.tag:
            found.insert(0, (prefix, spec.origin))
        elif prefix and cuda:
            found.insert(0, (f"{prefix}{cuda[1]}{cuda[2]}", spec.origin))
        build = re.search(_BACKEND_OF_BUILD, spec.build)
        if build and wheels.get(spec.name) == "torch":
            tag = build[1] or f"cu{build[2]}{build[3]}"
            found.append((tag, spec.origin))
    backends: dict[str, TextOrigin] = {}
    for tag, origin in found:
        if known_backend(tag):
            backends.setdefault(tag, origin)
    return backends
