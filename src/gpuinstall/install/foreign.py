"""An environment that others made: what its interpreter says of itself, and whether anything may be put into it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from gpuinstall import process
from gpuinstall.environments.environment import read_marker
from gpuinstall.errors import UsageError
from gpuinstall.files import parse_json

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

EnvironmentKind = Literal["venv", "conda", "embedded", "colab", "system"]

SECONDS = 60.0  # records are read and nothing else: an interpreter that takes longer hangs
_LOOK = """
import json, os, sys, sysconfig
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
        files = [str(package.locate_file(file)) for file in package.files or ()] if name in named else []
        answer["packages"].append([name, package.version, list(package.requires or ()), files])
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

    @property
    def root(self) -> Path:
        """The folder below which everything lies that belongs to it."""
        return Path(os.path.commonpath([self.prefix, *self.paths.values()]))

    def files_of(self, packages: Collection[str]) -> list[Path]:
        """The files of some of its packages, as far as their installers wrote them down, below ``root``."""
        names = [name for name, *_ in _query(self.python)["packages"] if canonicalize_name(name) in packages]
        listed = [
            Path(os.path.normpath(file))
            for name, _, _, files in _query(self.python, *names)["packages"]
            if canonicalize_name(name) in packages
            for file in files
        ]
        return [file for file in listed if file.is_relative_to(self.root)]

    def broken_by(self, changed: Mapping[str, str]) -> Iterator[str]:
        """Say which of its packages ask for another version than one that is about to come."""
        for name, requirements in sorted(self.requires.items()):
            for text in requirements if name not in changed else ():
                requirement = _applicable(text)
                version = changed.get(canonicalize_name(requirement.name)) if requirement else None
                if requirement and version and not requirement.specifier.contains(version, prereleases=True):
                    wanted = f"{requirement.name}{requirement.specifier}"
                    yield f"{name} {self.versions[name]} requires {wanted}, but would get {version}"


def inspect_foreign(python: Path) -> ForeignEnvironment:
    """Look at the environment of an interpreter; raise UsageError where it is none, or the system's own."""
    answer = _query(python)
    signs: dict[EnvironmentKind, bool] = {
        "venv": answer["venv"],
        "system": answer["managed"],
        "conda": answer["conda"],
        "embedded": answer["embedded"],
        "colab": "COLAB_RELEASE_TAG" in os.environ,
    }
    environment = ForeignEnvironment(
        python,
        answer["version"],
        next((kind for kind, holds in signs.items() if holds), "system"),
        Path(answer["prefix"]),
        {name: Path(path) for name, path in answer["paths"].items()},
        {canonicalize_name(name): version for name, version, _, _ in answer["packages"]},
        {canonicalize_name(name): tuple(requires) for name, _, requires, _ in answer["packages"]},
    )
    if read_marker(environment.prefix):
        message = f"{environment.prefix} was made by gpuinstall, which replaces it completely"
        raise UsageError("ours", message, hint="the same without --into")
    if environment.kind == "system":
        raise UsageError(
            "system-python",
            f"{python} is the system's Python; gpuinstall does not change it",
            why="other programs depend on it, and the system's package manager manages it",
            hint="gpuinstall install   # makes an environment in .venv",
        )
    return environment


def _query(python: Path, *names: str) -> dict[str, Any]:
    try:
        done = process.run([python, "-I", "-c", _LOOK, *names], seconds=SECONDS)
        answer: dict[str, Any] = parse_json(done.out)
    except (OSError, ValueError):
        message = f"{python} cannot be run as a Python interpreter"
        raise UsageError("python-unusable", message, hint="Use another with --python PATH or --venv DIR") from None
    return answer


def _applicable(text: str) -> Requirement | None:
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    return None if requirement.marker and not requirement.marker.evaluate({"extra": ""}) else requirement
