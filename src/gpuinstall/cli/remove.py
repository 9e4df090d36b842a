"""``gpuinstall remove``: take packages out of the request, and what only they needed out of the environment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuinstall.cli import install_options, options
from gpuinstall.cli.install import carry_out, prepare
from gpuinstall.cli.outcome import Outcome, framed

if TYPE_CHECKING:
    from gpuinstall.cli.terminal import Terminal


@click.command("remove", help="Take packages out of the environment, with what only they needed.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@options.torch_index
@options.venv
@install_options.dry_run
@install_options.replacing
@install_options.keep
@install_options.wait
@options.only_binary
@options.offline
@framed("remove")
def command(
    terminal: Terminal,
    *,
    names: tuple[str, ...],
    torch_index: str | None,
    venv: str,
    dry_run: bool,
    replacing: bool,
    keep: bool,
    wait: float,
    only_binary: bool,
    offline: bool,
) -> Outcome:
    """Remove packages."""
    from gpuinstall.session import open_session

    nothing, here = options.RequestOptions(torch_index=torch_index), options.MachineOptions()
    prepared = prepare(terminal, nothing, here, Path(venv), without=names, offline=offline)
    wanted = replace(prepared.options, replace=replacing, keep=keep, wait=wait)
    only_binary = only_binary or options.read_project_config().only_binary
    session = open_session(prepared.sources, terminal, offline=offline, only_binary=only_binary)
    return carry_out(session, wanted, prepared.catalog, dry_run=dry_run)
