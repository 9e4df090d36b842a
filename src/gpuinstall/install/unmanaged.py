"""Inspect an unmanaged environment, and read the packages requested for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from gpuinstall.base.advice import make_change, make_command
from gpuinstall.base.environment_paths import (
    EnvironmentPaths,
    Layout,
    environment_folder,
    relative_prefix,
)
from gpuinstall.base.errors import UsageError
from gpuinstall.base.request import Request
from gpuinstall.base.requirement import Requirement, requirement_names
from gpuinstall.base.values import Value, replace
from gpuinstall.environments.environment import package_versions, read_marker
from gpuinstall.environments.packages import read_packages
from gpuinstall.install.state import ExistingEnvironment
from gpuinstall.machine.pythons import run_script
from gpuinstall.plan.python import get_minor_version
from gpuinstall.project import Project
from gpuinstall.project.extras import select_extras
from gpuinstall.project.request import read_request

_INSPECT_SCRIPT = """
import json, os, sys, sysconfig
here = os.path.dirname(sys.executable)
managed = os.path.exists(os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED"))
of_one_program = (
    os.path.isdir(os.path.join(sys.prefix, "conda-meta"))
    or any(name.endswith("._pth") for name in os.listdir(here))
    or "COLAB_RELEASE_TAG" in os.environ
)
answer = {
    "version": "%d.%d.%d" % sys.version_info[:3], "prefix": sys.prefix,
    "is_systems": sys.prefix == sys.base_prefix and (managed or not of_one_program),
    "path": [path for path in sys.path if path.endswith("-packages")],
    "paths": {name: sysconfig.get_path(name) for name in ("purelib", "platlib", "scripts", "data")},
}
print(json.dumps(answer))
"""


class _InterpreterDetails(Value):
    """Environment details reported by an interpreter."""

    version: str
    """The Python version, ``X.Y.Z``."""
    is_systems: bool
    """Whether the interpreter is the system's Python."""
    prefix: Annotated[Path, Path]
    paths: Mapping[str, Annotated[Path, Path]]
    """The installation folders by their sysconfig names."""
    path: tuple[Annotated[Path, Path], ...] = ()
    """The package folders of the environment and its base interpreter."""


def inspect_unmanaged(python: Path) -> EnvironmentPaths:
    """Return the environment paths that an interpreter reports.

    Raises:
        UsageError: The file is not an interpreter, is the system's Python, or is in a managed environment.
    """
    venv = environment_folder(python)
    if read_marker(venv):
        raise UsageError(
            "ours",
            f"gpuinstall created {venv}, so --into does not apply",
            hint=make_change(without=("--into",)),
        )
    argv = (python, "-I", "-c", _INSPECT_SCRIPT)
    answer = run_script(_InterpreterDetails, argv)
    if answer.is_systems:
        raise UsageError(
            "system-python",
            f"{python} is the system's Python; gpuinstall does not change it",
            why="other programs depend on it, and the system's package manager manages it",
            hint=make_command("install", note="creates an environment in .venv"),
        )
    places = [answer.prefix, *answer.paths.values()]
    root = Path(os.path.commonpath(places))
    packages = answer.paths["purelib"]
    scripts = relative_prefix(answer.paths["scripts"], root)
    site = relative_prefix(packages, root)
    minor = get_minor_version(answer.version)
    layout = Layout(
        root=root,
        python=python,
        version=answer.version,
        packages_folders=tuple(dict.fromkeys((packages, answer.paths["platlib"]))),
        search_path=answer.path,
        prefixes={
            f"lib/python{minor}/site-packages/": site,
            f"lib64/python{minor}/site-packages/": site,
            "Lib/site-packages/": site,
            "bin/": scripts,
            "Scripts/": scripts,
            "": relative_prefix(answer.paths["data"], root),
        },
    )
    return EnvironmentPaths(answer.prefix, layout)


def read_unmanaged(
    python: Path, project: Project
) -> tuple[ExistingEnvironment, Request]:
    """Read an unmanaged environment's packages, and the request for it.

    Args:
        python: The environment's interpreter.
        project: The project.
    """
    place = inspect_unmanaged(python)
    version = place.layout.version if place.layout else ""
    # Python imports the first of two packages with the same name.
    visible = reversed(read_packages(place.find_search_path()))
    existing = ExistingEnvironment(
        place,
        is_empty=False,
        versions=package_versions(visible),
        packages=read_packages(place.find_packages_folders()),
        python_version=version,
    )
    request = select_extras(project, project.wants(read_request(project)))
    # The compiled companions of torch must match its version.
    companions = {"torchvision", "torchaudio"} & existing.versions.keys()
    unnamed = sorted(companions - requirement_names(request.requirements))
    return existing, replace(
        request,
        requirements=(*request.requirements, *map(Requirement.of, unnamed)),
        python=get_minor_version(version),
        preferred_pythons=(version,),
        managed_pythons=False,
    )
