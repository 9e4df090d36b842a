"""``gpuinstall shellenv``: the decision for plain uv and pip, as lines that a shell evaluates."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from gpuinstall.cli import options
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.errors import NoBuildError
from gpuinstall.export.shell import Shell, lines, omissions, variables

if TYPE_CHECKING:
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.sources import Sources


@click.command("shellenv", help='Print what plain uv has to know: eval "$(gpuinstall shellenv)".')
@options.venv
@click.option("--shell", type=click.Choice(get_args(Shell)), default="sh", help="The shell that evaluates it (sh).")
@options.torch_index
@framed("shellenv")
def command(terminal: Terminal, venv: str, shell: Shell, torch_index: str | None) -> Outcome:
    """Print the variables."""
    from gpuinstall.environments.environment import CONSTRAINTS, read_marker
    from gpuinstall.environments.paths import EnvironmentPaths
    from gpuinstall.sources import read_sources

    sources = read_sources(torch_index or options.read_project_config().torch_index, os.environ, Path.cwd())
    place = EnvironmentPaths.at(Path(venv))
    marker, constraints = read_marker(place.venv), place.venv / CONSTRAINTS
    backend = marker.backend if marker else planned_backend(sources, terminal)
    said = variables(backend, sources, constraints if marker and constraints.is_file() else None)
    for omission in omissions(backend, sources):
        terminal.warn(omission)
    text = lines(said, shell)
    data = {"shell": shell, "backend": backend, "variables": said, "text": text}
    return Outcome(data, lambda screen: screen.line(text.removesuffix("\n")))


def planned_backend(sources: Sources, terminal: Terminal) -> str:
    """Choose for this machine, where there is no environment yet; raise what a refusal raises."""
    from gpuinstall.learned.store import known_catalog
    from gpuinstall.plan import choose
    from gpuinstall.plan.values import error_of

    this, config = options.MachineOptions(), options.read_project_config()
    machine = options.read_selected_machine(this, terminal)
    request = options.build_request(options.RequestOptions(), config, machine=this)
    plan = choose(machine, request, replace(known_catalog(sources.torch_index), torch_index=sources.torch_index))
    if plan.choice is None:
        raise error_of(plan, machine) or NoBuildError("refused", "no build fits")
    return plan.choice.build.backend.tag
