"""New locks from agreements of plan and resolution, with the evidence of their making."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from gpuinstall.lock.document import Evidence, document
from gpuinstall.lock.hashes import fetch_missing
from gpuinstall.lock.inputs import plain
from gpuinstall.lock.lock import parse, render
from gpuinstall.vendors import rules_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuinstall.lock.alignment import Agreement
    from gpuinstall.lock.lock import Lock
    from gpuinstall.lock.request import PlannedLock
    from gpuinstall.lock.target import Target
    from gpuinstall.request import Request
    from gpuinstall.session import Session


def build_locks(
    agreements: Sequence[Agreement],
    requests: Sequence[Request],
    session: Session,
    files: Mapping[str, str] | None = None,
) -> list[Lock]:
    """Fetch what has no hash, each file once, and make a lock of each agreement on what its request asked for.

    ``files`` are the digests of the requirements files that the requests were read from.
    """
    missing = reduce(or_, (agreement.draft.hashes for agreement in agreements))
    hashes = fetch_missing(missing, session.cache, session.client, session.reporter)
    return [_made(*each, hashes, files or {}) for each in zip(agreements, requests, strict=True)]


def _made(agreement: Agreement, request: Request, hashes: Mapping[str, str], files: Mapping[str, str]) -> Lock:
    draft = agreement.draft
    made_from = replace(evidence(agreement.settled, draft.target, request), files=files)
    text = render(document(draft.resolved, hashes, draft.target, draft.python, made_from))
    return parse(draft.target.filename, text)


def evidence(settled: PlannedLock, target: Target, request: Request) -> Evidence:
    """What a lock says of its making: inputs, build, architectures, floors."""
    build, catalog = settled.choice.build, settled.aim.catalog
    rules = rules_for(settled.aim.machine, catalog, {build.backend.kind})
    return Evidence(
        inputs=plain(request.requirements),
        torch=str(build.torch),
        backend=build.backend.tag,
        catalogue=catalog.date,
        asked=request.backend,
        architectures=build.code,
        floors={**rules.floors(build), **({"glibc": target.glibc} if target.os == "linux" else {})},
    )
