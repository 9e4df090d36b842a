"""An environment that others made: what its interpreter says of itself, and whether anything may be put into it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from gpuinstall import process
from gpuinstall.environments.environment import read_marker
from gpuinstall.errors import UsageError
from gpuinstall.fields import Fields
from gpuinstall.files import parse_json

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

EnvironmentKind = Literal["venv", "conda", "embedded", "colab", "system"]
ENVIRONMENT_NAMES: dict[EnvironmentKind, str] = {
    "venv": "a virtual environment",
    "conda": "a conda environment",
    "embedded": "an embedded Python",
    "colab": "the Python of Colab",
    "system": "the Python of the system",
}
_Answer = TypeVar("_Answer")

_LOOK = """
import json, os, re, sys, sysconfig
from importlib import metadata
named = sys.argv[1:]
here = os.path.dirname(sys.executable)
answer = {
    "version": "%d.%d" % sys.version_info[:2], "prefix": sys.prefix, "venv": sys.prefix != sys.base_prefix,
    "conda": os.path.isdir(os.path.join(sys.prefix, "conda-meta")),
    "embedded": any(name.endswith("._pth") for name in os.listdir(here)),
    "managed": os.path.exists(os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")),
    "paths": {name: sysconfig.get_path(name) for name in ("purelib", "platlib", "scripts", "data")},
    "packages": [],
}
for package in metadata.distributions():
    name = package.metadata["Name"]
    if name:
        wanted = re.sub("[-_.]+", "-", name).lower() in named
        files = [str(package.locate_file(file)) for file in package.files or ()] if wanted else []
        requires = list(package.requires or ())
        answer["packages"].append({"name": name, "version": package.version, "requires": requires, "files": files})
print(json.dumps(answer))
"""


@dataclass(frozen=True)
class ForeignEnvironment:
    """An environment by its interpreter, of Python ``X.Y``; ``paths`` are its folders by the names of sysconfig.

    ``versions`` are its packages, under canonical names; ``requires`` are what each of them asks for.
    """

    python: Path
    version: str
    kind: EnvironmentKind
    prefix: Path
    paths: Mapping[str, Path]
    versions: Mapping[str, str] = field(default_factory=dict)
    requires: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def read(cls, python: Path, fields: Fields) -> ForeignEnvironment:
        """Read what its interpreter says; raise MalformedError."""
        signs: dict[EnvironmentKind, bool | None] = {
            "venv": fields.flag("venv"),
            "system": fields.flag("managed"),
            "conda": fields.flag("conda"),
            "embedded": fields.flag("embedded"),
            "colab": "COLAB_RELEASE_TAG" in os.environ,
        }
        kind: EnvironmentKind = next((kind for kind, holds in signs.items() if holds), "system")
        paths = fields.fields("paths")
        folders = {
            name: (paths or fields).needed(name, _folder)
            for name in ("purelib", "platlib", "scripts", "data")
        }
        packages = {
            str(canonicalize_name(each.needed("name", str))): each
            for each in fields.each("packages")
        }
        versions = {name: package.text("version") or "" for name, package in packages.items()}
        requires = {name: package.texts("requires") for name, package in packages.items()}
        version, prefix = fields.needed("version", str), fields.needed("prefix", _folder)
        return cls(python, version, kind, prefix, folders, versions, requires)

    @property
    def root(self) -> Path:
        """The folder below which everything lies that belongs to it."""
        return Path(os.path.commonpath([self.prefix, *self.paths.values()]))

    def files_of(self, packages: Collection[str]) -> list[Path]:
        """The files of some of its packages, as far as their installers wrote them down, below ``root``."""
        listed = map(Path, map(os.path.normpath, _query(self.python, _files, *packages)))
        return [file for file in listed if file.is_relative_to(self.root)]

    def broken_by(self, changed: Mapping[str, str]) -> Iterator[str]:
        """Say which of its packages ask for another version than one that is about to come."""
        for name, requirements in sorted(self.requires.items()):
            for text in requirements if name not in changed else ():
                requirement = _applicable(text)
                version = changed.get(canonicalize_name(requirement.name)) if requirement else None
                if (
                    requirement
                    and version
                    and not requirement.specifier.contains(version, prereleases=True)
                ):
                    wanted = f"{requirement.name}{requirement.specifier}"
                    yield f"{name} {self.versions[name]} requires {wanted}, but would get {version}"


def inspect_foreign(python: Path) -> ForeignEnvironment:
    """Look at the environment of an interpreter; raise UsageError where it is none, or the system's own."""
    environment = _query(python, partial(ForeignEnvironment.read, python))
    if read_marker(environment.prefix):
        message = f"{environment.prefix} was made by gpuinstall, which replaces it completely"
        raise UsageError("ours", message, hint="the same without --into")
    if environment.kind == "system":
        message = f"{python} is the system's Python; gpuinstall does not change it"
        why = "other programs depend on it, and the system's package manager manages it"
        hint = "gpuinstall install   # makes an environment in .venv"
        raise UsageError("system-python", message, why=why, hint=hint)
    return environment


def _query(python: Path, read: Callable[[Fields], _Answer], *names: str) -> _Answer:
    try:
        done = process.ask([python, "-I", "-c", _LOOK, *names])
        return read(Fields(parse_json(done.out)))
    except (OSError, ValueError):
        message = f"{python} cannot be run as a Python interpreter"
        raise UsageError(
            "python-unusable", message, hint="Use another with --python PATH or --venv DIR"
        ) from None


def _files(fields: Fields) -> list[str]:
    return [file for package in fields.each("packages") for file in package.texts("files")]


def _folder(text: str) -> Path:
    if not Path(text).is_absolute() or "\0" in text:
        raise ValueError(f"{text!r} is not a folder")
    return Path(text)


def _applicable(text: str) -> Requirement | None:
    try:
        requirement = Requirement(text)
    except (InvalidRequirement, RecursionError):
        return None
    return (
        None
        if requirement.marker and not requirement.marker.evaluate({"extra": ""})
        else requirement
    )
