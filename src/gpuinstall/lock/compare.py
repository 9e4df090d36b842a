"""Locks compared: what changed from an old to a new one, and where those of several targets differ, and why."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from gpuinstall.lock.inputs import plain

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from gpuinstall.lock.lock import Lock
    from gpuinstall.lock.write import Written

DifferenceKind = Literal["added", "removed", "changed", "other-file"]


@dataclass(frozen=True)
class VersionChange:
    """What became of one package; ``old`` and ``new`` are versions."""

    package: str
    kind: DifferenceKind
    old: str | None = None
    new: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Write it for ``lock --diff --json``."""
        return {"package": self.package, "kind": self.kind, "old": self.old, "new": self.new}

    def __str__(self) -> str:
        match self.kind:
            case "added":
                return f"+ {self.package} {self.new}".rstrip()
            case "removed":
                return f"- {self.package} {self.old}".rstrip()
            case "other-file":
                return f"! {self.package} {self.new}: a different file of the same version"
        return f"~ {self.package} {self.old} -> {self.new}"


@dataclass(frozen=True)
class TargetDifference:
    """The version of a package that one target has while another has a different one."""

    package: str
    target: str
    version: str
    why: str

    def to_dict(self) -> dict[str, Any]:
        """Write it for ``lock --json``."""
        return asdict(self)


def compare_locks(old: Lock, new: Lock) -> tuple[VersionChange, ...]:
    """Compare two locks package by package."""
    same = [name for name, version in old.versions.items() if new.versions.get(name) == version]
    others = [name for name in same if old.hashes(name) != new.hashes(name)]
    changes = [VersionChange(name, "other-file", old.versions[name], new.versions[name]) for name in others]
    return tuple(sorted((*compare_versions(old.held, new.held), *changes), key=lambda change: change.package))


def compare_versions(old: Mapping[str, str], new: Mapping[str, str]) -> tuple[VersionChange, ...]:
    """Compare versions by package; that of a package out of a folder is empty."""
    changes = []
    for name in sorted({*old, *new}):
        before, after = old.get(name), new.get(name)
        if before is None:
            changes.append(VersionChange(name, "added", new=after))
        elif after is None:
            changes.append(VersionChange(name, "removed", old=before))
        elif before and after and before != after:
            changes.append(VersionChange(name, "changed", before, after))
    return tuple(changes)


def held_apart(locks: Sequence[Lock]) -> dict[str, list[str]]:
    """The packages that locks hold in different versions without need, each with ``version for target``.

    A backend in a version does not count, nor what a lock is known to hold apart.
    """
    meant = frozenset[str]().union(*(lock.apart for lock in locks))
    held: dict[str, dict[str, str]] = {}
    for lock in locks:
        for name, version in lock.versions.items():
            held.setdefault(name, {})[lock.target] = version.partition("+")[0]
    different = {
        name: by_target for name, by_target in held.items() if len(set(by_target.values())) > 1 and name not in meant
    }
    return {name: [f"{version} for {target}" for target, version in each.items()] for name, each in different.items()}


def left_behind(lock: Lock, others: Iterable[Lock]) -> list[str]:
    """The names of locks of ours that were made for another request than ``lock``, or hold other versions than it."""

    def request_of(lock: Lock) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return plain(lock.inputs), plain(lock.constraints)

    ours = [other for other in others if other.evidence]
    return [other.name for other in ours if request_of(other) != request_of(lock) or held_apart([lock, other])]


def differences(written: Sequence[Written], family: Collection[str]) -> tuple[TargetDifference, ...]:
    """Find the packages that locks hold in different versions; the backend in a version does not count."""

    def why(name: str, one: Written) -> str:
        if name == "torch":
            return "the newest it has"
        if name in family:
            return f"it belongs to torch {one.lock.versions.get('torch')}"
        return one.apart.get(name, "the newest it can have")

    different = []
    for name in sorted({name for one in written for name in one.lock.versions}):
        held = [(one, version.partition("+")[0]) for one in written if (version := one.lock.versions.get(name))]
        if len({version for _, version in held}) > 1:
            different += [TargetDifference(name, one.lock.target, version, why(name, one)) for one, version in held]
    return tuple(different)
