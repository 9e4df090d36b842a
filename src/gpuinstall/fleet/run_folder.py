"""The folder of a run, which every node sees: the run, the plan, the locks, the nodes' records.

Nothing in it is locked and nothing is changed in place: a file is written under another name and
renamed, which is all that a network file system can be trusted with. Nothing in it is followed: a
link is no folder of ours.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from gpuinstall.errors import UsageError
from gpuinstall.files import read_json, remove_path, write_atomically
from gpuinstall.fleet.documents import MALFORMED, FleetRun, NodeRecord, WrittenPlan
from gpuinstall.fleet.hostlist import NodeName, is_node_name, node_name
from gpuinstall.folders import check_no_link, check_shared, inside
from gpuinstall.shell import quoted
from gpuinstall.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from gpuinstall.reporter import Reporter

T = TypeVar("T")


@dataclass(frozen=True)
class RunFolder:
    """The folder at ``path``."""

    path: Path

    @classmethod
    def at(cls, path: Path, reporter: Reporter) -> RunFolder:
        """Take a folder that others cannot change without a word; raise UsageError."""
        check_shared(path, reporter)
        return cls(path)

    def begin(
        self,
        engine: str,
        nodes: tuple[NodeName, ...],
        hints: Mapping[NodeName, str],
    ) -> FleetRun:
        """Write down what is to be done; raise UsageError if another run has begun here."""
        run = FleetRun(secrets.token_hex(8), engine, nodes, dict(hints))
        if self.place("run.json").exists():
            other = quoted(f"{self.path}-2")
            hint = (
                f"the same with --resume   # continues it; or use a new folder: --run-dir {other}"
            )
            raise UsageError(
                "run-begun",
                f"{self.path} already contains a run",
                hint=hint,
            )
        _write(self.path / "run.json", run.to_dict())
        return run

    def read(self) -> FleetRun:
        """Return what the run is; without a driver it is whatever its records say.

        Raises:
            UsageError: if there is no folder.
        """
        if not self.path.is_dir():
            hint = f"gpuinstall fleet survey --run-dir {quoted(self.path)}   # starts one"
            raise UsageError(
                "run-missing",
                f"there is no run in {self.path}",
                hint=hint,
            )
        if self.holds("run"):
            return self.document("run", FleetRun.read)
        nodes = filter(is_node_name, self._names("survey"))
        return FleetRun(nodes=tuple(sorted(nodes)))

    def strangers(self) -> list[str]:
        """Return the names among the surveys that are no node's."""
        return sorted(name for name in self._names("survey") if not is_node_name(name))

    def place(self, *names: str) -> Path:
        """Return a file or a folder of the run; raise UsageError if a link stands in its place."""
        try:
            return inside(self.path, *names)
        except (OSError, ValueError) as error:
            raise _malformed(self.path.joinpath(*names), error) from None

    def keep(self, record: NodeRecord, part: str | None = None) -> None:
        """Write a record; raise InstallationError."""
        _write(
            self._file(part or record.step, record.node),
            record.to_dict(),
            indent=None,
        )

    def record(self, step: str, node: NodeName) -> NodeRecord | None:
        """Return the record of one node, that of a failure if it is malformed."""
        return _record(str(self.place(step)), step, node)

    def records(self, step: str, nodes: Iterable[NodeName]) -> Iterator[NodeRecord]:
        """Yield the records that some nodes have of a step."""
        names = self._names(step)
        folder = str(self.place(step))
        for node in nodes:
            if node not in names:
                continue
            record = _record(folder, step, node)
            if record:
                yield record

    def forget(self, step: str, nodes: Iterable[NodeName]) -> None:
        """Remove records, so that what is found later is new."""
        for node in nodes:
            remove_path(self._file(step, node))

    def write_document(self, name: str, document: Mapping[str, Any]) -> None:
        """Write ``name``.json, such as the plan."""
        _write(self.path / f"{name}.json", document)

    def document(self, name: str, parse: Callable[[object], T]) -> T:
        """Read ``name``.json; raise UsageError if it is missing or malformed."""
        file = self.place(f"{name}.json")
        try:
            return parse(read_json(file))
        except FileNotFoundError:
            message = f"{self.path} has no {name} yet"
            hint = None
            if name == "plan":
                hint = f"gpuinstall fleet plan --run-dir {quoted(self.path)}"
            raise UsageError(
                "step-missing",
                message,
                hint=hint,
            ) from None
        except (OSError, ValueError) as error:
            raise _malformed(file, error) from None

    def holds(self, name: str) -> bool:
        """Whether there is a document."""
        return self.place(f"{name}.json").exists()

    def plan(self) -> WrittenPlan:
        """Read the plan; raise UsageError if there is none."""
        return self.document("plan", WrittenPlan.read)

    def _names(self, step: str) -> set[str]:
        """Return whose records of a step there are."""
        # One look at a folder is cheaper than one for each node.
        with suppress(FileNotFoundError, NotADirectoryError):
            files = [entry.name for entry in os.scandir(self.place(step))]
            return {name.removesuffix(".json") for name in files if name.endswith(".json")}
        return set()

    def _file(self, step: str, node: NodeName) -> Path:
        return self.place(step) / f"{node}.json"


def _record(folder: str, step: str, node: NodeName) -> NodeRecord | None:
    # Of hundreds of thousands: the making of a Path takes longer than the reading of a record.
    file = f"{folder}/{node}.json"
    try:
        check_no_link(file)
        return NodeRecord.read(read_json(file), step, node)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        return NodeRecord(
            run="",
            node=node,
            step=step,
            status="failed",
            code=MALFORMED,
            message=f"{step}/{node}.json: {_reason(error)}",
            exit_code=2,
        )


def this_node(environ: Mapping[str, str], named: str | None = None) -> NodeName:
    """Return this node's name: the given one, the engine's, or the host's; raise UsageError."""
    engine = environ.get("GPUINSTALL_NODE") or environ.get("SLURMD_NODENAME")
    host = platform.node().partition(".")[0]
    try:
        return node_name(named or engine or host)
    except ValueError as error:
        hint = "the same with --node NAME"
        raise UsageError(
            "hostlist-malformed",
            str(error),
            hint=hint,
        ) from None


def _write(
    path: Path,
    document: Mapping[str, Any],
    indent: int | None = 2,
) -> None:
    write_atomically(path, json.dumps(document, indent=indent) + "\n")


def _malformed(file: Path, error: Exception) -> UsageError:
    hint = "Another program wrote it: check it, or start again with a new --run-dir"
    return UsageError(
        "run-malformed",
        f"{file}: {_reason(error)}",
        hint=hint,
    )


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
