"""The proof of nodes together: an all-reduce over each group that may share a job."""

from __future__ import annotations

import json
from contextlib import suppress
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
from gpuinstall.values import dataclass

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
    """One try of one group."""

    number: int
    devices: Mapping[NodeName, int]
    """How many each node brings."""
    backend: str
    """The library that carries the bytes."""

    @property
    def step(self) -> str:
        """The step that its records are of."""
        return f"together-{self.number}"

    @classmethod
    def read(cls, number: int, document: object) -> Round:
        """Read what the driver wrote for the nodes; raise ValueError."""
        fields = Fields(document)
        counts = fields.fields("devices") or Fields({})
        return cls(
            number=number,
            devices={node_name(node): counts.number(node) or 1 for node in counts.body},
            backend=fields.required("backend", tuple(_BYTES)),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it for the nodes."""
        return {"devices": dict(self.devices), "backend": self.backend}


def take_part(
    folder: RunFolder,
    node: NodeName,
    number: int,
    root: Path | None,
) -> dict[str, Any]:
    """Run this node's ranks of a round; raise VerificationError if one does not end well."""
    step = f"together-{number}"
    attempt = folder.document(step, lambda document: Round.read(number, document))
    nodes = list(attempt.devices)
    if node not in nodes:
        raise UsageError("node-not-planned", f"{node} is not among the nodes of {step}")
    earlier = nodes[: nodes.index(node)]
    task = {
        "node": node,
        "world": sum(attempt.devices.values()),
        "first": sum(attempt.devices[other] for other in earlier),
        "devices": attempt.devices[node],
        "backend": attempt.backend,
        "bytes": _BYTES[attempt.backend],
        "seconds": ALL_REDUCE_S,
        "patience": PATIENCE,
        "address": str((folder.place(step) / "address").absolute()),
    }
    group = group_of(folder, node)
    python = interpreter(group_environment(folder, group, node, root))
    done = process.run(
        [python, "-I", COLLECTIVE, json.dumps(task)],
        seconds=PATIENCE + ALL_REDUCE_S + time_limit(attempt.devices[node]),
        group=True,
    )
    try:
        return {"ranks": json.loads(done.out.splitlines()[-1])}
    except (ValueError, IndexError):
        last = (done.err.strip() or "no output").splitlines()[-1]
        message = f"the ranks of {node} could not be started: {last}"
        raise VerificationError("collective-failed", message) from None


def prove_together(
    folder: RunFolder,
    groups: Sequence[LockGroup],
    surveys: Mapping[NodeName, NodeRecord],
    run: Callable[[Round], Mapping[NodeName, NodeRecord]],
    say: Callable[[str], None],
) -> list[JobGroup]:
    """Try each group of nodes that may share a job; return what came of it.

    Args:
        run: Take a round to its nodes and return their records.
        say: Report who spoiled a round, before the others are tried again.
    """
    counter = count(1)

    def attempt(nodes: Nodes) -> GroupResult:
        devices = {node: _devices(surveys[node]) for node in nodes}
        this = Round(next(counter), devices, backend)
        folder.write_document(this.step, this.to_dict())
        ranks = {node: _ranks(record) for node, record in run(this).items()}
        result = result_of(nodes, ranks)
        if result.suspects:
            say("; ".join(f"{node}: {why}" for node, why in result.suspects.items()))
        return result

    results = []
    for nodes in shared_jobs(groups):
        backend = _collective_backend(nodes, groups)
        findings = search(nodes, attempt)
        results.append(
            JobGroup(
                nodes=nodes,
                backend=backend,
                good=findings.good,
                gb_s=findings.gb_s,
                link_gb_s=_slowest_link([surveys[node] for node in findings.good]),
                culprits=findings.culprits,
            )
        )
    return results


def _collective_backend(nodes: Nodes, groups: Sequence[LockGroup]) -> str:
    """Return the library that all of some nodes have: one without GPUs has no NCCL."""
    for group in groups:
        if group.backend == CPU.tag and not set(nodes).isdisjoint(group.nodes):
            return "gloo"
    return "nccl"


def _slowest_link(surveys: Sequence[NodeRecord]) -> float | None:
    """Return the slowest node's network in GB/s; None if that of one is not known."""
    gigabits = list(filter(None, map(_gigabits, surveys)))
    if not gigabits or len(gigabits) < len(surveys):
        return None
    return round(min(gigabits) / 8, 3)


def shared_jobs(groups: Sequence[LockGroup]) -> list[Nodes]:
    """Return the nodes that may share a job: those with one torch and one collective library."""
    jobs: dict[object, list[NodeName]] = {}
    for group in groups:
        torch = group.torch.partition("+")[0]
        jobs.setdefault((torch, group.nccl), []).extend(group.nodes)
    return [tuple(nodes) for nodes in jobs.values() if len(nodes) > 1]


def _ranks(record: NodeRecord) -> Sequence[Mapping[str, Any]] | str:
    """Return what the ranks of a node came to, or why that is not known."""
    ranks = []
    try:
        for fields in Fields(record.data).each("ranks"):
            rank = {
                "status": fields.text("status"),
                "stage": fields.text("stage"),
                "message": fields.text("message"),
                "gb_s": fields.quantity("gb_s"),
                "rank": fields.number("rank"),
            }
            if rank["status"] == "ok" and rank["gb_s"] is None:
                raise fields.malformed("gb_s", "is missing")
            ranks.append(rank)
    except MalformedError as error:
        return f"its record is malformed: {error}"
    return ranks or record.message or "no answer"


def _gigabits(survey: NodeRecord) -> float | None:
    with suppress(MalformedError):
        return Fields(survey.data).quantity("gigabits")
    return None


def _devices(survey: NodeRecord) -> int:
    machine = survey.data.get("machine")
    if not isinstance(machine, dict):
        return 1
    gpus = machine.get("gpus")
    if not isinstance(gpus, list):
        return 1
    return max(1, len(gpus))
