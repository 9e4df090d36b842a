"""The proof of nodes together: an all-reduce over each group that may share a job, and who spoils it."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall import process
from gpuinstall.backend import CPU
from gpuinstall.environments.paths import interpreter
from gpuinstall.errors import UsageError, VerificationError
from gpuinstall.facts.children import time_limit
from gpuinstall.fields import Fields, MalformedError
from gpuinstall.fleet.hostlist import NodeName, node_name
from gpuinstall.fleet.node import group_environment, group_of
from gpuinstall.fleet.search import GroupResult, JobGroup, Nodes, result_of, search

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpuinstall.fleet.documents import LockGroup, NodeRecord
    from gpuinstall.fleet.run_folder import RunFolder

ALL_REDUCE_S = 6.0
"""How long one all-reduce may take."""
PATIENCE = 90.0
"""How long the start of Python, torch and the meeting of all may take."""
_BYTES = {"nccl": 256 << 20, "gloo": 4 << 20}
COLLECTIVE = Path(__file__).with_name("collective.py")


@dataclass(frozen=True)
class Round:
    """One try of one group: how many devices each node brings, and which library carries the bytes."""

    number: int
    devices: Mapping[NodeName, int]
    backend: str

    @property
    def step(self) -> str:
        """The step that its records are of."""
        return f"together-{self.number}"

    @classmethod
    def read(cls, number: int, document: object) -> Round:
        """Read what the driver wrote for the nodes; raise ValueError."""
        fields = Fields(document)
        counts = fields.fields("devices") or Fields({})
        devices = {node_name(node): counts.number(node) or 1 for node in counts.body}
        return cls(number, devices, fields.required("backend", tuple(_BYTES)))

    def to_dict(self) -> dict[str, Any]:
        """Write it for the nodes."""
        return {"devices": dict(self.devices), "backend": self.backend}


def take_part(folder: RunFolder, node: NodeName, number: int, root: Path | None) -> dict[str, Any]:
    """Run this node's ranks of a round; raise VerificationError where one of them does not end well."""
    step = f"together-{number}"
    attempt = folder.document(step, lambda document: Round.read(number, document))
    nodes = list(attempt.devices)
    if node not in nodes:
        raise UsageError("node-not-planned", f"{node} is not among the nodes of {step}")
    words = {
        "node": node,
        "world": sum(attempt.devices.values()),
        "first": sum(attempt.devices[before] for before in nodes[: nodes.index(node)]),
        "devices": attempt.devices[node],
        "backend": attempt.backend,
        "bytes": _BYTES[attempt.backend],
        "seconds": ALL_REDUCE_S,
        "patience": PATIENCE,
        "address": str((folder.place(step) / "address").absolute()),
    }
    python = interpreter(group_environment(folder, group_of(folder, node), node, root))
    limit = PATIENCE + ALL_REDUCE_S + time_limit(attempt.devices[node])
    done = process.run([python, "-I", COLLECTIVE, json.dumps(words)], seconds=limit, group=True)
    try:
        return {"ranks": json.loads(done.out.splitlines()[-1])}
    except (ValueError, IndexError):
        last = (done.err.strip() or "no output").splitlines()[-1]
        raise VerificationError("collective-failed", f"the ranks of {node} could not be started: {last}") from None


def prove_together(
    folder: RunFolder,
    groups: Sequence[LockGroup],
    surveys: Mapping[NodeName, NodeRecord],
    run: Callable[[Round], Mapping[NodeName, NodeRecord]],
    say: Callable[[str], None],
) -> list[JobGroup]:
    """Try each group of nodes that may share a job; ``run`` takes a round to its nodes and brings their records.

    Who spoiled a round is said at once, before the others are tried again.
    """
    counter = count(1)

    def attempt(nodes: Nodes) -> GroupResult:
        this = Round(next(counter), {node: _devices(surveys[node]) for node in nodes}, backend)
        folder.write_document(this.step, this.to_dict())
        result = result_of(nodes, {node: _ranks(record) for node, record in run(this).items()})
        if result.suspects:
            say("; ".join(f"{node}: {why}" for node, why in result.suspects.items()))
        return result

    results = []
    for nodes in shared_jobs(groups):
        backend = "gloo" if any(group.backend == CPU.tag and {*group.nodes} & {*nodes} for group in groups) else "nccl"
        findings = search(nodes, attempt)
        gigabits = [speed for node in findings.good if (speed := _gigabits(surveys[node]))]
        slowest = round(min(gigabits) / 8, 3) if gigabits and len(gigabits) == len(findings.good) else None
        results.append(JobGroup(nodes, backend, findings.good, findings.gb_s, slowest, findings.culprits))
    return results


def shared_jobs(groups: Sequence[LockGroup]) -> list[Nodes]:
    """The nodes that may share a job: those with one torch and one collective library."""
    together: dict[object, list[NodeName]] = {}
    for group in groups:
        together.setdefault((group.torch.partition("+")[0], group.nccl), []).extend(group.nodes)
    return [tuple(nodes) for nodes in together.values() if len(nodes) > 1]


def _ranks(record: NodeRecord) -> Sequence[Mapping[str, Any]] | str:
    """What the ranks of a node came to, or why that is not known; nothing that is not what it must be is taken."""
    ranks = []
    try:
        for fields in Fields(record.data).each("ranks"):
            rank = {key: fields.text(key) for key in ("status", "stage", "message")}
            speed = fields.quantity("gb_s")
            if rank["status"] == "ok" and speed is None:
                raise fields.malformed("gb_s", "is missing")
            ranks.append({**rank, "rank": fields.number("rank"), "gb_s": speed})
    except MalformedError as error:
        return f"its record is malformed: {error}"
    return ranks or record.message or "no answer"


def _gigabits(survey: NodeRecord) -> float | None:
    with suppress(MalformedError):
        return Fields(survey.data).quantity("gigabits")
    return None


def _devices(survey: NodeRecord) -> int:
    machine = survey.data.get("machine")
    gpus = machine.get("gpus") if isinstance(machine, dict) else None
    return max(1, len(gpus)) if isinstance(gpus, list) else 1
