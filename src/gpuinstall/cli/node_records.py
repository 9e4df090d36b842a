"""Write and summarize the records of commands on cluster nodes.

Each record is a file ``<node>.<command>.json``. Other users may write into the folder,
so records are validated, and no command in
them is run.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from os.path import islink
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from gpuinstall.base.codec import create_choice_parser, read_object, write_object
from gpuinstall.base.errors import UsageError
from gpuinstall.base.files import check_output, read_json, write_atomically
from gpuinstall.base.machine import Machine
from gpuinstall.base.text import redact_document
from gpuinstall.base.values import Value
from gpuinstall.cli.commands import COMMANDS
from gpuinstall.cli.machine_text import format_gpu_kinds

UNFINISHED = {
    "exit_code": None,
    "errors": [{"message": "it is still running, or was killed"}],
}
"""The placeholder document of a running command."""

_NODE = r"(?a)[A-Za-z0-9][\w.-]{0,199}"


def _parse_node_name(text: str) -> str:
    if re.fullmatch(_NODE, text):
        return text
    raise ValueError(f"{text!r} is not a valid node name")


class _Error(NamedTuple):
    message: str | None = None
    hint: str | None = None


class _Verdict(NamedTuple):
    status: str | None = None


class _Data(NamedTuple):
    status: str | None = None
    """The status of the verdict that ``verify`` recorded."""

    chosen: str | None = None
    """The lock file that ``sync`` installed."""

    verdict: _Verdict = _Verdict()


class _Document(NamedTuple):
    """JSON document of a command."""

    exit_code: int | None = None
    errors: tuple[_Error, ...] = ()
    data: _Data = _Data()


class _Record(NamedTuple):
    """Record of a command on a node."""

    node: Annotated[str, _parse_node_name]
    command: Annotated[str, create_choice_parser(*COMMANDS)]
    """The recorded command. Nodes run the commands in alphabetical order."""

    machine: Machine | None = None
    """The machine. None: the command failed before reading it."""

    document: _Document = _Document()


class NodeFailure(NamedTuple):
    """First failed command of a node, with its error."""

    node: str
    command: str
    message: str
    hint: str | None = None


class NodeGroup(NamedTuple):
    """Group of nodes with the same GPUs, driver, lock file, and verdict."""

    gpus: str = "unknown"
    """The GPUs of a node, such as ``8 × H100 (sm_90, 80 GB)``."""

    driver: str | None = None
    lock: str | None = None
    verdict: str | None = None
    nodes: tuple[str, ...] = ()


class Report(Value):
    """Summary of the records of cluster nodes."""

    failed: tuple[NodeFailure, ...]
    """The first failed command of each node."""

    missing: tuple[str, ...]
    """The expected nodes without a record."""

    groups: tuple[NodeGroup, ...]
    """The groups of nodes, the largest first."""

    def to_dict(self) -> dict[str, Any]:
        """Return the data of ``report --json``."""
        names = [name for group in self.groups for name in group.nodes]
        return {"nodes": sorted(names), **write_object(self)}


def write_record(
    folder: Path,
    node: str,
    command: str,
    machine: Machine | None,
    document: Mapping[str, Any],
) -> None:
    """Write the record of a command on a cluster node.

    Args:
        folder: The folder of the records. It is created if it does not exist.
        node: The name of this cluster node.
        command: The command: ``sync``.
        machine: The machine. None: the command failed before reading it.
        document: The JSON document of the command.

    Raises:
        InstallationError: The record cannot be written.
        UsageError: A link leads the folder outside the repository.
    """
    check_output(folder)
    record = {
        "node": node,
        "command": command,
        "machine": machine.to_dict() if machine else None,
        "document": document,
    }
    text = json.dumps(redact_document(record), indent=1)
    write_atomically(folder / _file_name(node, command), f"{text}\n")


def _file_name(node: str, command: str) -> str:
    return f"{node}.{command}.json"


def find_node_name() -> str:
    """Return the value of GPUINSTALL_NODE, or the host name.

    Raises:
        UsageError: The name cannot be part of a file name.
    """
    import socket

    (name,) = split_node_names(
        os.environ.get("GPUINSTALL_NODE") or socket.gethostname()
    )
    return name


def split_node_names(text: str) -> list[str]:
    """Split node names at commas and blanks.

    Raises:
        UsageError: A name is malformed.
    """
    try:
        return [_parse_node_name(name) for name in re.split(r"[,\s]+", text.strip())]
    except ValueError as error:
        hint = "Use only letters, digits, dots, and hyphens: GPUINSTALL_NODE=node1, --nodes node1,node2"
        raise UsageError("node-name", str(error), hint=hint) from None


def read_report(folder: Path, expected: Iterable[str]) -> Report:
    """Read the records in a folder, and summarize them.

    Args:
        folder: The folder.
        expected: The names of the nodes that must have a record.
    """
    kinds: dict[str, NodeGroup] = defaultdict(NodeGroup)
    failures: dict[str, NodeFailure] = {}
    for path, record in _read_all(folder):
        if isinstance(record, str):
            failures[path.name] = NodeFailure(path.name, "record", record)
            continue
        kinds[record.node] = _add_record(kinds[record.node], record)
        status = record.document.exit_code
        if status != 0 and record.node not in failures:
            error = next(iter(record.document.errors), _Error())
            failures[record.node] = NodeFailure(
                record.node,
                record.command,
                error.message or f"exit status {status}",
                error.hint,
            )
    members: dict[NodeGroup, list[str]] = defaultdict(list)
    for node, kind in sorted(kinds.items()):
        members[kind].append(node)
    groups = [kind._replace(nodes=tuple(nodes)) for kind, nodes in members.items()]
    groups.sort(key=lambda group: (-len(group.nodes), group.nodes))
    return Report(
        failed=tuple(sorted(failures.values())),
        missing=tuple(name for name in dict.fromkeys(expected) if name not in kinds),
        groups=tuple(groups),
    )


def _add_record(kind: NodeGroup, record: _Record) -> NodeGroup:
    """Add the facts in a node's record to its earlier facts."""
    if record.machine:
        version = record.machine.driver and record.machine.driver.version
        kind = kind._replace(
            gpus=format_gpu_kinds(record.machine),
            driver=str(version) if version else None,
        )
    data = record.document.data
    verdict = data.verdict.status or data.status
    if verdict == "passed" and record.document.exit_code:
        verdict = "failed"  # the CPU passed, but --require-gpu was given
    return kind._replace(lock=data.chosen or kind.lock, verdict=verdict or kind.verdict)


def _read_all(folder: Path) -> Iterator[tuple[Path, _Record | str]]:
    """Yield each valid record, or the error in its file."""
    # gpuinstall writes no hidden records.
    for path in sorted(folder.glob("[!.]*.json")):
        yield path, _read(path)


def _read(path: Path) -> _Record | str:
    if islink(path):
        return "it is a link"
    try:
        record = read_object(_Record, read_json(path, path.parent))
    except OSError as error:
        return error.strerror or str(error)
    except ValueError as error:
        return str(error)
    if path.name != _file_name(record.node, record.command):
        return "the file name does not match its node and command"
    return record
