"""``gpuinstall shellenv``: the decision for plain uv and pip, as lines that a shell evaluates."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuinstall.base.shell import assignments
from gpuinstall.cli.options import CommandOptions
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.environments.environment import read_marker
from gpuinstall.environments.guard import CONSTRAINTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.cli.terminal import Terminal

_UV_TAGS = """
cpu cu80 cu90 cu91 cu92 cu100 cu101 cu102 cu110 cu111 cu112 cu113 cu114 cu115 cu116 cu117
cu118 cu120 cu121 cu122 cu123 cu124 cu125 cu126 cu128 cu129 cu130 cu132
"""
UV_TAGS = frozenset(_UV_TAGS.split())
"""The tags of CUDA and CPU builds that uv 0.13.8 takes for ``--torch-backend``."""
_OWN_VARIABLES = ("UV_TORCH_BACKEND", "UV_NO_SYNC", "UV_PROJECT_ENVIRONMENT")
"""What a shell that was set up for a project would go on with in the next one."""


@click.command(
    "shellenv",
    help='Print settings for plain uv and pip: eval "$(gpuinstall shellenv)".',
)
@framed("shellenv", "venv", "torch_index", "shell")
def command(terminal: Terminal, options: CommandOptions) -> Outcome:
    """Print the variables."""
    from gpuinstall.lock.request import LockRequest

    with options.open(terminal) as project:
        sources, folder = project.sources, project.paths.venv
        marker = read_marker(folder)
        if marker is None:
            lock_request = LockRequest(
                project.machine, project.request, project.catalog
            )
            backend = lock_request.choice.build.backend.tag
        else:
            backend = marker.backend
    values = _ended(os.environ)
    if sources.is_torch_index_requested:
        command = f"uvx --index {sources.torch_index}/{backend}"
        terminal.warn(
            f"UV_TORCH_BACKEND works with the official index only, and yours is another: {command}"
        )
    elif backend in UV_TAGS:
        values["UV_TORCH_BACKEND"] = backend
    else:
        terminal.warn(
            f"uv does not support {backend}, so UV_TORCH_BACKEND is not printed"
        )
    guards = []
    if marker and Path("pyproject.toml").is_file():
        # uv run would sync the project's own lock, with another torch. Its lock is made for every machine: no
        # constraint of this environment can hold there.
        values["UV_NO_SYNC"] = "1"
        values["UV_PROJECT_ENVIRONMENT"] = str(folder)
    elif marker and (folder / CONSTRAINTS).is_file():
        guards.append((folder / CONSTRAINTS).as_uri())
    constraints = os.environ.get("UV_CONSTRAINT", "").split()
    if constraints or guards:
        # Those that the user has set go on counting.
        others = [name for name in constraints if not _is_own_guard(name)]
        values["UV_CONSTRAINT"] = " ".join([*others, *guards]) or None
    text = assignments(values, options.shell)
    data = {
        "shell": options.shell,
        "backend": backend,
        "variables": values,
        "text": text,
    }
    return Outcome(data, lambda screen: screen.block(text))


def _ended(environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return what this shell was set up with for another project, to be ended: none of it is the user's own."""
    project = environ.get("UV_PROJECT_ENVIRONMENT")
    is_set_up = any(map(_is_own_guard, environ.get("UV_CONSTRAINT", "").split())) or (
        project is not None and read_marker(Path(project)) is not None
    )
    if not is_set_up:
        return {}
    return dict.fromkeys(name for name in _OWN_VARIABLES if name in environ)


def _is_own_guard(name: str) -> bool:
    """Whether this names the guard of an environment: only we write addresses of files there."""
    return name.startswith("file:") and name.endswith(f"/{CONSTRAINTS}")
