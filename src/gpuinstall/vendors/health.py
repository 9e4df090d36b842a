"""How a GPU fares by what its maker's own library says of it, as values: what kernels cannot ask."""

from __future__ import annotations

from typing import Literal, NamedTuple


class HealthCheck(NamedTuple):
    """One judgement of a GPU; ``cause`` is the failure catalogue's entry where it failed."""

    name: str
    status: Literal["passed", "failed", "skipped"]
    message: str | None = None
    cause: str | None = None


class GpuHealth(NamedTuple):
    """What is known of one GPU; ``link_rate`` is the most that its link carries in one direction, in GB/s."""

    checks: tuple[HealthCheck, ...] = ()
    link_rate: float | None = None
