"""Keep the locked torch: its locked files replace the pages of its source.

If they suffice for a resolution, torch is unchanged, and PyTorch's index is not needed.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuinstall.base.location import Location
from gpuinstall.base.requirement import requirement_names
from gpuinstall.base.values import replace
from gpuinstall.base.versions import parse_public_version
from gpuinstall.catalog import COMPANIONS, DEFAULT_INDEX, Wheel
from gpuinstall.catalog.catalog import WheelSource, platform_name
from gpuinstall.catalog.listing import Listing, listed_companions, update_builds
from gpuinstall.catalog.pages import PageFile, wheels_from_files
from gpuinstall.lock.file.lock import Lock
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.plan import Plan
from gpuinstall.plan.alternatives import runs_on_same_gpus


def keep_torch(
    request: LockRequest, locks: Sequence[Lock], index: str
) -> tuple[LockRequest, tuple[Wheel, ...]] | None:
    """Return the request with only the locked build, and the locked wheels.

    There are no wheels if torch is from the default index. The result is None if torch
    may change.

    Args:
        request: The request.
        locks: The existing locks.
        index: The torch index.
    """
    own = [one for one in locks if len(locks) == 1 or one.target == request.label]
    names = requirement_names(request.request.requirements)
    if len(own) != 1 or own[0].find_unhashed_packages:
        return None
    [lock] = own
    if "torch" not in lock.versions:
        return None
    # Another request may need another torch.
    if not (names <= lock.requested or names >= lock.requested):
        return None
    wheels = _list_wheels(lock, request, index)
    listing = Listing(
        wheels,
        frozenset([lock.record.backend]),
        COMPANIONS & names | {"torch"},
        default_listed=True,
    )
    platform = platform_name(request.machine.os, request.machine.arch)
    catalog = replace(
        request.catalog,
        torch_index=index,
        builds=update_builds(request.catalog.builds, listing, platform),
        offered=listed_companions(listing, platform),
    )
    limited = replace(request, catalog=catalog).limit_to_locked_backends(own)
    plan = limited.outcome
    if not isinstance(plan, Plan) or not runs_on_same_gpus(plan, request.outcome):
        return None
    build, torch = plan.choice.build, parse_public_version(lock.versions["torch"])
    if (build.torch, build.backend.tag) != (torch, lock.record.backend):
        return None
    return limited, tuple(one for one in wheels if one.source != DEFAULT_INDEX)


def _list_wheels(lock: Lock, request: LockRequest, index: str) -> tuple[Wheel, ...]:
    """Return the locked wheels of torch, its family, and its server."""
    server = Location.parse(index).server
    source: WheelSource = DEFAULT_INDEX
    files = []
    for file in lock.files:
        if file.package == "torch":
            own = Location.parse(file.url).server
            # The default index has no labels.
            if own == server or "+" in lock.versions["torch"]:
                server, source = own, f"{index}/{lock.record.backend}"
    for file in lock.files:
        is_own = Location.parse(file.url).server == server
        if is_own or file.package in request.catalog.family:
            files.append(PageFile(file.url, file.name, file.sha256, metadata=True))
    return wheels_from_files(files, lock.record.backend, source)
