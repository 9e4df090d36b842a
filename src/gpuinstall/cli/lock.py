"""``gpuinstall lock``: write the lock that a team commits."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuinstall.cli import asked, options
from gpuinstall.cli.envelope import Outcome
from gpuinstall.cli.install import named
from gpuinstall.cli.machine import machine_line

if TYPE_CHECKING:
    from gpuinstall.cli.terminal import Terminal


@click.command("lock", help="Write pylock.<target>.toml for each kind of machine; without a target, for this one.")
@asked.request_options
@asked.machine_options
@click.option("--upgrade", is_flag=True, help="Make a new lock, whatever there is.")
@click.option("--offline", is_flag=True, envvar="GPUINSTALL_OFFLINE", help="Ask no server for anything.")
@options.command("lock")
def command(
    terminal: Terminal, request: asked.AskedRequest, machine: asked.AskedMachine, *, upgrade: bool, offline: bool
) -> Outcome:
    """Lock."""
    from gpuinstall.catalog import load_catalog
    from gpuinstall.lock.means import open_means
    from gpuinstall.lock.writing import Wanted, write_one
    from gpuinstall.sources import read_sources

    config, folder = asked.here(), Path.cwd()
    meant = asked.asked_machine(machine, terminal)
    sources = read_sources(asked.asked_index(request, config), os.environ, folder)
    terminal.step("Machine", machine_line(meant))
    requested = asked.asked_request(request, config, machine=machine)
    wanted = Wanted(folder, meant, requested, exact=named(request, config), upgrade=upgrade)
    catalog = replace(load_catalog(), torch_index=sources.torch_index)
    with open_means(sources, terminal, offline=offline) as means:
        written = write_one(wanted, catalog, means)

    def show(screen: Terminal) -> None:
        count = len(written.lock.pylock.packages)
        screen.field("Lock", f"{written.path.name}: {count} packages, every file hashed ({written.status})")

    return Outcome({"locks": [written.to_dict()]}, show)
