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
        own = [use for use in uses if use.name.partition(".")[0] == name]
        if own:
            # A wheel that cannot be read says nothing of its names.
            with suppress(InstallationError):
                reasons += _lost(own, requirement, resolution, session)
    more = len(reasons) - MOST_SHOWN
    if more > 0:
        message = f"{more} more names that this torch no longer has"
        reasons[MOST_SHOWN:] = [Reason("lost-name", message)]
    return reasons


def _lost(
    uses: Iterable[Use],
    requirement: ParsedRequirement,
    resolution: Resolution,
    session: Session,
) -> list[Reason]:
    package = requirement.name
    reader = Reader(session.sources, session.client, learned_store(), session.reporter)
    wheels = _listed(package, resolution, session)
    version = resolution.versions[package]
    new_wheel = next((wheel for wheel in wheels if str(wheel.version) == version), None)
    # What a build was made with, as in 2.0.1+cu118, says nothing of its names.
    requested = SpecifierSet(_LOCAL.sub("", str(requirement.specifier)))
    old_wheels = [wheel for wheel in wheels if Version(wheel.version.public) in requested]
    old_wheel = max(old_wheels, key=lambda wheel: wheel.version, default=None)
    if new_wheel is None or old_wheel is None:
        return []
    old = PythonNames(reader.open(old_wheel))
    new = PythonNames(reader.open(new_wheel))
    reasons = []
    told = set()
    for use in uses:
        if use.name in told or new.has(use.name) or not old.has(use.name):
            continue
        told.add(use.name)
        path = os.path.relpath(use.path, session.folder)
        message = f"{path}:{use.line}: {package} {version} no longer has {use.name}"
        reasons.append(Reason("lost-name", message))
    return reasons


def _listed(
    package: str,
    resolution: Resolution,
    session: Session,
) -> list[Wheel]:
    """Return the wheels of a package that the sources list."""
    backend = resolution.target.backend
    wheels = list(family_wheels(session.sources, session.client, backend, package))
    page = session.page_of(package)
    if page:
        wheels += parse_page(page)
    return wheels


def names_used(folder: Path, packages: Iterable[str]) -> list[Use]:
    """Return the names of some packages in the Python sources below a folder, in the order of the files."""
    wanted = frozenset(packages)
    uses = []
    for path in _sources(folder):
        with suppress(OSError, SyntaxError, ValueError), catch_warnings():  # Python 2, no text
            simplefilter("ignore")  # an unknown escape is not ours to report
            tree = ast.parse(path.read_bytes())
            uses += [Use(name, path, line) for name, line in _names_in(tree, wanted)]
    return uses


def _sources(folder: Path) -> Iterator[Path]:
    """Yield the Python files of a project, without its environments and what is hidden."""
    left = MOST_FILES
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if _is_of_project(Path(place, name)))
        for name in sorted(files):
            if name.endswith(".py") and left:
                left -= 1
                yield Path(place, name)


def _is_of_project(folder: Path) -> bool:
    if folder.name in _NOT_OURS or folder.name.startswith("."):
        return False
    return not (folder / "pyvenv.cfg").exists()


def _names_in(tree: ast.Module, packages: frozenset[str]) -> Iterator[tuple[str, int]]:
    """Yield the dotted names that a source takes from packages, each with its line."""
    bound: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name, own_name, value in _imported(node):
                if name.partition(".")[0] in packages:
                    bound[own_name] = value
                    yield name, node.lineno
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            first, _, rest = _dotted(node).partition(".")
            if first in bound:
                yield f"{bound[first]}.{rest}", node.lineno


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
            name = node.module if alias.name == "*" else f"{node.module}.{alias.name}"
            yield name, alias.asname or alias.name, name


def _dotted(node: ast.expr) -> str:
    """Return ``torch.nn.Module`` for such an expression, and nothing for another."""
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return node.id if isinstance(node, ast.Name) else ""
