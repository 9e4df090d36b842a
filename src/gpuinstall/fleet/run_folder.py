"""The folder of a run, which every node sees: what was asked for, the plan, the locks, a record for each node and step.

Nothing in it is locked and nothing is changed in place: a file is written under another name and renamed, which is all
that a network file system can be trusted with.
"""

from __future__ import annotations

import json
import secrets
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from gpuinstall.errors import UsageError
from gpuinstall.files import read_json, write_atomically
from gpuinstall.fleet.lock_groups import LockGroup
from gpuinstall.fleet.record import NodeRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

SCHEMA = "gpuinstall.run/1"


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


def _write(path: Path, document: Mapping[str, Any], indent: int | None = 2) -> None:
    write_atomically(path, json.dumps(document, indent=indent) + "\n")
