"""A new lock from an agreement of plan and resolution, with the evidence of its making."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.requirements import Requirement

from gpuinstall.lock.document import Evidence
from gpuinstall.lock.lock import parse, render

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.build import Build
    from gpuinstall.lock.agreement import Agreement
    from gpuinstall.lock.aims import Settled
    from gpuinstall.lock.lock import Lock
    from gpuinstall.lock.means import Means
    from gpuinstall.lock.target import Target
    from gpuinstall.request import Request


def made(agreement: Agreement, request: Request, means: Means) -> Lock:
    """Fetch what has no hash, once, and make the lock of what ``request`` asked for."""
    draft, settled = agreement.draft, agreement.settled
    document = draft.finished(evidence(settled, draft.target, request), means)
    return parse(draft.target.filename, render(document))


def evidence(settled: Settled, target: Target, request: Request) -> Evidence:
    """What a lock says of its making: inputs, build, architectures, floors."""
    build, catalog = settled.choice.build, settled.aim.catalog
    return Evidence(
        inputs=plain(request.requirements),
        torch=str(build.torch),
        backend=build.backend,
        catalogue=catalog.date,
        asked=request.backend,
        architectures=(*map(str, build.sass), *(f"compute_{cc.sm.removeprefix('sm_')}" for cc in build.ptx)),
        floors={**_driver_floor(build, catalog), **({"glibc": target.glibc} if target.os == "linux" else {})},
    )


def plain(requirements: Iterable[str]) -> tuple[str, ...]:
    """Requirements in one spelling and order."""
    return tuple(sorted({str(Requirement(text)) for text in requirements}))


def _driver_floor(build: Build, catalog: Catalog) -> dict[str, str]:
    floor = catalog.drivers.floors.get(build.toolkit.major) if build.toolkit else None
    if floor is None:
        return {}
    return {"driver": str(floor.windows if build.os == "windows" else floor.linux)}
