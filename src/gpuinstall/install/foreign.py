"""An environment of others, as its interpreter reports it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from gpuinstall.base import process
from gpuinstall.base.codec import read_object
from gpuinstall.base.environment_paths import EnvironmentPaths, Layout, below
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import parse_json
from gpuinstall.base.values import Value, field
from gpuinstall.environments.environment import read_marker
from gpuinstall.verify.interpreter import unusable

_LOOK = """
import json, os, re, sys, sysconfig
from importlib import metadata
here = os.path.dirname(sys.executable)
managed = os.path.exists(os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED"))
of_one_program = (
    os.path.isdir(os.path.join(sys.prefix, "conda-meta"))
    or any(name.endswith("._pth") for name in os.listdir(here))
    or "COLAB_RELEASE_TAG" in os.environ
)
answer = {
    "version": "%d.%d" % sys.version_info[:2], "prefix": sys.prefix, "versions": {},
    "is_systems": sys.prefix == sys.base_prefix and (managed or not of_one_program),
    "path": [path for path in sys.path if path.endswith("-packages")],
    "paths": {name: sysconfig.get_path(name) for name in ("purelib", "platlib", "scripts", "data")},
}
for package in metadata.distributions():
    if package.metadata["Name"]:
        name = re.sub("[-_.]+", "-", package.metadata["Name"]).lower()
        answer["versions"][name] = package.version
print(json.dumps(answer))
"""


class ForeignEnvironment(Value):
    """An environment by its interpreter, as that reports it."""

    python: Annotated[Path, Path]
    version: str
    """The version of Python, ``X.Y``."""
    is_systems: bool
    """Whether it is the system's Python, and no virtual environment, conda's, an embedded one or Colab's."""
    prefix: Annotated[Path, Path]
    paths: Mapping[str, Annotated[Path, Path]]
    """Its folders, by the names of sysconfig."""
    path: tuple[Annotated[Path, Path], ...] = ()
    """The folders that it finds packages in, those of a Python below it among them."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """The versions of its packages, by canonical names."""

    @property
    def place(self) -> EnvironmentPaths:
        """Where it lies, and where its files do."""
        root = Path(os.path.commonpath([self.prefix, *self.paths.values()]))
        packages, scripts = self.paths["purelib"], self.paths["scripts"]
        prefixes = {
            f"lib/python{self.version}/site-packages/": below(packages, root),
            f"lib64/python{self.version}/site-packages/": below(packages, root),
            "Lib/site-packages/": below(packages, root),
            "bin/": below(scripts, root),
            "Scripts/": below(scripts, root),
            "": below(self.paths["data"], root),
        }
        layout = Layout(
            root=root,
            python=self.python,
            packages_folders=tuple(dict.fromkeys((packages, self.paths["platlib"]))),
            search_path=self.path,
            prefixes=prefixes,
        )
        return EnvironmentPaths(self.prefix, layout)


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
    if environment.is_systems:
        raise UsageError(
            "system-python",
            f"{python} is the system's Python; gpuinstall does not change it",
            why="other programs depend on it, and the system's package manager manages it",
            hint="gpuinstall install   # makes an environment in .venv",
        )
    return environment


def _query(python: Path) -> ForeignEnvironment:
    """Run an interpreter; return its environment."""
    environment = None
    with suppress(OSError, TypeError, ValueError):
        answer = parse_json(process.ask([python, "-I", "-c", _LOOK]).out)
        environment = read_object(ForeignEnvironment, {**answer, "python": str(python)})
    if environment is None:
        raise unusable(python)
    return environment
