"""What an administrator takes from a report: lines for scontrol, metrics, a prolog's answer. Nothing is done here."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from gpuinstall.fleet.hostlist import compress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuinstall.fleet.proof import LastProof
    from gpuinstall.fleet.report import FleetReport

FRESH_S = 30 * 86400.0
"""How old a proof may be before a prolog mentions it."""
_STATES = ("ok", "failed", "lost", "never started", "stale")


def scontrol_lines(report: FleetReport, name: str, *, drain: bool) -> list[str]:
    """Write the lines that set bad nodes apart: a reservation for maintenance first, then a drain if meant."""
    bad = [row for row in report.bad if row.worst.state in {"failed", "lost"}]
    if not bad:
        return []
    nodes = compress(row.node for row in bad)
    words = f"ReservationName=gpuinstall_{_plain(name)} StartTime=now Duration=1-00:00:00 Users=root"
    lines = [f"scontrol create reservation {words} Flags=maint,ignore_jobs Nodes={nodes}"]
    if drain:
        causes: dict[str, list[str]] = {}
        for row in bad:
            causes.setdefault(_plain(f"{row.worst}: {row.worst.message}"), []).append(row.node)
        lines += [
            f'scontrol update NodeName={compress(nodes)} State=DRAIN Reason="gpuinstall: {why}"'
            for why, nodes in causes.items()
        ]
    return lines


def metrics(report: FleetReport) -> str:
    """Write the report as OpenMetrics text, for a node exporter's folder or a push."""
    return "\n".join([*_metrics(report), "# EOF", ""])


def prolog_answer(proof: LastProof | None, machine: str, now: float) -> tuple[bool, str]:
    """Say whether a node is known to be bad, and what is known; what is not known speaks for the node."""
    if proof is None:
        return True, "no proof yet"
    if proof.machine != machine:
        return True, "the driver or the GPUs have changed since the last proof: gpuinstall node verify"
    days = (now - proof.at) / 86400
    if proof.status == "failed":
        return False, f"a kernel failed here {days:.1f} days ago: gpuinstall node verify says which"
    old = "; it is old: gpuinstall node verify" if now - proof.at > FRESH_S else ""
    return True, f"{proof.status} {days:.1f} days ago{old}"


def _metrics(report: FleetReport) -> Iterator[str]:
    found: Counter[str] = Counter(row.worst.state for row in report.rows)
    yield "# TYPE gpuinstall_nodes gauge"
    yield "# HELP gpuinstall_nodes Nodes of the run by what became of them."
    for state in _STATES:
        yield f'gpuinstall_nodes{{state="{state}"}} {found.get(state, 0)}'
    yield "# TYPE gpuinstall_node_ok gauge"
    yield "# HELP gpuinstall_node_ok 1 where every step of a node ended well."
    for row in report.rows:
        step = next((step for step, state in row.steps.items() if state.state != "ok"), "")
        labels = f'node="{_escaped(row.node)}",step="{step}",code="{_escaped(row.worst.code or "")}"'
        yield f"gpuinstall_node_ok{{{labels}}} {int(row.worst.state == 'ok')}"
    yield "# TYPE gpuinstall_lock info"
    yield "# HELP gpuinstall_lock The locks of the plan."
    for group in report.groups:
        labels = f'name="{_escaped(group.name)}",torch="{_escaped(group.torch)}",sha256="{group.sha256 or ""}"'
        yield f"gpuinstall_lock_info{{{labels}}} 1"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")


def _plain(text: str) -> str:
    """What a shell and Slurm take as one harmless word in quotes."""
    return re.sub(r"[^\w .,:()+-]", " ", text, flags=re.ASCII)[:160].strip()
