"""What lies in the folder of a run: the run, a node's record of a step, the plan's locks.

Others may write there. What is not what it must be is refused with its key, and a name or a digest
of a type is nothing else: it leads nowhere, and no shell runs any of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, field, replace
from typing import Any, Literal, NewType, TypeVar, get_args

from gpuinstall import __version__
from gpuinstall.errors import GpuInstallError
from gpuinstall.fields import Fields
from gpuinstall.fleet.hostlist import (
    MOST_NODES,
    NodeName,
    compress,
    node_list,
    node_name,
)
from gpuinstall.values import dataclass

E = TypeVar("E", "LockGroup", "UnservedNodes")
RUN_SCHEMA = "gpuinstall.run/1"
NODE_SCHEMA = "gpuinstall.node/1"
NodeOutcome = Literal["started", "ok", "failed"]
_OUTCOMES = get_args(NodeOutcome)
MALFORMED = "record-malformed"
Sha256 = NewType("Sha256", str)
_WORD = re.compile(r"[A-Za-z0-9][\w.+!-]{0,199}", re.ASCII)


def sha256(text: str) -> Sha256:
    """Return a digest; raise ValueError."""
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise ValueError(f"{text!r} is not a sha256")
    return Sha256(text)


def word(text: str) -> str:
    """Return a name that may be a folder's; raise ValueError."""
    if not _WORD.fullmatch(text):
        raise ValueError(f"{text!r} is not a plain name")
    return text


