"""Packages that are built where they are installed, and what that needs: the rows of ``source_builds.toml``."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from gpuinstall.catalog import authored

if TYPE_CHECKING:
    from collections.abc import Mapping

Compiles = Literal["gpu", "any", ""]


class StaticMetadata(NamedTuple):
    """What a package would say of itself; ``version`` is None where it holds for all."""

    requires: tuple[str, ...]
    version: str | None = None


@dataclass(frozen=True)
class KnownBuild:
    """What the build of a package needs; the file says what each field means."""

    name: str
    imports_torch: bool
    compiles: Compiles
    tools: tuple[str, ...]
    gib_per_job: int
    core_minutes: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    metadata: StaticMetadata | None = None

    def compiles_for_gpus(self, *, gpu_build: bool) -> bool:
        """Say whether code for GPUs is compiled beside a torch that is for GPUs, or is not."""
        return self.compiles == "gpu" or (self.compiles == "any" and gpu_build)

    def minutes(self, jobs: int) -> int | None:
        """The minutes that it takes with some jobs at once, as far as anybody says."""
        return max(1, round(self.core_minutes / jobs)) if self.core_minutes else None


@cache
def known_builds() -> Mapping[str, KnownBuild]:
    """Load the table as shipped, by name."""
    table = authored.read_data("source_builds.toml")
    return {
        row["name"]: KnownBuild(
            name=row["name"],
            imports_torch=row["imports_torch"],
            compiles=row["compiles"],
            tools=tuple(row["tools"]),
            gib_per_job=row.get("gib_per_job", table["default"]["gib_per_job"]),
            core_minutes=row.get("core_minutes"),
            environment=row.get("environment", {}),
            note=row.get("note", ""),
            metadata=_metadata(row.get("metadata")),
        )
        for row in table["packages"]
    }


def _metadata(row: Mapping[str, Any] | None) -> StaticMetadata | None:
    return StaticMetadata(tuple(row["requires"]), row.get("version")) if row else None
