"""``gpuinstall env``: the environments that were made here: to list them, to go back to the one before, to remove."""

from __future__ import annotations

import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import UsageError
from gpuinstall.base.text import visible
from gpuinstall.base.units import display_path, readable
from gpuinstall.cli import options
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.cli.terminal import Terminal
from gpuinstall.environments.environment import read_marker
from gpuinstall.install.swap import size_of
from gpuinstall.project import Project, Settings, open_project

if TYPE_CHECKING:
    from collections.abc import Mapping


@click.group("env", help="List, restore and remove the environments made by gpuinstall.")
def command() -> None:
    """Manage environments."""


@command.command("list", help="List your environments and those of this folder.")
@framed("env")
def _list(_terminal: Terminal) -> Outcome:
    from gpuinstall.environments.records import remembered

    venvs = set(remembered())
    here = EnvironmentPaths.at(Path(".venv")).venv
    if read_marker(here):
        venvs.add(here)
    rows = [_row(EnvironmentPaths(venv)) for venv in sorted(venvs)]

    def show(screen: Terminal) -> None:
        for row in rows:
            size = readable(row["bytes"])
            if row["previous"]:
                size += f", the previous one {readable(row['previous']['bytes'])}"
            versions = f"torch {row['torch']} · Python {row['python']}"
            screen.line(display_path(Path(row["path"])))
            screen.line(f"    {versions} · {row['status']} · {size}")
        if not rows:
            screen.line("none; gpuinstall install makes one")

    return Outcome({"environments": rows}, show)


def _row(paths: EnvironmentPaths) -> dict[str, Any]:
    marker = read_marker(paths.venv)
    previous = None
    if paths.has_previous:
        previous = {"path": str(paths.previous), "bytes": size_of(paths.previous)}
    return {
        "path": str(paths.venv),
        "torch": marker and marker.torch,
        "python": marker and marker.python,
        "backend": marker and marker.backend,
        "status": marker and marker.verdict.get("status"),
        "bytes": size_of(paths.venv),
        "previous": previous,
    }


@command.command("rollback", help="Go back to the previous environment and its lock.")
@options.venv
@click.option(
    "--into", is_flag=True, help="Undo the last change of an environment that others made."
)
@click.option("--python", metavar="PATH", help="With --into: its interpreter.")
@click.option(
    "--replace",
    is_flag=True,
    help="Also replace what gpuinstall did not make, or what came or moved since.",
)
@framed("env")
def _rollback(
    terminal: Terminal,
    *,
    venv: Path,
    into: bool,
    python: str | None,
    replace: bool,
) -> Outcome:
    from gpuinstall.cli.install import interpreter_of_others

    with open_project(Path.cwd(), Settings(venv=venv), terminal) as project:
        if into:
            return _restore_files(interpreter_of_others(python, venv), project, replace=replace)
        if python is not None:
            raise UsageError(
                "options-apart",
                "--python is for an environment that others made",
                hint="gpuinstall env rollback --into --python PATH",
            )
        return _restore_environment(project, replace=replace)


def _restore_environment(project: Project, *, replace: bool) -> Outcome:
    """Exchange an environment for the one that it has replaced."""
    from gpuinstall.cli.install import activation_command, undo_command
    from gpuinstall.environments.environment import installed_packages
    from gpuinstall.environments.ownership import is_environment
    from gpuinstall.install.transaction import OwnPlace
    from gpuinstall.lock.lock import compare_versions

    start = monotonic()
    OwnPlace(project).roll_back(replace=replace)
    paths = project.paths
    marker = read_marker(paths.venv)
    changes = compare_versions(installed_packages(paths.previous), installed_packages(paths.venv))
    label = "Changes"
    for line in map(str, changes or ["no version changes"]):
        project.reporter.step(label, line)
        label = ""
    data = {
        "plan": None,
        "lock": marker and {"path": str(paths.folder / marker.lock), "sha256": marker.lock_sha256},
        "environment": {
            "path": str(paths.venv),
            "python": marker and marker.python,
            "torch": marker and marker.torch,
            "backend": marker and marker.backend,
        },
        "previous": {"path": str(paths.previous), "bytes": size_of(paths.previous)},
        "verdict": marker and marker.verdict,
        "bytes": 0,
        "seconds": round(monotonic() - start, 3),
    }

    def show(screen: Terminal) -> None:
        venv = display_path(paths.venv)
        if marker:
            screen.field("Environment", f"{venv} · torch {marker.torch} · Python {marker.python}")
            screen.field("Lock", f"{marker.lock}, restored")
        else:
            screen.field("Environment", f"{venv}, as it was before; gpuinstall did not make it")
        screen.field("Undo", undo_command(paths))
        if is_environment(paths.venv):
            screen.field("Ready", activation_command(paths.venv))

    return Outcome(data, show)