@dataclass(frozen=True)
class FleetRun:
    """What a run is."""

    id: str = ""
    """What tells its records from those of another run."""
    engine: str = ""
    nodes: tuple[NodeName, ...] = ()
    """The nodes that it began with."""
    hints: Mapping[NodeName, str] = field(default_factory=dict)
    """What the scheduler says of its nodes, for those that never answer."""

    @classmethod
    def read(cls, document: object) -> FleetRun:
        """Read the document; raise MalformedError."""
        fields = Fields(document)
        fields.required("schema", (RUN_SCHEMA,))
        hints = fields.fields("hints") or Fields({})
        return cls(
            id=fields.needed("id", word),
            engine=fields.needed("engine", word),
            nodes=fields.each_parsed("nodes", node_name),
            hints={node_name(node): hints.text(node) or "" for node in hints.body},
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the document."""
        return {
            "schema": RUN_SCHEMA,
            "id": self.id,
            "engine": self.engine,
            "nodes": self.nodes,
            "hints": {node: hint for node, hint in self.hints.items() if hint},
        }


@dataclass(frozen=True)
class NodeRecord:
    """One node's word about one step, the only thing that is believed."""

    run: str
    """The id of the run; empty if no driver gave one."""
    node: NodeName
    step: str
    attempt: int = 1
    status: NodeOutcome = "started"
    """A node whose record stays ``started`` is lost."""
    code: str | None = None
    message: str | None = None
    hint: str | None = None
    exit_code: int = 0
    """As code, message and hint: of a failure what the command itself would say."""
    started: float = 0.0
    """In seconds since 1970."""
    seconds: float = 0.0
    tool: str = __version__
    """The release that wrote the record."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """What the step found: a survey, an installation, a verdict."""

    @classmethod
    def read(
        cls,
        document: object,
        step: str = "",
        node: str = "",
    ) -> NodeRecord:
        """Read a record, of the given step and node if any; raise MalformedError."""
        fields = Fields(document)
        fields.required("schema", (NODE_SCHEMA,))
        status: Any = fields.required("status", _OUTCOMES)
        data = fields.fields("data") or Fields({})
        if not (step and node):
            step = fields.needed("step", word)
            node = fields.needed("node", node_name)
        return cls(
            run=fields.text("run") or "",
            node=NodeName(fields.required("node", (node,))),
            step=fields.required("step", (step,)),
            attempt=fields.number("attempt") or 1,
            status=status,
            code=fields.parsed("code", word),
            message=fields.text("message"),
            hint=fields.text("hint"),
            exit_code=min(fields.number("exit_code") or 0, 255),
            started=fields.quantity("started") or 0.0,
            seconds=fields.quantity("seconds") or 0.0,
            tool=fields.needed("tool", word),
            data=data.body,
        )

    def failed(
        self,
        error: GpuInstallError,
        seconds: float,
        data: Mapping[str, Any] | None = None,
    ) -> NodeRecord:
        """Return the same, ended by an error."""
        return replace(
            self,
            status="failed",
            code=error.code,
            message=error.message,
            hint=error.hint,
            exit_code=error.exit_code,
            seconds=seconds,
            data={**(error.data or {}), **(data or {})},
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the document."""
        return {
            "schema": NODE_SCHEMA,
            **self.__dict__,
            "seconds": round(self.seconds, 3),
            "data": dict(self.data),
        }


@dataclass(frozen=True)
class LockGroup:
    """A lock of the plan with the nodes that it is for."""

    name: str
    """The folder of the lock, below ``locks``."""
    lock: str
    """The name of its file."""
    torch: str
    backend: str
    python: str
    nodes: tuple[NodeName, ...]
    sha256: Sha256
    nccl: str | None = None
    """The version of its collective library: nodes that share a job need the same."""

    @classmethod
    def read(cls, fields: Fields) -> LockGroup:
        """Read an entry of the plan's document; raise MalformedError."""
        return cls(
            name=fields.needed("name", word),
            lock=fields.needed("lock", word),
            torch=fields.needed("torch", word),
            backend=fields.needed("backend", word),
            python=fields.needed("python", word),
            nodes=fields.needed("nodes", node_list),
            sha256=fields.needed("sha256", sha256),
            nccl=fields.parsed("nccl", word),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return an entry of the plan's document."""
        return {
            **asdict(self),
            "nodes": compress(self.nodes),
            "count": len(self.nodes),
        }

    @property
    def digest(self) -> str:
        """The name of the folder that its environment lies in, on whatever node."""
        return self.sha256[:16]


@dataclass(frozen=True)
class UnservedNodes:
    """Nodes that no lock serves, and why."""

    nodes: tuple[NodeName, ...]
    code: str
    message: str
    hint: str | None = None
    label: str = "unknown"

    @classmethod
    def read(cls, fields: Fields) -> UnservedNodes:
        """Read an entry of the plan's document; raise MalformedError."""
        return cls(
            nodes=fields.needed("nodes", node_list),
            code=fields.needed("code", word),
            message=fields.text("message") or "",
            hint=fields.text("hint"),
            label=fields.text("label") or "unknown",
        )

    def to_dict(self) -> dict[str, Any]:
        """Return an entry of the plan's document."""
        return {
            "label": self.label,
            **asdict(self),
            "nodes": compress(self.nodes),
            "count": len(self.nodes),
        }


@dataclass(frozen=True)
class WrittenPlan:
    """The plan as a run's folder has it."""

    groups: tuple[LockGroup, ...] = ()
    uncovered: tuple[UnservedNodes, ...] = ()
    apart: str | None = None
    """Which locks share no job."""

    @classmethod
    def read(cls, document: object) -> WrittenPlan:
        """Read the document; raise MalformedError."""
        fields = Fields(document)
        groups = map(LockGroup.read, fields.each("locks"))
        uncovered = map(UnservedNodes.read, fields.each("uncovered"))
        return cls(
            groups=tuple(_bounded(groups, fields)),
            uncovered=tuple(_bounded(uncovered, fields)),
            apart=fields.text("apart"),
        )


def _bounded(entries: Iterable[E], fields: Fields) -> Iterator[E]:
    """Yield the entries; raise MalformedError if all together name too many nodes.

    A few bytes may name a million.
    """
    count = 0
    for entry in entries:
        count += len(entry.nodes)
        if count > MOST_NODES:
            raise fields.malformed("nodes", f"are more than {MOST_NODES}")
        yield entry
