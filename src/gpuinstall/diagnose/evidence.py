"""What the checks of the doctor are given: the machine, an environment, the project."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.base.advice import OURS, Advice
from gpuinstall.base.environment_paths import interpreter, packages_folders
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import parse_toml, read_document
from gpuinstall.base.finding import Finding
from gpuinstall.base.shell import joined
from gpuinstall.base.text import some
from gpuinstall.base.values import dataclass
from gpuinstall.catalog.failures.problems import FixContext, finding_for
from gpuinstall.diagnose.repair import RepairSource
from gpuinstall.environments.environment import advice_words
from gpuinstall.environments.packages import (
    InstalledPackage,
    read_packages,
    top_packages,
)
from gpuinstall.lock.declaration import Declaration, read_declaration
from gpuinstall.lock.folder_request import read_own_lock

if TYPE_CHECKING:
    from gpuinstall.base.machine import Machine
    from gpuinstall.catalog import Catalog


DoctorFindings = Iterator[Finding]
"""What a check yields."""

_REPLACE = "--replace"
_WITH_EVERY_ENVIRONMENT = frozenset({"pip", "setuptools", "wheel"})

_ACTIVATED = re.compile(
    r"^ *(?:export )?VIRTUAL_ENV=(['\"]?)(/[^'\"$\n]+)\1$", re.MULTILINE
)


@dataclass(frozen=True)
class EnvironmentContents:
    """What an environment's folder holds."""

    packages: tuple[InstalledPackage, ...] = ()
    """Its packages; a name is there twice if it is installed twice."""
    activated: Path | None = None
    """The folder that its ``activate`` leads to."""

    @property
    def by_name(self) -> Mapping[str, InstalledPackage]:
        """The packages by their names."""
        return {package.name: package for package in self.packages}

    def version(self, name: str) -> str:
        """Return the version of a package; empty if it is not there."""
        package = self.by_name.get(name)
        return package.version if package else ""


def read_contents(venv: Path) -> EnvironmentContents:
    """Look into the folder of an environment; of its packages the records are read once a check asks for them."""
    return EnvironmentContents(
        packages=read_packages(packages_folders(venv)),
        activated=_activated(venv / "bin" / "activate"),
    )


def _activated(script: Path) -> Path | None:
    """Return the folder that a script of activation names; None if it finds out by itself, or is not there."""
    with suppress(OSError, ValueError):
        line = _ACTIVATED.search(read_document(script))
        return Path(line[2]) if line else None
    return None


@dataclass(frozen=True)
class ProjectFolder:
    """The project around an environment."""

    folder: Path | None = None
    pyproject: Mapping[str, Any] = field(default_factory=dict)
    """Its pyproject.toml; empty if there is none."""
    locks: tuple[Path, ...] = ()
    declaration: Declaration = field(default_factory=Declaration)
    """What a file of it requests."""


def read_project(folder: Path) -> ProjectFolder:
    """Return a project folder; what cannot be parsed is left to the tools that own it."""
    pyproject = {}
    with suppress(OSError, ValueError):
        pyproject = parse_toml(read_document(folder / "pyproject.toml", folder))
    requirements = toml_table(pyproject, "tool", "gpuinstall").get("requirements")
    if not isinstance(requirements, list):
        requirements = None
    declaration = Declaration()
    with suppress(UsageError, ValueError):
        declaration = read_declaration(folder, requirements)
    locks = sorted(folder.glob("pylock.*.toml"))
    return ProjectFolder(folder, pyproject, tuple(locks), declaration)


@dataclass(frozen=True)
class DoctorEvidence:
    """The machine, an environment, the project around it."""

    machine: Machine
    """With the GPUs that the environment was made for."""
    project: ProjectFolder
    catalog: Catalog
    venv: Path = Path(".venv")
    """The environment's folder, whether it is there or not."""
    contents: EnvironmentContents = field(default_factory=EnvironmentContents)
    repair: RepairSource = field(default_factory=RepairSource)
    words: Mapping[str, str] = field(default_factory=dict)
    """What names the environment in a fix."""
    renewing: tuple[str, ...] = ()
    """The arguments by which our ``install`` brings the right build into it."""

    @property
    def torch(self) -> str:
        """The version of the environment's torch; empty if it is not there."""
        return self.contents.version("torch")

    @property
    def context(self) -> FixContext:
        """Where a fix would be applied."""
        return FixContext.of_machine(self.machine).knowing(**self.words)

    def fault(
        self,
        code: str,
        message: str,
        *,
        why: str | None = None,
        entry: str | None = None,
        fixes: tuple[Advice, ...] = (),
        blocking: bool = True,
    ) -> Finding:
        """Return what is wrong with the environment; without ``fixes`` those of the table."""
        return finding_for(
            code,
            message,
            self.context,
            why=why,
            entry=entry,
            where="environment",
            blocking=blocking,
            fixes=fixes,
        )

    @cached_property
    def users_packages(self) -> tuple[InstalledPackage, ...]:
        """The packages that are only there because the user wanted them."""
        return users_packages(self.venv, self.contents.packages, self.catalog)

    @property
    def anew(self) -> tuple[str, ...]:
        """The arguments by which our ``install`` makes it again."""
        if "--into" not in self.renewing:
            return self.renewing
        return (*(word for word in self.renewing if word != "--into"), _REPLACE)

    def install(self, *requirements: str, note: str = "", anew: bool = False) -> Advice:
        """Advise to bring the right build into the environment, or to make it ``anew`` with all that the user has there."""
        arguments = self.anew if anew else self.renewing
        others = self.users_packages if _REPLACE in arguments else ()
        others = tuple(
            package for package in others if package.name not in requirements
        )
        lost = [package.name for package in others if package.has_address]
        notes = [note] if note else []
        if lost:
            notes.append(f"without {some(lost)}, not installed from an index")
        return Advice(
            OURS,
            ("install", *arguments, *requirements, *carried(others)),
            self.project.folder,
            note="; ".join(notes),
        )


def users_packages(
    venv: Path,
    packages: Sequence[InstalledPackage],
    catalog: Catalog,
) -> tuple[InstalledPackage, ...]:
    """Return the packages that neither our lock holds nor torch's build brings, without those that others require."""
    own = set(_WITH_EVERY_ENVIRONMENT)
    lock = read_own_lock(venv)
    if lock:
        own |= lock.names
    return tuple(
        package
        for package in top_packages(packages)
        if package.name not in own and not catalog.is_tied(package.name)
    )


def carried(packages: Iterable[InstalledPackage]) -> tuple[str, ...]:
    """Return the requirements by which an environment that is made again has these packages as well."""
    return tuple(
        f"{package.name}=={package.version}"
        for package in packages
        if not package.has_address
    )


def environment_words(
    venv: Path,
    packages: Sequence[InstalledPackage],
    catalog: Catalog,
) -> dict[str, str]:
    """Return the words for an environment in the commands of a fix: made again, it has the user's packages too."""
    words = advice_words(interpreter(venv))
    requirements = carried(users_packages(venv, packages, catalog))
    if requirements and "anew" in words:
        words["anew"] += f" {joined(requirements)}"
        if _REPLACE in words["into"].split():
            words["into"] += f" {joined(requirements)}"
    return words


def toml_table(document: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Return the table below these names; an empty one if there is none."""
    for name in names:
        table = document.get(name)
        document = table if isinstance(table, dict) else {}
    return document
