"""``gpuinstall remove``: take packages out of the request, and what only they needed out of the environment."""

from __future__ import annotations

from pathlib import Path

import click

from gpuinstall.base.request import Request
from gpuinstall.base.sourcing import Sourcing
from gpuinstall.cli import install_options, options
from gpuinstall.cli.install import carry_out
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.cli.terminal import Terminal
from gpuinstall.project import Settings, open_project


@click.command("remove", help="Remove packages from the environment, and what only they needed.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@options.venv
@install_options.dry_run_option
@install_options.replace
@options.sourcing
@framed("remove")
def command(
    terminal: Terminal,
    *,
    names: tuple[str, ...],
    venv: Path,
    dry_run: bool,
    replace: bool,
    sourcing: Sourcing,
) -> Outcome:
    """Remove packages."""
    from gpuinstall.install.options import InstallOptions

    settings = Settings(Request((), sourcing=sourcing), without=names, venv=venv)
    with open_project(Path.cwd(), settings, terminal) as project:
        return carry_out(project, InstallOptions(replace=replace), dry_run=dry_run)
