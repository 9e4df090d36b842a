"""The folder of a run, which every node sees: what was asked for, the plan, the locks, a record for each node and step.

Nothing in it is locked and nothing is changed in place: a file is written under another name and renamed, which is all
that a network file system can be trusted with.
"""

from __future__ import annotations

import json
import platform
import secrets
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from gpuinstall import __version__
from gpuinstall.errors import UsageError
from gpuinstall.files import read_json, write_atomically
from gpuinstall.fleet.hostlist import compress, expand

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from gpuinstall.errors import GpuInstallError

SCHEMA = "gpuinstall.run/1"
NODE_SCHEMA = "gpuinstall.node/1"
NodeOutcome = Literal["started", "ok", "failed"]


@dataclass(frozen=True)
class NodeRecord:
    """One node's word about one step, the only thing that is believed; ``run`` is empty where nobody drives.

    A record that says ``started`` and stays so is that of a node that was lost. ``tool`` is the release that wrote it;
    ``code``, ``message``, ``hint`` and ``exit_code`` say of a failure what the command itself would. ``started`` is in
    seconds since 1970, ``data`` what the step found: a survey, an installation, a verdict.
    """

    run: str
    node: str
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
    def read(cls, document: object) -> NodeRecord | None:
        """Read a record; None where it is none, or one of a release that writes others."""
        if not isinstance(document, dict) or document.get("schema") != NODE_SCHEMA:
            return None
        known = {key: document[key] for key in cls.__dataclass_fields__ if key in document}
        try:
            record = cls(**known)
        except TypeError:
            return None
        texts = (record.run, record.node, record.step, record.status, record.tool)
        whole = all(isinstance(text, str) for text in texts) and isinstance(record.data, dict)
        return record if whole else None

    def failed(self, error: GpuInstallError, seconds: float, data: Mapping[str, Any] | None = None) -> NodeRecord:
        """The same, ended by an error."""
        ended = {"status": "failed", "code": error.code, "message": error.message, "hint": error.hint}
        found = {**(error.data or {}), **(data or {})}
        return NodeRecord(**{**asdict(self), **ended, "exit_code": error.exit_code, "seconds": seconds, "data": found})

    def to_dict(self) -> dict[str, Any]:
        """Write the document."""
        return {"schema": NODE_SCHEMA, **self.__dict__, "seconds": round(self.seconds, 3), "data": dict(self.data)}


@dataclass(frozen=True)
class LockGroup:
    """A lock of the plan with the nodes that it is for.

    ``name`` is the folder of the lock below ``locks``, ``lock`` the name of its file; ``sha256`` is its digest.

    ``nccl`` is the version of the collective library that it holds: nodes that share a job need the same.
    """

    name: str
    lock: str
    torch: str
    backend: str
    python: str
    nodes: tuple[str, ...]
    sha256: str | None = None
    nccl: str | None = None

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> LockGroup:
        """Read an entry of the plan's document."""
        known = {key: entry[key] for key in cls.__dataclass_fields__ if key in entry}
        return replace(cls(**known), nodes=expand(entry["nodes"]))

    def to_dict(self) -> dict[str, Any]:
        """Write an entry of the plan's document."""
        return asdict(self) | {"nodes": compress(self.nodes), "count": len(self.nodes)}

    @property
    def digest(self) -> str:
        """The name of the folder that its environment lies in, on whatever node."""
        return (self.sha256 or "")[:16]


@dataclass(frozen=True)
class FleetRun:
    """What a run is: its id, by which records are told from another run's, its engine and the nodes it began with.

    ``hints`` are what the scheduler says of its nodes, for those that never answer.
    """

    id: str = ""
    engine: str = ""
    nodes: tuple[str, ...] = ()
    hints: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RunFolder:
    """The folder at ``path``."""

    path: Path

    def begin(self, engine: str, nodes: tuple[str, ...], hints: Mapping[str, str]) -> FleetRun:
        """Write down what is to be done; raise UsageError where another run has begun here."""
        run = FleetRun(secrets.token_hex(8), engine, nodes, dict(hints))
        if self._run.exists():
            hint = f"--resume goes on with it; or name a new folder: --run-dir {self.path}-2"
            raise UsageError("run-begun", f"{self.path} holds a run already", hint=hint)
        _write(self._run, {"schema": SCHEMA, **asdict(run)})
        return run

    def read(self) -> FleetRun:
        """Read what the run is; without a driver it is whatever its records say. Raise UsageError for no folder."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            found = read_json(self._run, self.path)
            if found.pop("schema") == SCHEMA:
                return FleetRun(**{**found, "nodes": tuple(found["nodes"])})
        if not self.path.is_dir():
            hint = f"gpuinstall fleet survey --run-dir {self.path}   begins one"
            raise UsageError("run-missing", f"there is no run in {self.path}", hint=hint)
        return FleetRun(nodes=tuple(sorted(self.records("survey"))))

    @property
    def locks(self) -> Path:
        """Where the locks lie, each in a folder of its own."""
        return self.path / "locks"

    @property
    def wheels(self) -> Path:
        """The files of the locks, fetched once."""
        return self.path / "wheels"

    @property
    def images(self) -> Path:
        """Environments as one file each."""
        return self.path / "images"

    def keep(self, record: NodeRecord, part: str | None = None) -> None:
        """Write a record; raise InstallationError."""
        _write(self._place(part or record.step, record.node), record.to_dict(), indent=None)

    def record(self, step: str, node: str) -> NodeRecord | None:
        """Read the record of one node."""
        with suppress(OSError, ValueError):
            return NodeRecord.read(read_json(self._place(step, node)))
        return None

    def records(self, step: str, nodes: Iterable[str] | None = None) -> dict[str, NodeRecord]:
        """Read the records of a step: of ``nodes``, or all that are there."""
        folder = self.path / step
        names = nodes if nodes is not None else (file.stem for file in folder.glob("*.json"))
        found = ((name, self.record(step, name)) for name in names)
        return {name: record for name, record in found if record}

    def forget(self, step: str, nodes: Iterable[str]) -> None:
        """Remove records, so that what is found later is new."""
        for node in nodes:
            self._place(step, node).unlink(missing_ok=True)

    def write_document(self, name: str, document: Mapping[str, Any]) -> None:
        """Write ``name``.json, such as the plan."""
        _write(self.path / f"{name}.json", document)

    def document(self, name: str) -> dict[str, Any]:
        """Read ``name``.json; raise UsageError where it is missing."""
        with suppress(OSError, ValueError):
            found = read_json(self.path / f"{name}.json", self.path)
            if isinstance(found, dict):
                return found
        hint = f"gpuinstall fleet plan --run-dir {self.path}" if name == "plan" else None
        raise UsageError("step-missing", f"{self.path} has no {name} yet", hint=hint)

    def groups(self) -> list[LockGroup]:
        """The locks of the plan, each with its nodes; raise UsageError where there is no plan."""
        return [LockGroup.read(entry) for entry in self.document("plan").get("locks", ())]

    @property
    def _run(self) -> Path:
        return self.path / "run.json"

    def _place(self, step: str, node: str) -> Path:
        return self.path / step / f"{node}.json"


def node_name(environ: Mapping[str, str]) -> str:
    """The name of this node: what the engine calls it, or the host's own."""
    named = environ.get("GPUINSTALL_NODE") or environ.get("SLURMD_NODENAME")
    return named or platform.node().partition(".")[0]


def _write(path: Path, document: Mapping[str, Any], indent: int | None = 2) -> None:
    write_atomically(path, json.dumps(document, indent=indent) + "\n")
