"""A lock of a fleet's plan with the nodes that it is for."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from gpuinstall.fleet.hostlist import compress, expand

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class LockGroup:
    """``name`` is the folder of the lock below ``locks``, ``lock`` the name of its file; ``sha256`` is its digest.

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
