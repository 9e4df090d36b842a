"""``gpuinstall remove``: take packages out of the request, and what only they needed out of the environment."""

from __future__ import annotations

import click

from gpuinstall.cli.install import change_request
from gpuinstall.cli.options import SOURCING, CommandOptions
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.cli.terminal import Terminal


@click.command(
    "remove", help="Remove packages from the environment, and what only they needed."
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@framed("remove", "venv", "dry_run", "replace", *SOURCING)
def command(
    terminal: Terminal, options: CommandOptions, *, names: tuple[str, ...]
) -> Outcome:
    """Remove packages."""
    with options.open(terminal, without=names) as project:
        return change_request(project, options)
