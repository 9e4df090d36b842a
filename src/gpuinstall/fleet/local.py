"""The engine ``local``: every node is a process of this machine, for one big machine and for tests."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall import process
from gpuinstall.errors import UsageError
from gpuinstall.fleet.hostlist import chosen
from gpuinstall.fleet.record import node_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NODES = "GPUINSTALL_LOCAL_NODES"


@dataclass(frozen=True)
class LocalEngine:
    """``variables`` are what each node has in its environment beside ours; None: it is down."""

    variables: Mapping[str, Mapping[str, str] | None]
    at_once: int = field(default_factory=lambda: os.cpu_count() or 1)
    name: str = "local"

    def nodes(self, asked: Sequence[str] | None) -> dict[str, str]:
        """Name the nodes."""
        return chosen(asked, dict.fromkeys(self.variables, ""))

    def run_each(self, command: Sequence[str], nodes: Sequence[str], seconds: float) -> str:
        """Run as many processes at once as there are processors."""
        return self._run(command, nodes, seconds, self.at_once)

    def run_together(self, command: Sequence[str], nodes: Sequence[str], seconds: float) -> str:
        """Run all processes at once."""
        return self._run(command, nodes, seconds, len(nodes))

    def _run(self, command: Sequence[str], nodes: Sequence[str], seconds: float, at_once: int) -> str:
        def run(node: str) -> str:
            more = self.variables.get(node, {})
            if more is None:
                return ""
            return process.run(command, env={**os.environ, "GPUINSTALL_NODE": node, **more}, seconds=seconds).out

        with ThreadPoolExecutor(max(1, at_once)) as pool:
            return "".join(pool.map(run, nodes))


def open_local() -> LocalEngine:
    """The nodes that the file named by GPUINSTALL_LOCAL_NODES describes, or this machine; raise UsageError."""
    path = os.environ.get(NODES)
    if path is None:
        return LocalEngine({node_name(os.environ): {}})
    try:
        return LocalEngine(json.loads(Path(path).read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        message = f"{path} ({NODES}) cannot be read: {error}"
        raise UsageError("nodes-malformed", message, hint='{"node": {"VARIABLE": "value"}}') from None
