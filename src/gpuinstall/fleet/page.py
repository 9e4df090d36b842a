"""The report as one HTML page that holds everything: nothing is loaded, and thousands of nodes stay readable.

Nodes that fared alike are one row; every node has a small square of its own, whose title says who it is.
"""

from __future__ import annotations

import html
from importlib.resources import files
from itertools import islice
from typing import TYPE_CHECKING

from gpuinstall.fleet.hostlist import compress
from gpuinstall.fleet.report import STEPS, FleetReport, ReportRow
from gpuinstall.text import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


MOST_SQUARES = 20_000
"""How many nodes have a square of their own; of a larger fleet those that are not well have."""


def page(report: FleetReport, title: str) -> str:
    """Write the page of a run."""
    title, style = f"{title}: {report.summary}", (files("gpuinstall.fleet") / "data" / "report.css").read_text("utf-8")
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width">',
            f"<title>{escape(title)}</title><style>{style}</style></head><body><h1>{escape(title)}</h1>",
            *(f'<p class="failed">{escape(fault)}' for fault in report.faults),
            *_squares(report),
            "<h2>Nodes and steps</h2><table><thead><tr><th>nodes<th>",
            *(f"<th>{step}" for step in STEPS),
            "</thead><tbody>",
            *map(_row, report.rows),
            "</tbody></table>",
            *_tables(report),
            "</body></html>\n",
        ]
    )


def _squares(report: FleetReport) -> Iterator[str]:
    rows = report.rows
    if sum(report.counts.values()) > MOST_SQUARES:
        rows = report.bad
        count = min(MOST_SQUARES, sum(len(row.nodes) for row in rows))
        yield f"<p>Squares stand for {count} of the nodes that are not well."
    yield '<div class="map">'
    squares = ((row.worst, node) for row in rows for node in row.nodes)
    for state, node in islice(squares, MOST_SQUARES):
        yield f'<i class="{_class(state.state)}" title="{node}: {escape(str(state))}"></i>'
    yield "</div>"


def _row(row: ReportRow) -> str:
    states = [row.steps.get(step) for step in STEPS]
    cells = "".join(f'<td class="{_class(state.state)}">{escape(str(state))}' if state else "<td>" for state in states)
    worst = row.worst
    why = f"<div>{escape(worst.message)}</div>" if worst.state != "ok" and worst.message else ""
    do = f"<code>{escape(worst.hint)}</code>" if why and worst.hint else ""
    note = f'<tr><td colspan="7" class="why">{why}{do}' if why else ""
    return f"<tr><td>{compress(row.nodes)}<td>{len(row.nodes)}{cells}{note}"


def _tables(report: FleetReport) -> Iterator[str]:
    locks = (
        (group.name, compress(group.nodes), group.python, group.nccl or "–", group.sha256)
        for group in report.plan.groups
    )
    yield from _table("Locks", ("lock", "nodes", "Python", "NCCL", "sha256"), locks)
    if report.plan.apart:
        yield f'<p class="failed">{escape(report.plan.apart)}'
    updates = ((row["nodes"], row["message"]) for row in report.plan.updates)
    yield from _table("What newer drivers would give", ("nodes", "update"), updates)
    jobs = ((compress(job.good), job.backend, job.gb_s or "–", job.link_gb_s or "–") for job in report.together)
    yield from _table("All-reduce over nodes", ("nodes", "by", "GB/s", "link GB/s"), jobs)


def _table(title: str, heads: Sequence[str], rows: Iterable[tuple[object, ...]]) -> Iterator[str]:
    body = ["<tr>" + "".join(f"<td>{escape(str(cell))}" for cell in row) for row in rows]
    if body:
        yield f"<h2>{title}</h2><table><thead><tr><th>{'<th>'.join(heads)}</thead><tbody>"
        yield from (*body, "</tbody></table>")


def escape(text: str) -> str:
    """Write a text from outside for HTML."""
    return html.escape(visible(text))


def _class(state: str) -> str:
    return state.partition(" ")[0]
