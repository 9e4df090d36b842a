"""The proof of nodes together: an all-reduce over each group that may share a job, and who spoils it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall import process
from gpuinstall.backend import CPU
from gpuinstall.environments.paths import interpreter
from gpuinstall.errors import UsageError, VerificationError
from gpuinstall.facts.children import time_limit
from gpuinstall.fleet.hostlist import compress, expand
from gpuinstall.fleet.node import environment_of
from gpuinstall.fleet.search import Culprit, Findings, described, result_of, search

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpuinstall.fleet.run_folder import LockGroup, NodeRecord, RunFolder
    from gpuinstall.fleet.search import GroupResult, Nodes

SECONDS = 6.0
"""How long one all-reduce may take."""
PATIENCE = 90.0
"""How long the start of Python, torch and the meeting of all may take."""
_BYTES = {"nccl": 256 << 20, "gloo": 4 << 20}
COLLECTIVE = Path(__file__).with_name("collective.py")


@dataclass(frozen=True)
class Round:
    """One try of one group: how many devices each node brings, and which library carries the bytes."""

    number: int
    devices: Mapping[str, int]
    backend: str

    @property
    def step(self) -> str:
        """The step that its records are of."""
        return f"together-{self.number}"

    def to_dict(self) -> dict[str, Any]:
        """Write it for the nodes."""
        return {"devices": dict(self.devices), "backend": self.backend}


def take_part(folder: RunFolder, node: str, step: str) -> dict[str, Any]:
    """Run this node's ranks of a round; raise VerificationError where one of them does not end well."""
    told = folder.document(step)
    devices: dict[str, int] = told["devices"]
    nodes = list(devices)
    if node not in nodes:
        raise UsageError("node-not-planned", f"{node} is not among the nodes of {step}")
    words = {
        "node": node,
        "world": sum(devices.values()),
        "first": sum(devices[each] for each in nodes[: nodes.index(node)]),
        "devices": devices[node],
        "backend": told["backend"],
        "bytes": _BYTES[told["backend"]],
        "seconds": SECONDS,
        "patience": PATIENCE,
        "address": str((folder.path / step / "address").absolute()),
    }
    python = interpreter(environment_of(folder, node))
    limit = PATIENCE + SECONDS + time_limit(devices[node])
    done = process.run([python, "-I", COLLECTIVE, json.dumps(words)], seconds=limit)
    if not done.ok:
        said = (done.err.strip() or "without a word").splitlines()[-1]
        raise VerificationError("collective-failed", f"the ranks of {node} could not be started: {said}")
    return {"ranks": json.loads(done.out.splitlines()[-1])}


def prove_together(
    folder: RunFolder,
    groups: Sequence[LockGroup],
    surveys: Mapping[str, NodeRecord],
    run: Callable[[Round], Mapping[str, NodeRecord]],
    said: Callable[[str], None],
) -> dict[str, Any]:
    """Try each group of nodes that may share a job; ``run`` takes a round to its nodes and brings their records.

    Who spoiled a round is ``said`` at once, before the others are tried again.
    """
    counter = iter(range(1, 1_000_000))

    def attempt(nodes: Nodes) -> GroupResult:
        told = Round(next(counter), {node: _devices(surveys[node]) for node in nodes}, backend)
        folder.write_document(told.step, told.to_dict())
        found = run(told)
        answers = {node: record.data.get("ranks") or record.message or "no answer" for node, record in found.items()}
        result = result_of(nodes, answers)
        if result.suspects:
            said(described([Culprit((node,), why) for node, why in result.suspects.items()]))
        return result

    results = []
    for nodes in shared_jobs(groups):
        backend = "gloo" if any(group.backend == CPU.tag and {*group.nodes} & {*nodes} for group in groups) else "nccl"
        results.append(_written(nodes, backend, search(nodes, attempt), surveys))
    return {"groups": results}


def shared_jobs(groups: Sequence[LockGroup]) -> list[tuple[str, ...]]:
    """The nodes that may share a job: those with one torch and one collective library."""
    together: dict[object, list[str]] = {}
    for group in groups:
        together.setdefault((group.torch.partition("+")[0], group.nccl), []).extend(group.nodes)
    return [tuple(nodes) for nodes in together.values() if len(nodes) > 1]


def culprits_in(document: Mapping[str, Any]) -> dict[str, str]:
    """Why a node, or the link to it, spoiled a job, by its name."""
    return {
        node: culprit["why"]
        for group in document.get("groups", ())
        for culprit in group["culprits"]
        for node in culprit["nodes"]
    }


def good_in(document: Mapping[str, Any]) -> set[str]:
    """The nodes that have run an all-reduce with others."""
    return {node for group in document.get("groups", ()) for node in expand(group["good"])}


def _written(nodes: Nodes, backend: str, found: Findings, surveys: Mapping[str, NodeRecord]) -> dict[str, Any]:
    gigabits = [speed for node in found.good if (speed := surveys[node].data.get("gigabits"))]
    return {
        "nodes": compress(nodes),
        "backend": backend,
        "good": compress(found.good),
        "gb_s": found.gb_s,
        "link_gb_s": round(min(gigabits) / 8, 3) if gigabits and len(gigabits) == len(found.good) else None,
        "culprits": [culprit.to_dict() for culprit in found.culprits],
    }


def _devices(survey: NodeRecord) -> int:
    return max(1, len(survey.data.get("machine", {}).get("gpus", ())))
