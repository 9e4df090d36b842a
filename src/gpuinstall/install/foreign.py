"""An environment that others made: what its interpreter reports, and whether anything may be installed into it."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from gpuinstall.base import process
from gpuinstall.base.codec import read_object
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import parse_json
from gpuinstall.base.values import dataclass
from gpuinstall.environments.environment import read_marker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

EnvironmentKind = Literal["venv", "conda", "embedded", "colab", "system"]
ENVIRONMENT_NAMES: dict[EnvironmentKind, str] = {
    "venv": "a virtual environment",
    "conda": "a conda environment",
    "embedded": "an embedded Python",
    "colab": "the Python of Colab",
    "system": "the Python of the system",
}

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


def _folder(text: str) -> Path:
    if not Path(text).is_absolute() or "\0" in text:
        raise ValueError(f"{text!r} is not a folder")
    return Path(text)


_Folder = Annotated[Path, _folder]


class _Folders(NamedTuple):
    purelib: _Folder
    platlib: _Folder
    scripts: _Folder
    data: _Folder


class _Package(NamedTuple):
    name: Annotated[str, canonicalize_name]
    version: str = ""
    requires: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


class _Report(NamedTuple):
    """What an interpreter answers."""

    version: str
    prefix: _Folder
    paths: _Folders
    packages: tuple[_Package, ...] = ()
    venv: bool = False
    conda: bool = False
    embedded: bool = False
    managed: bool = False


@dataclass(frozen=True)
class ForeignEnvironment:
    """An environment by its interpreter."""

    python: Path
    version: str
    """The version of Python, ``X.Y``."""
    kind: EnvironmentKind
    prefix: Path
    paths: Mapping[str, Path]
    """Its folders, by the names of sysconfig."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """The versions of its packages, by canonical names."""
    requires: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What each package requires."""
    files: tuple[str, ...] = ()
    """The files of the packages that were asked for."""

    @classmethod
    def from_answer(cls, python: Path, answer: object) -> ForeignEnvironment:
        """Return what its interpreter reports; raise MalformedError."""
        report = read_object(_Report, answer)
        return cls(
            python,
            version=report.version,
            kind=_kind(report),
            prefix=report.prefix,
            paths=report.paths._asdict(),
            versions={package.name: package.version for package in report.packages},
            requires={package.name: package.requires for package in report.packages},
            files=tuple(file for package in report.packages for file in package.files),
        )

    @property
    def root(self) -> Path:
        """The folder below which everything lies that belongs to it."""
        return Path(os.path.commonpath([self.prefix, *self.paths.values()]))

    @property
    def packages_folders(self) -> list[Path]:
        """The folders of its packages, each once."""
        return list(dict.fromkeys((self.paths["purelib"], self.paths["platlib"])))

    def files_of(self, packages: Iterable[str]) -> list[Path]:
        """Return the files of some of its packages that lie below ``root``, as their installers recorded them."""
        recorded = _query(self.python, *packages).files
        files = [Path(os.path.normpath(name)) for name in recorded]
        root = self.root
        return [file for file in files if file.is_relative_to(root)]

    def broken_by(self, changed: Mapping[str, str]) -> Iterator[str]:
        """Yield which of its packages require another version than one that is about to come."""
        for name, requirements in sorted(self.requires.items()):
            if name in changed:
                continue
            for requirement in _applicable(requirements):
                version = changed.get(canonicalize_name(requirement.name))
                if version and not requirement.specifier.contains(version, prereleases=True):
                    text = f"{requirement.name}{requirement.specifier}"
                    yield f"{name} {self.versions[name]} requires {text}, but would get {version}"


def inspect_foreign(python: Path) -> ForeignEnvironment:
    """Return the environment of an interpreter.

    Raises:
        UsageError: it is no interpreter, the environment is one of ours, or it is the system's own.
    """
    environment = _query(python)
    if read_marker(environment.prefix):
        raise UsageError(
            "ours",
            f"{environment.prefix} was made by gpuinstall, which replaces it completely",
            hint="Run it again without --into",
        )
    if environment.kind == "system":
        raise UsageError(
            "system-python",
            f"{python} is the system's Python; gpuinstall does not change it",
            why="other programs depend on it, and the system's package manager manages it",
            hint="gpuinstall install   # makes an environment in .venv",
        )
    return environment


def _query(python: Path, *packages: str) -> ForeignEnvironment:
    """Run an interpreter; return its environment, with the files of some packages."""
    try:
        done = process.ask([python, "-I", "-c", _LOOK, *packages])
        return ForeignEnvironment.from_answer(python, parse_json(done.out))
    except (OSError, ValueError):
        raise UsageError(
            "python-unusable",
            f"{python} cannot be run as a Python interpreter",
            hint="Use another with --python PATH or --venv DIR",
        ) from None


def _kind(report: _Report) -> EnvironmentKind:
    signs: dict[EnvironmentKind, bool] = {
        "venv": report.venv,
        "system": report.managed,
        "conda": report.conda,
        "embedded": report.embedded,
        "colab": "COLAB_RELEASE_TAG" in os.environ,
    }
    for kind, is_shown in signs.items():
        if is_shown:
            return kind
    return "system"


def _applicable(texts: Iterable[str]) -> Iterator[Requirement]:
    """Yield the requirements that hold here without an extra; none that is malformed."""
    for text in texts:
        with suppress(InvalidRequirement):
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                yield requirement