def _restore_files(python: Path, project: Project, *, replace: bool) -> Outcome:
    """Bring back the files that were replaced in an environment of others."""
    from gpuinstall.install.foreign import inspect_foreign
    from gpuinstall.install.transaction import ForeignPlace
    from gpuinstall.lock.lock import compare_versions

    before = inspect_foreign(python)
    ForeignPlace(before, project).roll_back(replace=replace)
    environment = inspect_foreign(before.python)
    changes = compare_versions(before.versions, environment.versions)
    torch = environment.versions.get("torch", "")
    data = {
        "plan": None,
        "environment": {
            "path": str(environment.prefix),
            "python": environment.version,
            "torch": torch,
            "backend": torch.partition("+")[2],
            "status": "changed",
        },
        "changes": [change._asdict() for change in changes],
        "verdict": None,
        "bytes": 0,
    }

    def show(screen: Terminal) -> None:
        for change in changes:
            screen.field("Change", str(change))
        versions = f"torch {torch or 'none'} · Python {environment.version}"
        place = display_path(environment.prefix)
        screen.field("Environment", f"{place} · {versions}, as it was before")

    return Outcome(data, show)


_YES = click.option(
    "-y",
    "--yes",
    is_flag=True,
    help="Do not ask; also remove packages that were added by pip or uv.",
)


@command.command("remove", help="Remove the environment and its previous one; keep the locks.")
@options.venv
@click.option("--previous", is_flag=True, help="Remove only the previous environment.")
@_YES
@framed("env")
def _remove(terminal: Terminal, *, venv: Path, previous: bool, yes: bool) -> Outcome:
    from gpuinstall.install.removal import find_removable, remove

    paths = EnvironmentPaths.at(venv)
    if not yes:
        folders = find_removable(paths, previous_only=previous, with_packages=False)
        _confirm(folders, terminal)
    return _removed(remove(paths, terminal, previous_only=previous, with_packages=yes))


@command.command("prune", help="Remove previous environments, and those of scripts in the cache.")
@_YES
@framed("env")
def _prune(terminal: Terminal, *, yes: bool) -> Outcome:
    from gpuinstall.install.removal import find_prunable, prune

    folders = find_prunable()
    if folders and not yes:
        _confirm(folders, terminal)
    return _removed(prune(terminal))


def _confirm(folders: Mapping[Path, int], terminal: Terminal) -> None:
    """Ask whether to remove folders of so many bytes.

    Raises:
        UsageError: if the answer is no, or nobody can answer.
    """
    places = [f"{display_path(folder)} ({readable(size)})" for folder, size in folders.items()]
    names = " and ".join(places)
    if terminal.as_json or not sys.stdin or not sys.stdin.isatty():
        raise UsageError(
            "not-confirmed",
            f"removing {names} requires confirmation",
            hint="Run it again with --yes",
        )
    if not click.confirm(visible(f"Remove {names}?"), err=True):
        raise UsageError("not-confirmed", "nothing was removed")


def _removed(folders: Mapping[Path, int]) -> Outcome:
    """Return which folders were removed, with their bytes."""

    def show(screen: Terminal) -> None:
        for folder, size in folders.items():
            screen.field("Removed", f"{display_path(folder)}, {readable(size)}")
        if not folders:
            screen.line("nothing to remove")

    rows = [{"path": str(folder), "bytes": size} for folder, size in folders.items()]
    return Outcome({"removed": rows}, show)
