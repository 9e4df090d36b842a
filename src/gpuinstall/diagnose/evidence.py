"""What the checks of the doctor are given: the machine, an environment, the project."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, partial
from os.path import exists, isfile
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from gpuinstall.base.advice import OURS, Advice
from gpuinstall.base.environment_paths import interpreter
from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Machine
from gpuinstall.base.request import Request
from gpuinstall.base.text import some
from gpuinstall.base.values import Value, replace
from gpuinstall.catalog import Catalog
from gpuinstall.catalog.failures.problems import FixContext, finding_for
from gpuinstall.environments.environment import (
    advice_words,
    is_virtual,
    read_marker,
    renewing_arguments,
)
from gpuinstall.environments.packages import InstalledPackage, top_packages
from gpuinstall.environments.records import was_made_here
from gpuinstall.lock.file.entries import LockGate

if TYPE_CHECKING:
    from packaging.requirements import Requirement


DoctorFindings = Iterator[Finding]
"""What a check yields."""

_WITH_EVERY_ENVIRONMENT = frozenset({"pip", "setuptools", "wheel"})


class DoctorEvidence(Value):
    """The machine, an environment, the project around it."""

    machine: Machine
    """With the GPUs that the environment was made for."""
    catalog: Catalog
    venv: Path
    """The environment's folder, whether it is there or not."""
    packages: tuple[InstalledPackage, ...]
    """What is installed there; a name is there twice if it is installed twice. Records are read once a check asks."""
    request: Request
    """What ``install`` would be asked for here."""
    torch_index: str
    """Where its torch would come from again: the base of the index."""
    gate: LockGate | None = None
    """The gate for the sources of locks."""
    folder: Path | None = None
    """That of the project around it; None: nothing is known of one."""

    @property
    def is_there(self) -> bool:
        """Whether there is an environment, whole or not."""
        return exists(interpreter(self.venv)) or is_virtual(self.venv)

    @cached_property
    def lock(self) -> Path | None:
        """The lock that its packages come from; None if they were chosen by hand."""
        marker = read_marker(self.venv)
        if marker and was_made_here(self.venv):
            lock = self.venv / marker.lock
            return lock if isfile(lock) else None
        return None

    @property
    def by_name(self) -> Mapping[str, InstalledPackage]:
        """The packages by their names."""
        return {package.name: package for package in self.packages}

    @property
    def torch(self) -> str:
        """The version of the environment's torch; empty if it is not there."""
        package = self.by_name.get("torch")
        return package.version if package else ""

    @cached_property
    def context(self) -> FixContext:
        """Where a fix would be applied."""
        context = FixContext.of_machine(self.machine)
        # A path where nothing lies helps nobody.
        words = advice_words(interpreter(self.venv)) if self.is_there else {}
        return context.knowing(**words)

    @property
    def fault(self) -> Callable[..., Finding]:
        """Returns what is wrong with the environment; arguments as ``finding_for`` has them."""
        return partial(finding_for, context=self.context, where="environment")

    def install_advice(
        self,
        *requirements: str,
        note: str = "",
        anew: bool = False,
    ) -> Advice:
        """Advise to bring the right build into the environment.

        Args:
            requirements: What else to ask for.
            note: What the advice is for.
            anew: Whether to make the environment again, with all that the user has there.
        """
        arguments = list(renewing_arguments(self.venv))
        if anew and not is_virtual(self.venv):
            # conda's is not replaced: an environment of its own is made.
            arguments = []
        lost = []
        if anew and "--into" in arguments:
            arguments.remove("--into")
            arguments.append("--replace")
            # What torch's build does not bring, without what others require.
            for package in top_packages(self.packages):
                name = package.name
                if name in _WITH_EVERY_ENVIRONMENT or self.catalog.is_tied(name):
                    continue
                if package.has_address:
                    lost.append(name)
                else:
                    arguments.append(f"{name}=={package.version}")
        if lost:
            note = f"without {some(lost)}, not installed from an index"
        words = ("install", *arguments, *requirements)
        return Advice(OURS, words, self.folder, note)

    def reinstall(
        self,
        package: InstalledPackage,
        *,
        is_in_cache: bool = False,
        note: str = "",
    ) -> tuple[Advice, ...]:
        """Return the commands that reinstall one package.

        Args:
            package: The package.
            is_in_cache: Whether uv's cache has the same damaged files. It is cleaned first.
            note: A note on the last command.
        """
        name = package.name
        exact = f"{name}=={package.version}"
        step = self._uv_advice(name, "--no-deps", "--reinstall-package", name, exact)
        step = replace(step, note=note)
        if not is_in_cache:
            return (step,)
        return (Advice("uv", ("cache", "clean", name)), step)

    def missing_advice(
        self, package: InstalledPackage, requirement: Requirement
    ) -> Advice:
        """Return a command that installs an unmet requirement of a package.

        Args:
            package: The package.
            requirement: The requirement. Its extras and marker are ignored.
        """
        if package.name in self.catalog.family:
            return self.install_advice()
        name = canonicalize_name(requirement.name)
        return self._uv_advice(name, f"{name}{requirement.specifier}")

    def _uv_advice(self, name: str, *words: str) -> Advice:
        """Advise to install a package with uv: as the environment's lock has it, if there is one, else by ``words``."""
        label = self.torch.partition("+")[2]
        if self.lock:
            words = ("-r", str(self.lock), "--reinstall-package", name)
        # A torch without a label is on every index.
        elif label and name in self.catalog.family:
            words = ("--index", f"{self.torch_index}/{label}", *words)
        python = str(interpreter(self.venv))
        return Advice("uv", ("pip", "install", "--python", python, *words))
