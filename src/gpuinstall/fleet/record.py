"""What became of one step on one node: the document ``gpuinstall.node/1``, the only thing that is believed."""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from gpuinstall import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.errors import GpuInstallError

SCHEMA = "gpuinstall.node/1"
NodeOutcome = Literal["started", "ok", "failed"]


@dataclass(frozen=True)
class NodeRecord:
    """One node's word about one step; ``run`` is the run's id, empty where nobody drives.

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
        if not isinstance(document, dict) or document.get("schema") != SCHEMA:
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
        return {"schema": SCHEMA, **self.__dict__, "seconds": round(self.seconds, 3), "data": dict(self.data)}


def node_name(environ: Mapping[str, str]) -> str:
    """The name of this node: what the engine calls it, or the host's own."""
    named = environ.get("GPUINSTALL_NODE") or environ.get("SLURMD_NODENAME")
    return named or platform.node().partition(".")[0]
