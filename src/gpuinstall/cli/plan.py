"""``gpuinstall plan``: choose the build, with reasons; change nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from gpuinstall.catalog import load_catalog
from gpuinstall.cli import asked, options
from gpuinstall.cli.envelope import Outcome, Status
from gpuinstall.errors import GpuInstallError, MachineError, NoBuildError, UsageError
from gpuinstall.plan import choose

if TYPE_CHECKING:
    from gpuinstall.catalog import Catalog
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.config import Config
    from gpuinstall.machine import Gpu, Machine
    from gpuinstall.plan import Plan
    from gpuinstall.plan.values import Choice, Rejection
    from gpuinstall.request import Request


@click.command("plan", help="Choose the build for a machine, with reasons; change nothing.")
@asked.request_options
@asked.machine_options
@click.option("--all", "everything", is_flag=True, help="Show every build that was passed over, and why.")
@click.option("--why", metavar="TAG", help="Say why this backend (or build, or torch version) was passed over.")
@click.option("--live", is_flag=True, help="Ask the indexes what they list today.")
@options.command("plan")
def command(
    terminal: Terminal,
    request: asked.AskedRequest,
    machine: asked.AskedMachine,
    everything: bool,
    why: str | None,
    live: bool,
) -> Outcome:
    """Plan."""
    config = asked.here()
    meant = asked.asked_machine(machine, terminal)
    wanted = asked.asked_request(request, config, machine=machine)
    catalog = catalog_for(request, config)
    if live:
        catalog = _live(catalog, meant, wanted, asked.asked_index(request, config), terminal)
    plan = choose(meant, wanted, catalog)

    def show(screen: Terminal) -> None:
        if why is not None:
            screen.line(answer(why, plan))
        elif everything:
            show_rejected(plan, screen)
        else:
            show_plan(plan, meant, screen)

    return outcome(plan, show)


def catalog_for(request: asked.AskedRequest, config: Config) -> Catalog:
    """Load the catalogue, with the torch index that the user names."""
    index = asked.asked_index(request, config)
    return replace(load_catalog(), torch_index=index.rstrip("/")) if index else load_catalog()
