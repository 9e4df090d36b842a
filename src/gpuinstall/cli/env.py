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

    here = EnvironmentPaths.at(Path(".venv")).venv
    venvs = sorted({*remembered(), *([here] if read_marker(here) else [])})
    rows: list[dict[str, Any]] = []
    for paths in map(EnvironmentPaths, venvs):
        marker = read_marker(paths.venv)
        previous = paths.previous if paths.has_previous else None
        rows.append(
            {
                "path": str(paths.venv),
                "torch": marker and marker.torch,
                "python": marker and marker.python,
                "backend": marker and marker.backend,
                "status": marker and marker.verdict.get("status"),
                "bytes": size_of(paths.venv),
                "previous": previous and {"path": str(previous), "bytes": size_of(previous)},
            }
        )

    def show(screen: Terminal) -> None:
        for row in rows:
            screen.line(display_path(Path(row["path"])))
            previous = (
                f", the previous one {readable(row['previous']['bytes'])}"
                if row["previous"]
                else ""
            )
            size = f"{readable(row['bytes'])}{previous}"
            screen.prose(
                f"    torch {row['torch']} · Python {row['python']} · {row['status']} · {size}", 4
            )
        if not rows:
            screen.line("none; gpuinstall install makes one")

    return Outcome({"environments": rows}, show)


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
def _remove(terminal: Terminal, *, venv: str, previous: bool, yes: bool, wait: float) -> Outcome:
    from gpuinstall.install.removal import find_removable, remove

    paths = EnvironmentPaths.at(Path(venv))
    folders = find_removable(paths, previous_only=previous, with_packages=yes)
    if not yes:
        named = " and ".join(
            f"{display_path(folder)} ({readable(size)})" for folder, size in folders.items()
        )
        if terminal.as_json or not sys.stdin or not sys.stdin.isatty():
            message = f"removing {named} requires confirmation"
            raise UsageError("not-confirmed", message, hint="the same with --yes")
        if not click.confirm(visible(f"Remove {named}?"), err=True):
            raise UsageError("not-confirmed", "nothing was removed")
    gone = remove(paths, wait, terminal, previous_only=previous, with_packages=yes)

    def show(screen: Terminal) -> None:
        for folder, size in gone.items():
            screen.field("Removed", f"{display_path(folder)}, {readable(size)}")

    return Outcome(
        {"removed": [{"path": str(folder), "bytes": size} for folder, size in gone.items()]}, show
    )
