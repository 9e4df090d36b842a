"""What lies in the folder of a run, each as its type: the run, a node's record of a step, the plan's locks.

Others may write there. What is not what it must be is refused with its key, and a name or a digest of a type is nothing
else: it leads nowhere, and no shell runs any of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NewType, TypeVar, get_args

from gpuinstall import __version__
from gpuinstall.errors import GpuInstallError
from gpuinstall.fields import Fields
from gpuinstall.fleet.hostlist import MOST_NODES, NodeName, compress, node_list, node_name

E = TypeVar("E", "LockGroup", "UnservedNodes")
RUN_SCHEMA = "gpuinstall.run/1"
NODE_SCHEMA = "gpuinstall.node/1"
NodeOutcome = Literal["started", "ok", "failed"]
MALFORMED = "record-malformed"
Sha256 = NewType("Sha256", str)
_WORDS_OF_A_LOCK = ("name", "lock", "torch", "backend", "python")
_WORD = re.compile(r"[A-Za-z0-9][\w.+!-]{0,199}", re.ASCII)


def sha256(text: str) -> Sha256:
    """Read a digest; raise ValueError."""
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise ValueError(f"{text!r} is not a sha256")
    return Sha256(text)


def word(text: str) -> str:
    """Read a name that may be a folder's; raise ValueError."""
    if not _WORD.fullmatch(text):
        raise ValueError(f"{text!r} is not a plain name")
    return text


@dataclass(frozen=True)
class FleetRun:
    """What a run is: its id, by which records are told from another run's, its engine and the nodes it began with.

    ``hints`` are what the scheduler says of its nodes, for those that never answer.
    """

    id: str = ""
    engine: str = ""
    nodes: tuple[NodeName, ...] = ()
    hints: Mapping[NodeName, str] = field(default_factory=dict)

    @classmethod
    def read(cls, document: object) -> FleetRun:
        """Read the document; raise MalformedError."""
        fields = Fields(document)
        fields.required("schema", (RUN_SCHEMA,))
        notes = fields.fields("hints") or Fields({})
        hints = {node_name(node): notes.text(node) or "" for node in notes.body}
        names = fields.each_parsed("nodes", node_name)
        return cls(fields.needed("id", word), fields.needed("engine", word), names, hints)

    def to_dict(self) -> dict[str, Any]:
        """Write the document."""
        hints = {node: hint for node, hint in self.hints.items() if hint}
        return {"schema": RUN_SCHEMA, "id": self.id, "engine": self.engine, "nodes": self.nodes, "hints": hints}


@dataclass(frozen=True)
class NodeRecord:
    """One node's word about one step, the only thing that is believed; ``run`` is empty where nobody drives.

    A record that says ``started`` and stays so is that of a node that was lost. ``tool`` is the release that wrote it;
    ``code``, ``message``, ``hint`` and ``exit_code`` say of a failure what the command itself would. ``started`` is in
    seconds since 1970, ``data`` what the step found: a survey, an installation, a verdict.
    """

    run: str
    node: NodeName
    step: str
    attempt: int = 1
    status: NodeOutcome = "started"
    code: str | None = None
    message: str | None = None
    hint: str | None = None
    exit_code: int = 0
    started: float = 0.0
    seconds: float = 0.0
    tool: str = __version__
    data: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, document: object, step: str = "", node: str = "") -> NodeRecord:
        """Read a record, that of a step and a node where they are named; raise MalformedError."""
        fields = Fields(document)
        for key, value in (("schema", NODE_SCHEMA), ("step", step), ("node", node)):
            if value:
                fields.required(key, (value,))
        status: Any = fields.required("status", get_args(NodeOutcome))
        own = fields.text("run") or "", fields.needed("node", node_name), fields.needed("step", word)
        failure = fields.parsed("code", word), fields.text("message"), fields.text("hint")
        exit_code, attempt = min(fields.number("exit_code") or 0, 255), fields.number("attempt") or 1
        times = fields.quantity("started") or 0.0, fields.quantity("seconds") or 0.0
        data = (fields.fields("data") or Fields({})).body
        return cls(*own, attempt, status, *failure, exit_code, *times, fields.needed("tool", word), data)

    def failed(self, error: GpuInstallError, seconds: float, data: Mapping[str, Any] | None = None) -> NodeRecord:
        """The same, ended by an error."""
        failure = {key: getattr(error, key) for key in ("code", "message", "hint", "exit_code")}
        return replace(self, status="failed", seconds=seconds, data={**(error.data or {}), **(data or {})}, **failure)

    def to_dict(self) -> dict[str, Any]:
        """Write the document."""
        return {"schema": NODE_SCHEMA, **self.__dict__, "seconds": round(self.seconds, 3), "data": dict(self.data)}


@dataclass(frozen=True)
class LockGroup:
    """A lock of the plan with the nodes that it is for.

    ``name`` is the folder of the lock below ``locks``, ``lock`` the name of its file, ``sha256`` its digest. ``nccl``
    is the version of the collective library that it holds: nodes that share a job need the same.
    """

    name: str
    lock: str
    torch: str
    backend: str
    python: str
    nodes: tuple[NodeName, ...]
    sha256: Sha256
    nccl: str | None = None

    @classmethod
    def read(cls, fields: Fields) -> LockGroup:
        """Read an entry of the plan's document; raise MalformedError."""
        name, lock, torch, backend, python = (fields.needed(key, word) for key in _WORDS_OF_A_LOCK)
        members, digest = fields.needed("nodes", node_list), fields.needed("sha256", sha256)
        return cls(name, lock, torch, backend, python, members, digest, fields.parsed("nccl", word))

    def to_dict(self) -> dict[str, Any]:
        """Write an entry of the plan's document."""
        return asdict(self) | {"nodes": compress(self.nodes), "count": len(self.nodes)}

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
        members, code = fields.needed("nodes", node_list), fields.needed("code", word)
        return cls(members, code, fields.text("message") or "", fields.text("hint"), fields.text("label") or "unknown")

    def to_dict(self) -> dict[str, Any]:
        """Write an entry of the plan's document."""
        return {"label": self.label} | asdict(self) | {"nodes": compress(self.nodes), "count": len(self.nodes)}


@dataclass(frozen=True)
class WrittenPlan:
    """The plan as a run's folder has it; ``apart`` says which locks share no job."""

    groups: tuple[LockGroup, ...] = ()
    uncovered: tuple[UnservedNodes, ...] = ()
    apart: str | None = None

    @classmethod
    def read(cls, document: object) -> WrittenPlan:
        """Read the document; raise MalformedError."""
        fields = Fields(document)
        groups = tuple(_bounded(map(LockGroup.read, fields.each("locks")), fields))
        uncovered = tuple(_bounded(map(UnservedNodes.read, fields.each("uncovered")), fields))
        return cls(groups, uncovered, fields.text("apart"))


def _bounded(entries: Iterable[E], fields: Fields) -> Iterator[E]:
    """A few bytes name a million nodes: all entries together may not name more."""
    count = 0
    for entry in entries:
        count += len(entry.nodes)
        if count > MOST_NODES:
            raise fields.malformed("nodes", f"are more than {MOST_NODES}")
        yield entry
