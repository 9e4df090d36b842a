"""Two locks compared: what came, what went, what moved, and what kept its version and changed its file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from gpuinstall.lock.lock import Lock

Kind = Literal["added", "removed", "changed", "other-file"]


@dataclass(frozen=True)
class Change:
    """What became of one package; ``old`` and ``new`` are versions."""

    package: str
    kind: Kind
    old: str | None = None
    new: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Write it for ``lock --diff --json``."""
        return {"package": self.package, "kind": self.kind, "old": self.old, "new": self.new}

    def __str__(self) -> str:
        match self.kind:
            case "added":
                return f"+ {self.package} {self.new}"
            case "removed":
                return f"- {self.package} {self.old}"
            case "other-file":
                return f"! {self.package} {self.new}: another file under the same version"
        return f"~ {self.package} {self.old} -> {self.new}"


def changes(old: Lock, new: Lock) -> tuple[Change, ...]:
    """Compare two locks package by package."""
    names = sorted({*old.versions, *new.versions})
    return tuple(change for name in names if (change := _change(name, old, new)))


def _change(name: str, old: Lock, new: Lock) -> Change | None:
    before, after = old.versions.get(name), new.versions.get(name)
    if before is None:
        return Change(name, "added", new=after)
    if after is None:
        return Change(name, "removed", old=before)
    if before != after:
        return Change(name, "changed", before, after)
    return Change(name, "other-file", before, after) if old.hashes(name) != new.hashes(name) else None
