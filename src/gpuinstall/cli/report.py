"""``gpuinstall report``: what became of the nodes that ran a command with ``--record``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuinstall.base.errors import SomeNodesError, UsageError
from gpuinstall.base.node_records import Report, node_names, read_report
from gpuinstall.base.shell import quoted
from gpuinstall.base.text import number_of, some
from gpuinstall.cli.options import PATH, CommandOptions
from gpuinstall.cli.outcome import Outcome, framed

if TYPE_CHECKING:
    from gpuinstall.cli.terminal import Terminal


@click.command(
    "report", help="Show what became of the nodes that wrote records into DIR."
)
@click.argument("folder", metavar="DIR", type=PATH)
@framed("report", "nodes")
def command(_terminal: Terminal, options: CommandOptions, folder: Path) -> Outcome:
    """Report; exit 7 if a node failed or is missing."""
    report = read_report(folder, node_names(options.nodes) if options.nodes else ())
    if not (report.groups or report.failed or report.missing):
        raise UsageError(
            "no-records",
            f"{folder} has no records",
            hint=f"gpuinstall probe --record {quoted(folder)}   # on each node",
        )
    errors = [
        {
            "code": "node-failed",
            "message": f"{failure.node}: {failure.command}: {failure.message}",
            "hint": failure.hint,
        }
        for failure in report.failed
    ]
    errors += [
        {"code": "node-missing", "message": f"{node}: no record", "hint": None}
        for node in report.missing
    ]
    return Outcome(
        report.to_dict(),
        lambda screen: _show(screen, report),
        exit_code=SomeNodesError.exit_code if errors else 0,
        errors=tuple(errors),
    )


def _show(terminal: Terminal, report: Report) -> None:
    for group in report.groups:
        driver = f"driver {group.driver}" if group.driver else None
        facts = filter(None, (group.gpus, driver, group.lock, group.verdict))
        terminal.field(
            number_of(len(group.nodes), "node"),
            f"{' · '.join(facts)}: {some(group.nodes)}",
        )
    for failure in report.failed:
        terminal.field(
            "Failed", f"{failure.node}: {failure.command}: {failure.message}"
        )
        terminal.rows([("do", failure.hint)])
    if report.missing:
        terminal.field("Missing", some(report.missing))
