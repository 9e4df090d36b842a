"""The report as one HTML page that holds everything: nothing is loaded, and thousands of nodes stay readable. Pure.

Nodes that fared alike are one row; every node has a small square of its own, whose title says who it is.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from gpuinstall.fleet.hostlist import compress
from gpuinstall.fleet.report import STEPS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuinstall.fleet.report import FleetReport, NodeRow

MOST_SQUARES = 20_000
"""How many nodes have a square of their own; of a larger fleet those that are not well have."""

_STYLE = """
:root { color-scheme: light dark }
:root { --ok: #2e7d32; --failed: #c62828; --lost: #6a1b9a; --never: #b26a00; --stale: #546e7a }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #8884; vertical-align: top }
td:first-child { overflow-wrap: anywhere; max-width: 24rem; font-family: ui-monospace, monospace; font-size: .85rem }
.why { font-size: .85rem; opacity: .85 } code { font-size: .85rem; overflow-wrap: anywhere; white-space: pre-wrap }
.ok { color: var(--ok) } .failed { color: var(--failed) } .lost { color: var(--lost) }
.never { color: var(--never) } .stale { color: var(--stale) } .failed, .lost, .never, .stale { font-weight: 600 }
.map { display: flex; flex-wrap: wrap; gap: 2px }
.map i { width: 10px; height: 10px; border-radius: 2px; background: currentColor }
"""


def page(report: FleetReport, title: str) -> str:
    """Write the page of a run."""
    well = len(report.ok)
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{escape(title)}: {well} of {len(report.rows)} nodes</title><style>{_STYLE}</style></head><body>",
            f"<h1>{escape(title)}: {well} of {len(report.rows)} nodes are proven</h1>",
            *_squares(report),
            "<h2>Nodes and steps</h2><table><thead><tr><th>nodes<th>",
            *(f"<th>{step}" for step in STEPS),
            "</thead><tbody>",
            *(_row(row, nodes) for row, nodes in report.alike()),
            "</tbody></table>",
            *_locks(report),
            *_updates(report),
            *_together(report),
            "</body></html>\n",
        ]
    )


def _squares(report: FleetReport) -> Iterator[str]:
    rows = report.rows if len(report.rows) <= MOST_SQUARES else report.bad[:MOST_SQUARES]
    if len(rows) < len(report.rows):
        yield f"<p>Squares stand for the {len(rows)} nodes that are not well."
    yield '<div class="map">'
    for row in rows:
        state = row.worst
        yield f'<i class="{_class(state.state)}" title="{escape(row.node)}: {escape(str(state))}"></i>'
    yield "</div>"


def _row(row: NodeRow, nodes: tuple[str, ...]) -> str:
    states = [row.steps.get(step) for step in STEPS]
    cells = "".join(f'<td class="{_class(state.state)}">{escape(str(state))}' if state else "<td>" for state in states)
    worst = row.worst
    why = f"<div>{escape(worst.message)}</div>" if worst.state != "ok" and worst.message else ""
    do = f"<code>{escape(worst.hint)}</code>" if why and worst.hint else ""
    note = f'<tr><td colspan="7" class="why">{why}{do}' if why else ""
    return f"<tr><td>{escape(compress(nodes))}<td>{len(nodes)}{cells}{note}"


def _locks(report: FleetReport) -> Iterator[str]:
    yield "<h2>Locks</h2><table><thead><tr><th>lock<th>nodes<th>Python<th>NCCL<th>sha256</thead><tbody>"
    for group in report.groups:
        told = (group.name, compress(group.nodes), group.python, group.nccl or "–", group.sha256 or "–")
        yield "<tr>" + "".join(f"<td>{escape(text)}" for text in told)
    yield "</tbody></table>"
    if apart := report.plan.get("apart"):
        yield f'<p class="failed">{escape(str(apart))}'


def _updates(report: FleetReport) -> Iterator[str]:
    updates = report.plan.get("updates", ())
    if updates:
        yield "<h2>What newer drivers would give</h2><table><thead><tr><th>nodes<th>update</thead><tbody>"
        yield from (f"<tr><td>{escape(each['nodes'])}<td>{escape(each['message'])}" for each in updates)
        yield "</tbody></table>"


def _together(report: FleetReport) -> Iterator[str]:
    groups = report.together.get("groups", ())
    if groups:
        yield "<h2>All-reduce over nodes</h2><table><thead><tr><th>nodes<th>by<th>GB/s<th>link GB/s</thead><tbody>"
        for one in groups:
            told = (one["good"], one["backend"], one["gb_s"] or "–", one["link_gb_s"] or "–")
            yield "<tr>" + "".join(f"<td>{escape(str(text))}" for text in told)
        yield "</tbody></table>"


def _class(state: str) -> str:
    return state.partition(" ")[0]
