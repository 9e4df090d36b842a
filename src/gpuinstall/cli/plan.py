"""``gpuinstall plan``: choose the build, with reasons; change nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from gpuinstall.catalog import load_catalog
from gpuinstall.cli import asked, options
from gpuinstall.cli.envelope import Outcome, written
from gpuinstall.cli.plan_view import answer, show_plan, show_rejected
from gpuinstall.plan import choose
from gpuinstall.plan.companions import PAIRED
from gpuinstall.plan.requirement import normalised
from gpuinstall.plan.values import Reason, error_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuinstall.catalog import Catalog
    from gpuinstall.cli.envelope import Status
    from gpuinstall.cli.terminal import Terminal
    from gpuinstall.machine import Machine
    from gpuinstall.plan import Plan
    from gpuinstall.request import Request

_STATUS: dict[str, Status] = {"ok": "success", "cpu": "success", "partial": "partial", "refused": "error"}


@click.command("plan", help="Choose the build for a machine, with reasons; change nothing.")
@asked.request_options
@asked.machine_options
@click.option("--all", "everything", is_flag=True, help="Show every build that was passed over, and why.")
@click.option("--why", metavar="TAG", help="Say why a backend, a torch version or a build was passed over.")
@click.option("--live", is_flag=True, help="Ask the indexes what they list today.")
@options.command("plan")
def command(
    terminal: Terminal,
    request: asked.AskedRequest,
    machine: asked.AskedMachine,
    *,
    everything: bool,
    why: str | None,
    live: bool,
) -> Outcome:
    """Plan."""
    config = asked.here()
    meant = asked.asked_machine(machine, terminal)
    wanted = asked.asked_request(request, config, machine=machine)
    index = asked.asked_index(request, config)
    catalog = _of_index(index) if index else load_catalog()
    if live:
        catalog = _live(catalog, meant, wanted, index, terminal)
    plan = _with_what_is_open(choose(meant, wanted, catalog))

    def show(screen: Terminal) -> None:
        if why is not None:
            screen.line(answer(why, plan))
        elif everything:
            show_rejected(plan, meant, screen)
        else:
            show_plan(plan, meant, screen)

    return outcome(plan, meant, show)


def outcome(plan: Plan, machine: Machine, show: Callable[[Terminal], None]) -> Outcome:
    """Wrap a plan; a refusal's error has the code of its first reason."""
    error = error_of(plan, machine)
    return Outcome(
        data=plan.to_dict(),
        show=show,
        status=_STATUS[plan.status],
        exit_code=plan.exit_code,
        errors=(written(error),) if error else (),
    )


def _with_what_is_open(plan: Plan) -> Plan:
    """Warn that what other packages demand of torch is known only after resolving."""
    asked = plan.choice.requirements if plan.choice else ()
    others = ", ".join(text for text in asked if normalised(re.split(r"[^\w.-]", text)[0]) not in PAIRED)
    if not others:
        return plan
    message = f"not looked at: what {others} demands of torch; install and lock resolve it"
    return replace(plan, warnings=(*plan.warnings, Reason("not-resolved", message)))


def _of_index(index: str) -> Catalog:
    from gpuinstall.sources.indexes import Indexes
    from gpuinstall.sources.sources import sources_of

    return replace(load_catalog(), torch_index=sources_of(index, {}, Indexes()).torch_index)


def _live(catalog: Catalog, machine: Machine, request: Request, index: str | None, terminal: Terminal) -> Catalog:
    import os
    from pathlib import Path

    from gpuinstall.catalog.live import live_catalog
    from gpuinstall.sources import read_sources
    from gpuinstall.web import Client

    sources = read_sources(index, os.environ, Path.cwd())
    with Client(sources.certificates, logins=sources.logins) as client:
        return live_catalog(catalog, machine, request, terminal, sources=sources, client=client)
