"""Facts about the machine, environment, and project for the checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from os.path import exists, isfile
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from gpuinstall.base.advice import PROGRAM, Advice, environment_advice
from gpuinstall.base.environment_paths import interpreter
from gpuinstall.base.finding import Finding
from gpuinstall.base.request import Request
from gpuinstall.base.text import join_names
from gpuinstall.base.values import replace
from gpuinstall.catalog.failures.problems import FixContext, finding_for
from gpuinstall.diagnose.reading import LocalReading
from gpuinstall.environments.environment import (
    create_hint_placeholders,
    install_arguments,
    is_virtual,
    read_marker,
)
from gpuinstall.environments.packages import InstalledPackage, find_top_packages
from gpuinstall.lock.file.entries import LockGate

if TYPE_CHECKING:
    from packaging.requirements import Requirement


DoctorFindings = Iterator[Finding]
"""The findings that a check reports."""

_WITH_EVERY_ENVIRONMENT = frozenset({"pip", "setuptools", "wheel"})


def find_environment_python(venv: Path) -> Path | None:
    """Return the interpreter of an environment, which may be damaged."""
    python = interpreter(venv)
    return python if exists(python) or is_virtual(venv) else None


def has_lock(venv: Path) -> bool:
    """Return whether an environment contains its own lock file."""
    marker = read_marker(venv)
    return marker is not None and isfile(venv / marker.lock)


class DoctorEvidence(LocalReading):
    """Facts about a machine, an environment, and the project around it."""

    request: Request = Request()
    """The request that ``install`` would use."""
    torch_index: str = ""
    """The base URL of torch's index."""
    gate: LockGate | None = None
    """The rules that the sources of lock files must satisfy."""
    folder: Path = Path()
    """The project's folder, in which the command runs."""
    python: Path | None = None
    """The interpreter of the environment; None if there is no environment."""
    has_lock: bool = False
    """Whether the environment contains its own lock file."""

    @property
    def torch_version(self) -> str:
        """The torch version in the metadata. Empty if torch is missing."""
        package = self.by_name.get("torch")
        return package.version if package else ""

    @cached_property
    def context(self) -> FixContext:
        """The system and GPUs that determine the commands in fixes."""
        context = FixContext.of_machine(self.machine)
        # Commands cannot use the path of a missing environment.
        words = create_hint_placeholders(self.python) if self.python else {}
        return context.knowing(**words)

    @property
    def fault(self) -> Callable[..., Finding]:
        """Create a finding with fixes that apply to this environment."""
        return partial(finding_for, context=self.context, where="environment")

    def install_advice(
        self,
        *requirements: str,
        note: str = "",
        recreate: bool = False,
    ) -> Advice:
        """Return a command that installs a torch build for this machine.

        Args:
            requirements: Additional requirements.
            note: A note on the command.
            recreate: Whether to recreate the environment with the user's packages.
        """
        arguments = list(install_arguments(self.venv))
        if recreate and not is_virtual(self.venv):
            # Keep a conda environment, and create a new environment.
            arguments = []
        lost = []
        if recreate and "--into" in arguments:
            arguments.remove("--into")
            arguments.append("--replace")
            # Request the packages that neither torch nor another package requires.
            for package in find_top_packages(self.packages, self.markers):
                name = package.name
                if name in _WITH_EVERY_ENVIRONMENT or self.catalog.is_tied(name):
                    continue
                if package.has_address():
                    lost.append(name)
                else:
                    arguments.append(f"{name}=={package.version}")
        if lost:
            note = f"without {join_names(lost)}, which was not installed from an index"
        words = ("install", *arguments, *requirements)
        return Advice(PROGRAM, words, note=note)

    def reinstall(
        self,
        package: InstalledPackage,
        *,
        is_in_cache: bool = False,
        note: str = "",
    ) -> tuple[Advice, ...]:
        """Return the commands that reinstall a package.

        Args:
            package: The package.
            is_in_cache: Whether uv's cache has the same damaged files and must be cleaned first.
            note: A note on the last command.
        """
        name = package.name
        exact = f"{name}=={package.version}"
        step = self._uv_advice(name, "--no-deps", "--reinstall-package", name, exact)
        step = replace(step, note=note)
        # sync cleans the cache itself.
        if self.has_lock or not is_in_cache:
            return (step,)
        return (Advice("uv", ("cache", "clean", name)), step)

    def missing_advice(
        self, package: InstalledPackage, requirement: Requirement
    ) -> Advice:
        """Return a command that installs a package's missing requirement.

        Args:
            package: The package.
            requirement: The requirement. Its extras and marker are ignored.
        """
        if package.name in self.catalog.family:
            return self.install_advice()
        name = canonicalize_name(requirement.name)
        return self._uv_advice(name, f"{name}{requirement.specifier}")

    def _uv_advice(self, name: str, *words: str) -> Advice:
        """Return a command that installs a package, locked if possible."""
        if self.has_lock:
            return environment_advice(self.venv, "sync", "--reinstall-package", name)
        label = self.torch_version.partition("+")[2]
        # A torch without a local version label is on every index.
        if label and name in self.catalog.family:
            words = ("--index", f"{self.torch_index}/{label}", *words)
        python = str(interpreter(self.venv))
        return Advice("uv", ("pip", "install", "--python", python, *words))
