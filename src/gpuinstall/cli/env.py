"""``gpuinstall env``: the environments that were made here, and their removal."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from gpuinstall.cli import install_options, options
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.cli.terminal import Terminal
from gpuinstall.environments.environment import read_marker
from gpuinstall.environments.paths import EnvironmentPaths
from gpuinstall.errors import UsageError
from gpuinstall.install.swap import size_of
from gpuinstall.text import visible
from gpuinstall.units import display_path, readable


@click.group("env", help="List and remove the environments made by gpuinstall.")
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
            screen.prose(f"    {versions} · {row['status']} · {size}", 4)
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


@command.command("remove", help="Remove the environment and its previous one; keep the locks.")
@options.venv
@click.option("--previous", is_flag=True, help="Remove only the previous environment.")
@click.option(
    "-y",
    "--yes",
    is_flag=True,
    help="Do not ask; also remove packages that were added by pip or uv.",
)
@install_options.wait
@framed("env")
def _remove(terminal: Terminal, *, venv: Path, previous: bool, yes: bool, wait: float) -> Outcome:
    from gpuinstall.install.removal import find_removable, remove

    paths = EnvironmentPaths.at(venv)
    folders = find_removable(paths, previous_only=previous, with_packages=yes)
    if not yes:
        places = [f"{display_path(folder)} ({readable(size)})" for folder, size in folders.items()]
        names = " and ".join(places)
        if terminal.as_json or not sys.stdin or not sys.stdin.isatty():
            raise UsageError(
                "not-confirmed",
                f"removing {names} requires confirmation",
                hint="the same with --yes",
            )
        if not click.confirm(visible(f"Remove {names}?"), err=True):
            raise UsageError("not-confirmed", "nothing was removed")
    removed = remove(paths, wait, terminal, previous_only=previous, with_packages=yes)

    def show(screen: Terminal) -> None:
        for folder, size in removed.items():
            screen.field("Removed", f"{display_path(folder)}, {readable(size)}")

    rows = [{"path": str(folder), "bytes": size} for folder, size in removed.items()]
    return Outcome({"removed": rows}, show)
