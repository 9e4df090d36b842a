"""The names that a project's own sources take from torch, and that the torch of its lock no longer has.

A relaxed request (rule 14 of the design) runs old programs with a newer torch. What was removed in between is read out
of both wheels: ``torch._six``, ``torchvision.models.utils``, ``torch.symeig``.
"""

from __future__ import annotations

import ast
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from warnings import catch_warnings, simplefilter

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from gpuinstall.catalog.listing import family_wheels
from gpuinstall.catalog.pages import parse_page
from gpuinstall.errors import InstallationError
from gpuinstall.finding import Reason
from gpuinstall.learned.reader import Reader
from gpuinstall.learned.store import learned_store
from gpuinstall.plan.companions import PAIRED
from gpuinstall.wheels.python_names import PythonNames

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuinstall.catalog import Wheel
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.plan.requirement import ParsedRequirement
    from gpuinstall.session import Session

MOST_FILES = 2000
"""How many sources of a project to read; a repository of a paper has some hundred."""

MOST_SHOWN = 12
_LOCAL = re.compile(r"\+[\w.]+")
_NOT_OURS = {"node_modules", "site-packages", "build", "dist", "__pycache__"}


class Use(NamedTuple):
    """A name of a package in a project's source."""

    name: str
    """Dotted, ``torch.utils.data.DataLoader``."""

    path: Path
    line: int

    @property
    def package(self) -> str:
        """The package that it is of."""
        return self.name.partition(".")[0]


def lost_names(
    moved: Iterable[ParsedRequirement],
    resolution: Resolution,
    session: Session,
) -> list[Reason]:
    """Return one warning for each name that the project uses, and that only the requested version has.

    Args:
        moved: The requirements that are not held to.
        resolution: What is locked instead.
        session: The sources and the clients of the run; the project's sources are those below its folder.
    """
    reasons = []
    uses = None
    for requirement in moved:
        name = requirement.name
        if name not in PAIRED or name not in resolution.versions:
            continue
        if uses is None:
            uses = names_used(session.folder, PAIRED)
        own_uses = [use for use in uses if use.package == name]
        if not own_uses:
            continue
        # A wheel that cannot be read says nothing of its names.
        with suppress(InstallationError):
            reasons += _lost_names_of(
                requirement,
                own_uses,
                resolution,
                session,
            )
    more = len(reasons) - MOST_SHOWN
    if more > 0:
        message = f"{more} more names that this torch no longer has"
        reasons[MOST_SHOWN:] = [Reason("lost-name", message)]
    return reasons


def _lost_names_of(
    requirement: ParsedRequirement,
    uses: Iterable[Use],
    resolution: Resolution,
    session: Session,
) -> list[Reason]:
    package = requirement.name
    version = resolution.versions[package]
    wheels = _listed_wheels(package, resolution, session)
    old_wheel = _newest_requested(wheels, requirement)
    new_wheels = [wheel for wheel in wheels if str(wheel.version) == version]
    if old_wheel is None or not new_wheels:
        return []
    reader = Reader(
        session.sources,
        session.client,
        learned_store(),
        session.reporter,
    )
    old = PythonNames(reader.open(old_wheel))
    new = PythonNames(reader.open(new_wheels[0]))
    reasons = {}
    for use in uses:
        name = use.name
        if name in reasons or new.has(name) or not old.has(name):
            continue
        path = os.path.relpath(use.path, session.folder)
        message = f"{path}:{use.line}: {package} {version} no longer has {name}"
        reasons[name] = Reason("lost-name", message)
    return list(reasons.values())


def _newest_requested(
    wheels: Iterable[Wheel],
    requirement: ParsedRequirement,
) -> Wheel | None:
    """Return the newest wheel that was requested; None if none is listed."""
    # What a build was made with, as in 2.0.1+cu118, says nothing of its names.
    text = _LOCAL.sub("", str(requirement.specifier))
    specifier = SpecifierSet(text)
    requested = []
    for wheel in wheels:
        version = Version(wheel.version.public)
        if version in specifier:
            requested.append(wheel)
    return max(requested, key=lambda wheel: wheel.version, default=None)


def _listed_wheels(
    package: str,
    resolution: Resolution,
    session: Session,
) -> list[Wheel]:
    """Return the wheels of a package that the sources list."""
    backend = resolution.target.backend
    wheels = list(
        family_wheels(
            session.sources,
            session.client,
            backend,
            package,
        )
    )
    page = session.page_of(package)
    if page:
        wheels += parse_page(page)
    return wheels


def names_used(folder: Path, packages: Iterable[str]) -> list[Use]:
    """Return the names of some packages in the Python sources below a folder, in the order of the files."""
    requested = frozenset(packages)
    uses = []
    for path in _sources(folder):
        # Of Python 2, or no text at all.
        with suppress(OSError, SyntaxError, ValueError), catch_warnings():
            # An unknown escape is not ours to report.
            simplefilter("ignore")
            tree = ast.parse(path.read_bytes())
            for name, line in _names_in(tree, requested):
                uses.append(Use(name, path, line))
    return uses


def _sources(folder: Path) -> Iterator[Path]:
    """Yield the Python files of a project, without its environments and what is hidden."""
    remaining = MOST_FILES
    for parent, folders, files in os.walk(folder):
        own_folders = [name for name in folders if _is_of_project(Path(parent, name))]
        folders[:] = sorted(own_folders)
        for name in sorted(files):
            if name.endswith(".py") and remaining:
                remaining -= 1
                yield Path(parent, name)


def _is_of_project(folder: Path) -> bool:
    if folder.name in _NOT_OURS or folder.name.startswith("."):
        return False
    return not (folder / "pyvenv.cfg").exists()


def _names_in(tree: ast.Module, packages: frozenset[str]) -> Iterator[tuple[str, int]]:
    """Yield the dotted names that a source takes from packages, each with its line."""
    origins: dict[str, str] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        for name, own_name, origin in _imported(node):
            package = name.partition(".")[0]
            if package in packages:
                origins[own_name] = origin
                yield name, node.lineno
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        first, _, rest = _dotted(node).partition(".")
        if first in origins:
            yield f"{origins[first]}.{rest}", node.lineno


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str, str]]:
    """Yield what an import names, the name that it binds, and what that name stands for."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            package = alias.name.partition(".")[0]
            if alias.asname:
                yield alias.name, alias.asname, alias.name
            else:
                yield alias.name, package, package
    elif node.module and not node.level:
        for alias in node.names:
            name = node.module
            if alias.name != "*":
                name = f"{name}.{alias.name}"
            yield name, alias.asname or alias.name, name


def _dotted(node: ast.expr) -> str:
    """Return ``torch.nn.Module`` for such an expression, and nothing for another."""
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            owner = _dotted(node.value)
            return f"{owner}.{node.attr}" if owner else ""
        case _:
            return ""
