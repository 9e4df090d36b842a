"""Where locks for several targets hold different versions of one package, and why."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gpuinstall.lock.writing import Written


@dataclass(frozen=True)
class Difference:
    """The version of a package that one target has while another has a different one."""

    package: str
    target: str
    version: str
    why: str

    def to_dict(self) -> dict[str, Any]:
        """Write it for ``lock --json``."""
        return asdict(self)


def differences(made: Sequence[Written], family: Collection[str]) -> tuple[Difference, ...]:
    """Find the packages that locks hold in different versions; the backend in a version does not count."""
    names = sorted({name for each in made for name in each.lock.versions})
    return tuple(difference for name in names for difference in _differing(name, made, family))


def _differing(name: str, made: Sequence[Written], family: Collection[str]) -> list[Difference]:
    held = [(each, version.partition("+")[0]) for each in made if (version := each.lock.versions.get(name))]
    if len({version for _, version in held}) < 2:
        return []
    return [Difference(name, each.lock.target, version, _why(name, each, family)) for each, version in held]


def _why(name: str, made: Written, family: Collection[str]) -> str:
    if name == "torch":
        return "the newest that it has"
    if name in family:
        return f"it goes with torch {made.lock.versions.get('torch')}"
    return made.apart.get(name, "the newest that it can have")
